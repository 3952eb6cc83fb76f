from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import OutputError, PlanError
from planner.plan.files import dump_plan, parse_plan, plan_model_path, read_plan, relative_model_path, write_plan
from planner.plan.schema import Candidate, DeviceQueue, DeviceSpec, InputSpec, ModelRef, Plan, Segment, Split, State
from tests.plan.builders import make_plan, make_predictions

# Words that some YAML version reads as something else, and text that breaks naive emitters.
NASTY = [
    "", " ", "on", "No", "y", "~", "null", "True", "1", "0x1f", "1e3", "012", "12:30:00", "2001-01-01", ".inf", "=",
    "<<", "- a", "? a", "a: b", "a #b", "#a", "&a", "*a", "!a", "!!int 1", "%a", "@a", "`a", "|", ">", "[a", "{a",
    "a,b", "'", '"', "\\", "\n", "a\nb\n", "\r\n", "\t", "\0", "\x1b[31m", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff",
    "\ufffe", "\uffff", "\u202e", "é", "名前", "😀", "/conv/Conv:0", "a:", ":a", "a::b", "a:#b", "a=b", "---", "...",
    "x" * 1100, "x" * 3000, "a b" * 350, "é" * 3000, "a b " * 800,
]  # fmt: skip
names = st.one_of(st.text(max_size=12), st.sampled_from(NASTY))
counts = st.integers(0, 2**53)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    def texts(most: int = 3) -> tuple[str, ...]:
        return tuple(draw(st.lists(names, max_size=most)))

    segments = tuple(Segment(id=name, compute_ns=draw(counts), tasks=texts()) for name in texts())
    device = DeviceSpec(
        name=draw(names),
        kind=draw(names),
        type=draw(st.sampled_from(["cpu", "cuda"])),
        memory_bytes=draw(counts),
        cores=tuple(draw(st.lists(st.integers(0, 300), max_size=3))),
        index=draw(st.integers(-1, 9)),
        uuid=draw(names),
        shared=draw(st.booleans()),
        members=texts(),
    )
    shapes = st.lists(st.integers(0, 10), max_size=3).map(tuple)
    return make_plan(
        devices=[device],
        command=draw(names),
        why=draw(names),
        notes=texts(),
        seed=draw(st.integers(-(2**63), 2**63)),
        inputs={name: InputSpec(dtype=draw(names), shape=draw(shapes)) for name in texts()},
        splits=tuple(Split(op=name, axis=draw(names), sizes=(1, 2)) for name in texts()),
        states=tuple(State(input=name, output=draw(names)) for name in texts()),
    ).model_copy(
        update={
            "devices": (DeviceQueue(device=draw(names), segments=segments),),
            "predictions": make_predictions(
                one_device_step_ns=draw(st.none() | counts),
                candidates=(Candidate(planner=draw(names), step_ns=draw(st.none() | counts), infeasible=draw(names)),),
            ),
        }
    )


@settings(max_examples=150)
@given(plans())
def test_a_written_plan_reads_back_equal(plan: Plan) -> None:
    text = dump_plan(plan)
    again = parse_plan(text, "plan.yaml")
    assert again == plan
    assert dump_plan(again) == text


@settings(max_examples=60)
@given(plans())
def test_other_yaml_readers_read_the_same(plan: Plan) -> None:
    """PyYAML's loader follows YAML 1.1, which has more words that are not strings."""
    assert yaml.safe_load(dump_plan(plan)) == yaml.load(dump_plan(plan), yaml.CSafeLoader)
    data = yaml.safe_load(dump_plan(plan))
    assert data["why"] == plan.why
    assert data["notes"] == list(plan.notes)
    assert data["inputs"].keys() == plan.inputs.keys()
    assert [segment["tasks"] for segment in data["devices"][0]["segments"]] == [
        list(segment.tasks) for segment in plan.devices[0].segments
    ]


@pytest.mark.parametrize("name", NASTY, ids=range(len(NASTY)))
def test_task_and_input_names_of_any_kind_survive(name: str) -> None:
    queue = DeviceQueue(device="cpu:0", segments=(Segment(id=name, compute_ns=1, tasks=(name, f"{name}2")),))
    plan = make_plan(devices=[]).model_copy(
        update={"devices": (queue,), "inputs": {name: InputSpec(dtype="int8", shape=())}}
    )
    assert parse_plan(dump_plan(plan), "p") == plan


def test_one_line_a_task_and_a_newline_at_the_end() -> None:
    tasks = tuple(f"/layer{i}/conv\n{i}" for i in range(7))
    queue = DeviceQueue(device="cpu:0", segments=(Segment(id="s", compute_ns=1, tasks=tasks),))
    before = dump_plan(make_plan())
    after = dump_plan(make_plan().model_copy(update={"devices": (queue,)}))
    assert after.endswith("\n")
    assert sum("/layer" in line for line in after.splitlines()) == 7
    assert "/layer" not in before


def test_equal_plans_are_equal_files_whatever_the_order_of_their_mappings() -> None:
    specs = {name: InputSpec(dtype="float32", shape=(1,)) for name in ("b", "a", "c")}
    backwards = dict(reversed(specs.items()))
    assert dump_plan(make_plan(inputs=specs)) == dump_plan(make_plan(inputs=backwards))


def test_a_plan_is_text_without_surprises() -> None:
    """The exact text: whoever changes it changes every committed plan."""
    text = dump_plan(make_plan(transfers=[("t", "a", "b", 8)]))
    assert text.startswith(
        """schema: fddps/plan/v1
tool: {version: "0.1.0"}
command: "fddps plan --cpus 2"
planner: dcp
effort: normal
seed: 0
why: "the fastest"
notes: []
model:
  path: model.onnx
  digest: sha256:0
  simplification: 1
  file_sha256: ""
  batch: null
  batch_axes: {}
inputs:
  x: {dtype: float32, shape: [1, 3]}
cluster:
  nodes:
  - node0
  devices:
  - {name: cpu:0, kind: cpu-test-1c, type: cpu, memory_bytes: 1073741824, cores: [0]}
"""
    )
    assert """splits:
- {op: conv, axis: batch, sizes: [2, 2]}
devices:
- device: cpu:0
  segments:
  - id: a
    compute_ns: 100
    tasks:
    - a.task
""" in text  # fmt: skip
    assert "- {tensor: t, src: a, dst: b, nbytes: 8}\n" in text


def test_a_name_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(PlanError, match="not valid Unicode"):
        dump_plan(make_plan(why="\ud800"))


def edited(old: str, new: str) -> str:
    text = dump_plan(make_plan(transfers=[("t", "a", "b", 8)]))
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "key", "what"),
    [
        ("seed: 0", "seed: true", "seed", "whole number"),
        ("seed: 0", "seed: 1.5", "seed", "whole number"),
        ("seed: 0", 'seed: "1"', "seed", "whole number"),
        ("seed: 0", "sede: 0", "sede", "unknown key"),
        ("planner: dcp", "planner: 12", "planner", "a string"),
        ("planner: dcp\n", "", "planner", "missing"),
        ("compute_ns: 100", "compute_ns: -1", "devices[0].segments[0].compute_ns", "greater than or equal to 0"),
        ("compute_ns: 100", "compute_ns: 99999999999999999999", "devices[0].segments[0].compute_ns", "less than"),
        ("- a.task", "- 7", "devices[0].segments[0].tasks[0]", "a string"),
        ("- a.task", "- null", "devices[0].segments[0].tasks[0]", "a string"),
        ("sizes: [2, 2]", "sizes: [2, 0]", "splits[0].sizes[1]", "greater than 0"),
        ("sizes: [2, 2]", "sizes: 2", "splits[0].sizes", "a list"),
        ("type: cpu", "type: tpu", "cluster.devices[0].type", "'cpu' or 'cuda'"),
        ("{dtype: float32, shape: [1, 3]}", "[]", "inputs.x", "mapping"),
        ("shape: [1, 3]", "shape: [1, -3]", "inputs.x.shape[1]", "greater than or equal to 0"),
        ("shape: [1, 3]", "shape: [99999999999999999, 3]", "inputs.x.shape[0]", "less than"),
        ("schema: fddps/plan/v1", "schema: fddps/plan/v2", "schema", "fddps/plan/v1, the only one"),
        ("schema: fddps/plan/v1", "schema: [1]", "schema", "fddps/plan/v1"),
    ],
)
def test_a_wrong_value_is_named_in_one_line(old: str, new: str, key: str, what: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(edited(old, new), "my.yaml")
    message = str(caught.value)
    assert message.startswith(f"my.yaml:{key}: ")
    assert what in message
    assert "\n" not in message
    assert "pydantic" not in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a plan"),
        ("[]", "not a plan"),
        ("name: x", "not a plan"),
        ("a: &x [1]\nb: *x", "anchor"),
        ("a: *x", "alias"),
        ("a: !!python/object/apply:os.system ['true']", "tag"),
        ("schema: fddps/plan/v1\nschema: fddps/plan/v1", "twice"),
        ("a: " + "[" * 100 + "]" * 100, "deep"),
        ("a: " + "[" * 200_000, "nest"),
        ("a: [", "not valid YAML"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_hostile_text_is_refused(text: str | bytes, what: str) -> None:
    with pytest.raises(PlanError, match=what) as caught:
        parse_plan(text, "p.yaml")
    assert "p.yaml" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_billion_laughs_are_refused_before_they_grow() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    with pytest.raises(PlanError):
        parse_plan("\n".join(lines), "p.yaml")


def test_a_long_wrong_value_is_cut_in_the_message() -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(edited("seed: 0", "seed: " + "x" * 100_000), "p.yaml")
    assert len(str(caught.value)) < 400


def test_a_huge_file_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PlanError, match="too large"):
        read_plan(path)


@pytest.mark.parametrize("name", ["missing.yaml", ".", "nul\0.yaml"])
def test_what_cannot_be_read_is_a_plan_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(os.path.join(tmp_path, name))


def test_a_plan_replaces_a_plan_but_not_another_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    write_plan(make_plan(seed=1), path)
    write_plan(make_plan(seed=2), path)
    assert read_plan(path).seed == 2
    path.write_text("my notes")
    with pytest.raises(OutputError, match="--force"):
        write_plan(make_plan(), path)
    assert path.read_text() == "my notes"
    write_plan(make_plan(seed=3), path, force=True)
    assert read_plan(path).seed == 3
    assert os.listdir(tmp_path) == ["plan.yaml"]


def test_a_broken_plan_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    write_plan(make_plan(seed=1), path)
    with pytest.raises(PlanError):
        write_plan(make_plan(why="\ud800"), path)
    assert read_plan(path).seed == 1
    assert os.listdir(tmp_path) == ["plan.yaml"]


def test_a_link_to_a_plan_stays_a_link_and_modes_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    write_plan(make_plan(seed=1), real)
    real.chmod(0o640)
    link.symlink_to(real)
    write_plan(make_plan(seed=2), link)
    assert link.is_symlink()
    assert read_plan(real).seed == 2
    assert real.stat().st_mode & 0o777 == 0o640


def test_where_nothing_can_be_written_is_an_output_error(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "plan.yaml", tmp_path, tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match="cannot be written"):
            write_plan(make_plan(), path)
    assert os.listdir(tmp_path) == []


def test_what_is_no_regular_file_is_written_to_and_stays(tmp_path: Path) -> None:
    # A pipe, not /dev/null: if this went wrong, root would lose the device for all programs.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_plan(make_plan(), pipe)
        assert os.read(end, 1 << 16).decode() == dump_plan(make_plan())
    finally:
        os.close(end)
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_link_to_itself_is_refused_and_one_to_a_new_file_stays(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="cannot be written: Too many levels"):
        write_plan(make_plan(), tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()
    (tmp_path / "link").symlink_to("new")
    write_plan(make_plan(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and read_plan(tmp_path / "new") == make_plan()


def with_model(path: str) -> Plan:
    return make_plan(model=ModelRef(path=path, digest="d", simplification=1))


@pytest.mark.parametrize("path", ["m.onnx", "sub/m.onnx", "./m.onnx", "a b/é.onnx", "..m.onnx"])
def test_a_model_below_the_plan_is_found_beside_it(tmp_path: Path, path: str) -> None:
    found = plan_model_path(with_model(path), tmp_path / "plan.yaml")
    assert found == tmp_path / path


@pytest.mark.parametrize("path", ["../m.onnx", "/etc/passwd", "a/../../m", "C:/m", "..\\m", "a/..", "\\\\host\\m"])
def test_a_model_elsewhere_needs_the_users_word(tmp_path: Path, path: str) -> None:
    with pytest.raises(PlanError, match="--model PATH"):
        plan_model_path(with_model(path), tmp_path / "plan.yaml")
    plan_model_path(with_model(path), tmp_path / "plan.yaml", allow_outside=True)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_model_path_that_is_none_is_refused_either_way(tmp_path: Path, path: str) -> None:
    with pytest.raises(PlanError, match="--model PATH"):
        plan_model_path(with_model(path), tmp_path / "plan.yaml", allow_outside=True)


def test_the_model_path_of_a_plan_leads_back_to_the_model(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    cases = {("m.onnx", "p.yaml"): "m.onnx", ("d/m.onnx", "p.yaml"): "d/m.onnx", ("m.onnx", "out/p.yaml"): "../m.onnx"}
    for (model, plan), expected in cases.items():
        written = relative_model_path(model, plan)
        assert written == expected
        found = plan_model_path(with_model(written), plan, allow_outside=True)
        assert found.resolve() == (tmp_path / model).resolve()
