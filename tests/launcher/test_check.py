"""What a plan's outputs are compared with: the model file itself, wherever it can run at the plan's shapes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

import planner
from planner.launcher.check import Checker, drawn_values
from planner.launcher.planned_session import PlannedSession
from planner.model.load import load_model
from planner.plan.files import write_plan
from planner.runtime.feeds import random_feeds
from planner.split.table import split_axes
from tests.models.small import save, tiny_mlp

HARDWARE = {"cpus": "2x1", "profile": "cpu-generic"}


@pytest.mark.parametrize(
    ("baked", "options", "file_is_run"),
    [
        ("N", {"batch": 3}, True),
        (3, {}, True),
        (3, {"batch": 3}, True),
        (2, {"batch": 3}, False),
        (2, {"input_shapes": {"x": (3, 16)}}, False),
    ],
    ids=["symbolic", "baked", "baked-and-said", "changed", "changed-by-shape"],
)
def test_the_reference_is_the_file_unless_it_is_for_another_batch(
    baked: int | str, options: dict[str, object], file_is_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_mlp(baked)
    name, width = model.graph.input[0].name, model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    if "input_shapes" in options:
        options = {"input_shapes": {name: (3, width)}}
    path = save(model, tmp_path)
    write_plan(
        planner.plan(path, **HARDWARE, planner="data-parallel", plan_dir=tmp_path, **options), tmp_path / "p.yaml"
    )
    built: list[str] = []
    real = planner.launcher.check.rebuilt
    monkeypatch.setattr(planner.launcher.check, "rebuilt", lambda *given: built.append("rebuilt") or real(*given))
    with PlannedSession(tmp_path / "p.yaml") as session:
        checker = Checker(session)
        assert checker.compare(random_feeds(session.inputs, 0)).verified
    assert built == ([] if file_is_run else ["rebuilt"])
    assert bool(checker.warnings) != file_is_run


def _onnx(tmp_path: Path, nodes: list[onnx.NodeProto], dtype: int = onnx.TensorProto.FLOAT) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", dtype, [4, 2])], [value("y", dtype, [4, 2])])
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 21)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def test_a_file_that_onnxruntime_refuses_is_compared_as_it_was_loaded(tmp_path: Path) -> None:
    names = [helper.make_node("Neg", ["x"], ["h"], "a"), helper.make_node("Abs", ["h"], ["y"], "a")]
    path = _onnx(tmp_path, names)
    write_plan(planner.plan(path, **HARDWARE, plan_dir=tmp_path), tmp_path / "p.yaml")
    with PlannedSession(tmp_path / "p.yaml") as session:
        checker = Checker(session)
        assert checker.compare(random_feeds(session.inputs, 0)).verified
    assert "refuses the file itself" in checker.warnings[0]


def test_random_numbers_inside_a_body_are_known(tmp_path: Path) -> None:
    drawn = helper.make_graph(
        [helper.make_node("RandomNormalLike", ["x"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [4, 2])],
    )
    still = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, [4, 2])],
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Cast", ["total"], ["any"], to=onnx.TensorProto.BOOL),
    ]
    for body, expected in ((drawn, {"y"}), (still, set())):
        choice = helper.make_node("If", ["any"], ["y"], then_branch=body, else_branch=still)
        assert set(drawn_values(load_model(_onnx(tmp_path, [*nodes, choice])).graph)) == expected


@pytest.mark.parametrize("dtype", [onnx.TensorProto.INT4, onnx.TensorProto.FLOAT8E4M3FN])
def test_what_cannot_be_cut_out_or_joined_stays_whole(dtype: int, tmp_path: Path) -> None:
    graph = load_model(_onnx(tmp_path, [helper.make_node("Identity", ["x"], ["y"])], dtype)).graph
    assert split_axes(graph.context(graph.ops[0])) == ()
