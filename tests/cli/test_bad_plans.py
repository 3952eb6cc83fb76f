"""Plans that are wrong, or no plans: one clear line, the right exit code, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import onnx
import pytest
import yaml

from tests.cli.support import V100, refused, run
from tests.models.small import residual_chain

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
Queues = list[dict[str, Any]]


def test_a_model_that_changed() -> None:
    onnx.save(residual_chain(), "model.onnx")
    refused(run("apply", "plan.yaml"), "changed", "fddps plan")
    result = run("validate", "plan.yaml")
    assert result.exit_code == 1
    assert "changed" in result.stdout


def test_a_file_that_changed_is_noticed_where_its_hash_was_asked_for() -> None:
    model = onnx.load("mlp.onnx")
    for name, found in (("plain.yaml", 0), ("hashed.yaml", 1)):
        options = ("--hash-file",) if found else ()
        assert run("plan", "mlp.onnx", "--batch", "2", *V100, "-o", name, *options).exit_code == 0
        assert run("validate", name).exit_code == 0
    model.doc_string = "another file of the same graph"
    onnx.save(model, "mlp.onnx")
    assert run("validate", "plain.yaml").exit_code == 0
    result = run("validate", "hashed.yaml")
    assert result.exit_code == 1
    assert "file_sha256" in result.stdout
    checked = run("plan", "mlp.onnx", "--batch", "2", *V100, "-o", "hashed.yaml", "--hash-file", "--check")
    assert checked.exit_code == 1


def test_a_changed_model_is_all_that_is_said() -> None:
    onnx.save(residual_chain(), "model.onnx")
    assert len(run("validate", "plan.yaml").stdout.splitlines()) == 1


def test_a_model_that_is_gone() -> None:
    Path("model.onnx").unlink()
    refused(run("apply", "plan.yaml"), "model.onnx")


def _edit(change: Callable[[list[str]], list[str]]) -> None:
    lines = Path("plan.yaml").read_text().splitlines(keepends=True)
    changed = change(list(lines))
    assert changed != lines
    Path("plan.yaml").write_text("".join(changed))


def _missing(queues: Queues) -> None:
    queues[0]["segments"][1]["tasks"].pop()


def _twice(queues: Queues) -> None:
    first, second, *_ = queues[0]["segments"]
    second["tasks"].append(first["tasks"][0])


def _unknown_device(queues: Queues) -> None:
    queues[1]["device"] = "cpu:7"


def _deadlock(queues: Queues) -> None:
    """The second device's last value is what its first needs by way of the first device."""
    queues[1]["segments"].reverse()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_missing, ("is in no segment",)),
        (_twice, ("twice",)),
        (_unknown_device, ("cpu:7",)),
        (_deadlock, ("deadlock",)),
    ],
    ids=["missing", "twice", "unknown-device", "deadlock"],
)
def test_a_plan_edited_by_hand(change: Callable[[Queues], None], words: tuple[str, ...]) -> None:
    plan = yaml.safe_load(Path("plan.yaml").read_text())
    change(plan["devices"])
    Path("plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    result = run("validate", "plan.yaml")
    assert result.exit_code == 1
    assert any(all(word in line for word in words) for line in result.stdout.splitlines()), result.stdout
    refused(run("apply", "plan.yaml"), *words)
    refused(run("export", "plan.yaml", "-o", "out"), *words)


def test_a_transfer_that_is_deleted_is_missed() -> None:
    lines = Path("plan.yaml").read_text().splitlines(keepends=True)
    first = lines.index("transfers:\n") + 1
    Path("plan.yaml").write_text("".join([*lines[:first], *lines[first + 1 :]]))
    result = run("validate", "plan.yaml")
    assert result.exit_code == 1 and "is missing" in result.stdout


def test_a_split_that_cannot_be() -> None:
    _edit(
        lambda lines: [
            line.replace("splits: []", "splits:\n- {op: nothing, axis: batch, sizes: [1, 1]}") for line in lines
        ]
    )
    assert run("validate", "plan.yaml").exit_code == 1
    refused(run("apply", "plan.yaml"), "nothing")


READERS: Final = ["validate", "show", "apply"]


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: fddps/plan/v2\n", ("v2", "fddps/plan/v1")),
        ("hello: world\n", ("not a plan",)),
        ("", ("not a plan",)),
        ("[" * 100_000, ("nest",)),
        ("a: &a [1]\nschema: fddps/plan/v1\n", ("anchor",)),
        ("schema: fddps/plan/v1\nb: *a\n", ("",)),
        ("schema: !!python/object/apply:os.system [ls]\n", ("tag",)),
        ("schema: fddps/plan/v1\nschema: fddps/plan/v1\n", ("twice",)),
        ("schema: fddps/plan/v1\nplanner: x\n", ("missing",)),
        ("\x00\x01", ("plan.yaml",)),
    ],
    ids=["newer", "other", "empty", "deep", "anchor", "alias", "tag", "duplicate", "incomplete", "binary"],
)
def test_a_file_that_is_no_plan(command: str, text: str, words: tuple[str, ...]) -> None:
    Path("plan.yaml").write_text(text)
    refused(run(command, "plan.yaml"), "plan.yaml", *words)


def test_a_yaml_bomb_takes_no_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    Path("plan.yaml").write_text("\n".join(lines))
    refused(run("validate", "plan.yaml"), "plan.yaml:1", "anchor")


def test_a_hundred_megabytes_of_yaml() -> None:
    with Path("plan.yaml").open("wb") as file:
        file.truncate(100_000_000)
    refused(run("validate", "plan.yaml"), "too large")


@pytest.mark.parametrize("path", ["../model.onnx", "/etc/passwd", "a/../../model.onnx"])
def test_paths_that_climb_out_of_the_folder(path: str) -> None:
    _edit(lambda lines: [line.replace("path: model.onnx", f"path: {path}") for line in lines])
    for command in ("apply", "validate"):
        refused(run(command, "plan.yaml"), path, "--model")
    refused(run("export", "plan.yaml", "-o", "out"), path, "--model")


def test_a_map_of_devices_that_are_not_there() -> None:
    refused(run("apply", "plan.yaml", "--map", "cuda:9=cuda:0"), "cuda:9", "cpu:0")
    refused(run("apply", "plan.yaml", "--map", "cuda"), "--map")
