"""Bad input: one clear line, the right exit code, nothing left behind."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

import planner
from planner.cli.plan import command_line
from planner.errors import ModelError, OutputError, PlanError
from planner.plan.files import read_plan, write_plan
from tests.cli.support import CPUS, V100, listing, refused, run
from tests.models.small import GraphBuilder, tiny_cnn, tiny_mlp

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


def plan_of(model: str, *options: str) -> str:
    return refused(run("plan", model, *V100, "-o", "out.yaml", *options), model)


# --- models -----------------------------------------------------------------------------------------------


def test_a_missing_model() -> None:
    plan_of("none.onnx")


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"\x89PNG not a model at all" * 50],
    ids=["empty", "truncated", "no-onnx"],
)
def test_a_file_that_is_no_model(damage: Callable[[bytes], bytes]) -> None:
    Path("bad.onnx").write_bytes(damage(Path("model.onnx").read_bytes()))
    plan_of("bad.onnx")


def test_a_folder_in_place_of_a_model() -> None:
    Path("bad.onnx").mkdir()
    plan_of("bad.onnx")


def _external(location: str) -> None:
    model = tiny_mlp(hidden=64)
    onnx.save(model, "ext.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    proto = onnx.load("ext.onnx", load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    Path("ext.onnx").write_bytes(proto.SerializeToString())


def test_external_data_that_is_missing() -> None:
    _external("gone.bin")
    refused(run("plan", "ext.onnx", *V100, "-o", "out.yaml"), "gone.bin", "external data")


def test_external_data_outside_the_models_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    _external("../weights.bin")
    refused(run("plan", "ext.onnx", *V100, "-o", "out.yaml"), "../weights.bin", "outside", "--allow-outside")


def test_external_data_outside_is_used_when_allowed(tmp_path: Path) -> None:
    _external("../weights.bin")
    moved = tmp_path.parent / "weights.bin"
    Path("weights.bin").rename(moved)
    try:
        assert run("plan", "ext.onnx", *V100, "-o", "ok.yaml", "--allow-outside").exit_code == 0
        assert run("apply", "ok.yaml", "--on", "cpu", "--allow-outside").exit_code == 0
        refused(run("apply", "ok.yaml", "--on", "cpu"), "outside", "--allow-outside")
    finally:
        moved.unlink()


def test_a_shape_that_cannot_be_inferred_names_tensor_and_option() -> None:
    refused(run("plan", "mlp.onnx", *V100, "-o", "out.yaml"), "'x'", "?x16", "--input-shape x=", "--batch")


def test_a_batch_that_cannot_be_changed_names_the_node() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Reshape", ["x", "s"], ["y"], name="squash")],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 6])],
        [onnx.helper.make_tensor_value_info("y", 1, [3, 4])],
        [onnx.numpy_helper.from_array(np.array([3, 4]), "s")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9), "b.onnx")
    refused(run("plan", "b.onnx", *V100, "--batch", "5", "-o", "out.yaml"), "squash")


# --- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), ("exactly one", "--gpus", "--cpus", "--cluster")),
        (("--gpus", "1", "--cpus", "1"), ("exactly one",)),
        (("--cpus", "0"), ("--cpus",)),
        (("--cpus", "2x0"), ("--cpus",)),
        (("--cpus", "many"), ("--cpus", "2x1")),
        (("--gpus", "0", "--profile", "t4"), ("zero devices", "--gpus")),
        (("--gpus", "1,1", "--profile", "t4"), ("twice",)),
        (("--gpus", "64"), ("--profile", "--cpus")),
        (("--gpus", "999", "--profile", "t4"), ("999", "at most 256")),
        (("--cpus", "999"), ("999", "up to 256")),
        (("--gpus", "1", "--profile", "v1000"), ("v1000", "v100-sxm2-16gb")),
        (("--gpus", "1", "--profile", "cpu-generic"), ("--cpus",)),
        (("--cpus", "1", "--profile", "t4"), ("--gpus",)),
        (("--gpus", "2", "--profile", "t4", "--link", "string"), ("string", "nvlink2")),
        (("--cpus", "1", "--link", "nvlink2"), ("--link",)),
        (("--cluster", "none.yaml"), ("none.yaml",)),
        ((*V100, "--planner", "magic"), ("magic", "fd-dps")),
        ((*V100, "--input-shape", "x"), ("--input-shape",)),
        ((*V100, "--input-shape", "x=3,16"), ("--input-shape", "1x3x224x224")),
        ((*V100, "--input-shape", "z=3x16"), ("'z'",)),
        ((*V100, "--input-shape", "x=3x17"), ("3x17", "?x16")),
        ((*V100, "--input-shape", "x=3x16", "--inputs", "two.npz"), ("3x16", "2x16", "--input-shape")),
        ((*V100, "--batch-axis", "x=one"), ("--batch-axis",)),
        ((*V100, "--max-slowdown", "2%"), ("--check",)),
        ((*V100, "--check"), ("out.yaml",)),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, ...], words: tuple[str, ...]) -> None:
    np.savez("two.npz", x=np.zeros((2, 16), np.float32))
    refused(run("plan", "mlp.onnx", "-o", "out.yaml", *options), *words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("plan", "m.onnx", "--batch", "0"),
        ("plan", "m.onnx", "--batch", "9" * 20),
        ("plan", "m.onnx", "--memory", "9" * 400 + "GiB"),
        ("plan", "m.onnx", "--memory", "9" * 20),
        ("fly",),
        ("apply", "--nonsense"),
    ],
)
def test_usage_that_click_refuses_exits_with_two(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_a_name_may_hold_colons_and_equals_signs() -> None:
    from planner.cli.options import parse_axes, parse_shapes

    assert parse_shapes(["a=b:0=1x3", "s="]) == {"a=b:0": (1, 3), "s": ()}
    assert parse_axes(["a=b:0=-1"]) == {"a=b:0": -1}


def test_the_recorded_command_drops_paths_and_where_it_goes() -> None:
    words = [
        "plan",
        "/a/m.onnx",
        "--cache",
        "/c",
        "-o",
        "x.yaml",
        "--profile=/p/q.yaml",
        "--json",
        "--inputs",
        "a/i.npz",
    ]
    assert command_line(words) == "fddps plan m.onnx --profile=q.yaml --inputs i.npz"
    shaped = ["plan", "/a/m.onnx", "--input-shape", "in/x=1x3", "--batch-axis=in/y=1", "--force"]
    assert command_line(shaped) == "fddps plan m.onnx --input-shape in/x=1x3 --batch-axis=in/y=1"


@pytest.mark.parametrize("flag", ["-v", "-vvv", "-qv", "-q", "--verbose", "--quiet"])
def test_the_recorded_command_drops_how_much_is_said(flag: str) -> None:
    assert command_line(["plan", flag, "/a/m.onnx", flag]) == "fddps plan m.onnx"


def test_a_device_without_enough_memory_says_what_would_fit() -> None:
    onnx.save(tiny_cnn(batch=8, size=64, channels=32), "big.onnx")
    line = refused(run("plan", "big.onnx", *V100, "--memory", "2MiB", "-o", "out.yaml"), "memory", "cuda:0", code=1)
    assert "at least" in line
    assert "MiB of 2.0 MiB" in line
    assert "t4" in line


@pytest.mark.parametrize(("devices", "words"), [(CPUS, ("operator '", "days")), (V100, ("tensor '", "bytes"))])
def test_a_batch_that_takes_years_is_one_line(devices: tuple[str, ...], words: tuple[str, ...]) -> None:
    onnx.save(tiny_cnn(), "cnn.onnx")
    refused(run("plan", "cnn.onnx", *devices, "--batch", "999999999999", "-o", "out.yaml"), *words, "--batch")


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "mo\0del.onnx", *CPUS),
        ("plan", "model.onnx", *CPUS, "-o", "o\0.yaml"),
        ("show", "pl\0an.yaml"),
        ("apply", "plan.yaml", "--outputs", "o\0.npz"),
        ("schedule", "t\0.jsonl"),
    ],
)
def test_a_path_with_a_nul_is_none(command: tuple[str, ...]) -> None:
    refused(run(*command), "\\x00", "NUL")


def test_paths_with_a_nul_from_python() -> None:
    with pytest.raises(ModelError, match="NUL"):
        planner.plan("mo\0del.onnx", cpus=2)
    with pytest.raises(PlanError, match="null"):
        read_plan("pl\0an.yaml")
    with pytest.raises(OutputError, match="null"):
        write_plan(read_plan("plan.yaml"), "o\0.yaml", force=True)


def test_an_operator_without_a_kernel_says_what_to_do() -> None:
    g = GraphBuilder(0)
    x = g.node("Cast", ["x"], to=onnx.TensorProto.BFLOAT16)
    proto = g.model({"x": (2, 3)}, {g.node("Cast", [g.node("Add", [x, x])], to=onnx.TensorProto.FLOAT): (2, 3)})
    onnx.save(proto, "half.onnx")
    assert run("plan", "half.onnx", *CPUS, "-o", "half.yaml").exit_code == 0
    refused(run("apply", "half.yaml"), "no kernel for Add(14)", "on CPU", "convert the model")


# --- files to write ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["no/such/out.yaml", ".", "x" * 300])
def test_an_output_that_cannot_be_written(target: str) -> None:
    refused(run("plan", "mlp.onnx", "--batch", "2", *V100, "-o", target), "cannot be written")
    refused(run("export", "plan.yaml", "-o", f"no/such/{target}"), "cannot be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(run("plan", "mlp.onnx", "--batch", "2", *V100, "-o", "locked/out.yaml"), "cannot be written")


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        (("plan", "mlp.onnx", "--batch", "2", *V100, "--force", "-o", "./mlp.onnx"), "mlp.onnx"),
        (("profile", "mlp.onnx", "--batch", "2", "--cpus", "1", "-o", "mlp.onnx"), "mlp.onnx"),
        (("apply", "plan.yaml", "--outputs", "plan.yaml"), "plan.yaml"),
        (("apply", "plan.yaml", "--model", "model.onnx", "--outputs", "./model.onnx"), "model.onnx"),
        (("apply", "plan.yaml", "--inputs", "in.npz", "--outputs", "in.npz"), "in.npz"),
        (("show", "plan.yaml", "--trace", "plan.yaml"), "plan.yaml"),
        (("show", "plan.yaml", "--trace", "model.onnx"), "model.onnx"),
        (("apply", "plan.yaml", "--trace", "model.onnx"), "model.onnx"),
        (("apply", "plan.yaml", "--outputs", "./model.onnx"), "model.onnx"),
        (("apply", "plan.yaml", "--model", "mlp.onnx", "--outputs", "model.onnx"), "model.onnx"),
    ],
)
def test_what_is_read_is_not_written_over(command: tuple[str, ...], lost: str) -> None:
    np.savez("in.npz", x=np.zeros((2, 3, 48, 48), np.float32))
    before = Path(lost).read_bytes()
    refused(run(*command), lost, "written over", "another")
    assert Path(lost).read_bytes() == before


@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_a_link_to_the_model_is_the_model(make: Callable[[str, str], None]) -> None:
    make("model.onnx", "link")
    before = Path("model.onnx").read_bytes()
    for command in (("apply", "plan.yaml", "--outputs"), ("show", "plan.yaml", "--trace")):
        refused(run(*command, "link"), "model.onnx", "written over")
    assert Path("model.onnx").read_bytes() == before


def test_external_weights_are_read_too() -> None:
    onnx.save(tiny_cnn(), "big.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    assert run("plan", "big.onnx", *V100, "-o", "big.yaml").exit_code == 0
    before = Path("big.data").read_bytes()
    for command in (
        ("apply", "big.yaml", "--outputs", "big.data"),
        ("show", "big.yaml", "--trace", "big.data"),
        ("plan", "big.onnx", *V100, "--force", "-o", "big.data"),
    ):
        refused(run(*command), "big.data", "weights")
    assert Path("big.data").read_bytes() == before


def test_two_results_want_a_file_each(folder: Path) -> None:
    Path("linked").symlink_to("o.x")
    before = listing(folder)
    for trace in ("o.x", "./o.x", "linked"):
        refused(run("apply", "plan.yaml", "--outputs", "o.x", "--trace", trace), "--outputs", "--trace", "file each")
    assert listing(folder) == before


@pytest.mark.parametrize("options", [("-o", "out.yaml"), ("--batch", "2", "-o", "-")])
def test_a_profile_that_fails_leaves_no_file(options: tuple[str, ...], folder: Path) -> None:
    before = listing(folder)
    refused(run("profile", "mlp.onnx", "--cpus", "1", *options))
    assert listing(folder) == before


def test_outputs_that_cannot_be_written_are_refused_before_running() -> None:
    refused(run("apply", "plan.yaml", "--outputs", "no/such/out.npz"), "no/such/out.npz")


def test_a_profile_file_that_is_something_else_is_not_touched() -> None:
    Path("notes.txt").write_text("mine")
    refused(run("profile", "mlp.onnx", "--batch", "2", "--cpus", "1", "-o", "notes.txt"), "notes.txt")
    assert Path("notes.txt").read_text() == "mine"


# --- inputs of apply --------------------------------------------------------------------------------------

X: Final = np.zeros((2, 3, 48, 48), np.float32)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"z": X}, ("'x'",)),
        ({"x": X, "z": X}, ("'z'",)),
        ({"x": X[:1]}, ("'x'", "1x3x48x48", "2x3x48x48")),
        ({"x": X.astype(np.float64)}, ("'x'", "float64", "float32")),
        ({"x": np.array(["a"])}, ("'x'", "string", "float32")),
    ],
    ids=["name", "extra", "shape", "type", "strings"],
)
def test_wrong_inputs(arrays: dict[str, Any], words: tuple[str, ...]) -> None:
    np.savez("in.npz", **arrays)
    refused(run("apply", "plan.yaml", "--inputs", "in.npz", "--outputs", "out.npz"), *words)


def test_a_limit_for_an_input_that_is_not_there() -> None:
    refused(run("apply", "plan.yaml", "--int-high", "ids=2"), "'ids'", "--int-high", "x")


def test_arrays_of_another_byte_order_mean_the_same(folder: Path) -> None:
    values = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    answers = []
    for name, array in (("little.npz", values), ("big.npz", values.astype(">f4"))):
        np.savez(name, x=array)
        assert run("apply", "plan.yaml", "--inputs", name, "--outputs", "made.npz", "--repeat", "1").exit_code == 0
        with np.load("made.npz") as made:
            answers.append({key: made[key] for key in made.files})
        Path("made.npz").unlink()
    assert all(np.array_equal(answers[0][key], answers[1][key]) for key in answers[0])


@pytest.mark.parametrize(
    ("name", "content"),
    [("x", b"hello"), ("x.npy", b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 8999 + b"\n")],
    ids=["no-array", "damaged-header"],
)
def test_members_that_are_no_arrays(name: str, content: bytes) -> None:
    with zipfile.ZipFile("in.npz", "w") as archive:
        archive.writestr(name, content)
    refused(run("apply", "plan.yaml", "--inputs", "in.npz"), "in.npz")
    refused(run("plan", "model.onnx", *V100, "--inputs", "in.npz", "-o", "out.yaml"), "in.npz")


def test_nothing_is_unpickled() -> None:
    np.savez("in.npz", x=np.array([{"a": 1}], dtype=object))
    refused(run("apply", "plan.yaml", "--inputs", "in.npz"), "in.npz", "allow_pickle")


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_a_file_of_inputs_that_is_none(content: bytes | None) -> None:
    if content is not None:
        Path("in.npz").write_bytes(content)
    refused(run("apply", "plan.yaml", "--inputs", "in.npz"), "in.npz")


# --- plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("shape: [2, 3, 48, 48]", "shape: [9000000000000000, 3, 48, 48]", "no array"),
        ("dtype: float32,", "dtype: float33,", "float33"),
        ("dtype: float32,", "dtype: int64,", "int64"),
        ("  x: {dtype", "  z: {dtype", "no input"),
    ],
)
def test_inputs_that_are_not_the_models(old: str, new: str, says: str) -> None:
    text = Path("plan.yaml").read_text()
    assert old in text
    Path("plan.yaml").write_text(text.replace(old, new, 1))
    refused(run("apply", "plan.yaml"), "inputs", says)
    result = run("validate", "plan.yaml")
    assert result.exit_code == 1 and says in result.stdout


@pytest.mark.parametrize(
    "text", ["schema: fddps/profile/v2\nentries: []\n", "schema: fddps/profile/v1\nentries: [{a: 1}]\n", "&a b"]
)
def test_profiles_that_are_none(text: str) -> None:
    Path("p.yaml").write_text(text)
    refused(run("plan", "mlp.onnx", "--batch", "2", "--cpus", "1", "--profile", "p.yaml", "-o", "out.yaml"), "p.yaml")
    refused(run("plan", "mlp.onnx", "--batch", "2", "--cpus", "1", "--cache", "p.yaml", "-o", "out.yaml"), "--cache")
    assert Path("p.yaml").read_text() == text
