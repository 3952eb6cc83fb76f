"""A split graph computes what the unsplit one computes, whatever is split, with no more glue than that takes."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from planner.errors import PlanError
from planner.graph.op_graph import Op
from planner.model.load import load_model
from planner.model.types import LoadedModel
from planner.partition.split_graph import SplitGraph, build_split_graph
from planner.split.propagate import AxisCache, batch_layouts, spread
from planner.split.types import SplitSpec
from tests.models import save
from tests.models.small import SMALL_MODELS, GraphBuilder
from tests.partition.support import apart, count_types, graph_problems, loaded, run_split
from tests.scatter import random_splits

NAMES = (*SMALL_MODELS, *(f"mix-{seed}" for seed in range(20)))
GLUE = ("Slice:", "Concat:", "Sum:", "Add:", "Max:", "Min:")


@settings(max_examples=80)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 10_000),
    shards=st.integers(2, 4),
    chance=st.sampled_from([0.15, 0.5, 1.0]),
)
@example(name="tiny_transformer", seed=0, shards=3, chance=1.0)
@example(name="nasnet_cell_like", seed=0, shards=3, chance=1.0)
def test_any_splits_leave_the_outputs_as_they_are(name: str, seed: int, shards: int, chance: float) -> None:
    model, feeds, expected = loaded(name)
    splits = random_splits(model, random.Random(seed), shards, chance)
    split = build_split_graph(model, splits)

    assert graph_problems(split.graph) == []
    assert weights_sliced_at_run_time(split) == []
    for got, want in zip(run_split(model, split, feeds), expected, strict=True):
        assert got.shape == want.shape
        assert apart(got, want) <= 1, splits


@pytest.mark.parametrize("name", NAMES)
def test_splitting_nothing_changes_nothing(name: str) -> None:
    model, _, _ = loaded(name)
    split = build_split_graph(model, ())
    assert split.graph.ops == model.graph.ops
    assert dict(split.origin) == {op.name: (op.name, 0) for op in model.graph.ops}


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_transformer", "residual_chain"])
def test_every_shard_names_its_operator_and_number(name: str) -> None:
    model, _, _ = loaded(name)
    splits = random_splits(model, random.Random(3), 3, 0.7)
    split = build_split_graph(model, splits)
    counts: dict[str, int] = {}
    for spec in splits:
        counts[spec.op] = counts.get(spec.op, 1) * spec.num_shards
    found: dict[str, list[int]] = {}
    for op in split.graph.ops:
        if op.name in split.origin:
            source, number = split.origin[op.name]
            found.setdefault(source, []).append(number)
        else:
            assert op.name.startswith(GLUE)
    assert found == {op.name: list(range(counts.get(op.name, 1))) for op in model.graph.ops}


def test_a_batch_split_of_a_chain_has_one_slice_a_shard_and_one_concat(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    y = g.conv(g.relu(g.conv("x", (3, 8))), (8, 4))
    model = load_model(save(g.model({"x": (4, 3, 8, 8)}, {y: (4, 4, 8, 8)}), tmp_path))
    splits = [SplitSpec(op.name, axis_at(model, op, 0, 0), (1, 3)) for op in model.graph.ops]
    assert count_types(build_split_graph(model, splits).graph) == {"Slice": 2, "Conv": 4, "Relu": 2, "Concat": 1}


def test_unlike_splits_of_neighbours_need_glue_between_them(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    y = g.relu(g.node("Sigmoid", ["x"]))
    model = load_model(save(g.model({"x": (4, 6)}, {y: (4, 6)}), tmp_path))
    first, second = model.graph.ops
    splits = [SplitSpec(first.name, axis_at(model, first, 0, 0), (2, 2)), SplitSpec(second.name, "dim1", (1, 5))]
    counts = count_types(build_split_graph(model, splits).graph)
    # Two slices of x; each reader cuts its columns out of both halves and puts them together; one concat of y.
    assert counts == {"Sigmoid": 2, "Relu": 2, "Slice": 6, "Concat": 3}


def test_column_then_row_split_exchanges_once(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    inner = g.relu(g.node("MatMul", ["x", g.weight((8, 12), 8)]))
    y = g.node("MatMul", [inner, g.weight((12, 6), 12)])
    model = load_model(save(g.model({"x": (4, 8)}, {y: (4, 6)}), tmp_path))
    first, relu, second = model.graph.ops
    splits = [
        SplitSpec(first.name, "columns", (5, 7)),
        SplitSpec(relu.name, axis_at(model, relu, 0, 1), (5, 7)),
        SplitSpec(second.name, "reduce", (5, 7)),
    ]
    assert count_types(build_split_graph(model, splits).graph) == {"MatMul": 4, "Relu": 2, "Sum": 1}


def test_two_splits_of_one_operator_make_a_grid(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    y = g.node("MatMul", ["x", g.weight((8, 12), 8)])
    model = load_model(save(g.model({"x": (4, 8)}, {y: (4, 12)}), tmp_path))
    name = model.graph.ops[0].name
    split = build_split_graph(model, [SplitSpec(name, "rows", (1, 3)), SplitSpec(name, "columns", (4, 8))])
    shards = {
        op.name: tuple(split.graph.tensors[op.outputs[0]].dims) for op in split.graph.ops if op.op_type == "MatMul"
    }
    assert shards == {
        f"{name}#0.0": (1, 4),
        f"{name}#0.1": (1, 8),
        f"{name}#1.0": (3, 4),
        f"{name}#1.1": (3, 8),
    }


def test_integer_partial_values_are_added_though_sum_takes_floats_only(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).integers(-9, 9, (9, 5)).astype(np.int32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="m")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, (2, 9))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (2, 5))],
        [numpy_helper.from_array(weight, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(proto)
    model = load_model(save(proto, tmp_path))
    split = build_split_graph(model, [SplitSpec("m", "reduce", (2, 3, 4))])
    x = np.arange(18, dtype=np.int32).reshape(2, 9)
    np.testing.assert_array_equal(run_split(model, split, {"x": x})[0], x @ weight)
    assert count_types(split.graph) == {"Slice": 3, "MatMul": 3, "Add": 2}


def test_parts_of_weights_are_views_of_the_whole(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    y = g.node("MatMul", ["x", g.weight((64, 512), 64)])
    proto = g.model({"x": (4, 64)}, {y: (4, 512)})
    model = load_model(save(proto, tmp_path))
    split = build_split_graph(model, [SplitSpec(model.graph.ops[0].name, "columns", (128, 384))])
    name = model.graph.ops[0].inputs[1]
    whole = split.weights[name].load()
    parts = [split.weights[op.inputs[1]].load() for op in split.graph.ops if op.op_type == "MatMul"]
    assert all(np.shares_memory(part, whole) for part in parts)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_a_weight_is_read_once_for_all_its_parts_and_forgotten_with_them(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    y = g.node("MatMul", ["x", g.weight((64, 512), 64)])
    model = load_model(save(g.model({"x": (4, 64)}, {y: (4, 512)}), tmp_path))
    op = model.graph.ops[0]
    reads = []
    source = model.weights[op.inputs[1]]
    counted = replace(source, load=lambda: (reads.append(1), source.load())[1])
    watched = replace(model, weights={**model.weights, op.inputs[1]: counted})
    split = build_split_graph(watched, [SplitSpec(op.name, "columns", (128, 384))])
    assert reads == []
    handles = [split.weights[op.inputs[1]] for op in split.graph.ops if op.op_type == "MatMul"]
    parts = [handle.load() for handle in handles]
    assert len(reads) == 1
    del parts
    handles[0].load()
    assert len(reads) == 2


def test_shards_that_read_one_part_of_a_weight_share_its_name() -> None:
    model, _, _ = loaded("tiny_mlp")
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, [1, 1], {}), shares=[1, 1])
    split = build_split_graph(model, splits)
    literals = {name for op in split.graph.ops if op.name.startswith("Slice:") for name in op.inputs[1:]}
    assert split.weights.keys() - literals == model.weights.keys()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (SplitSpec("nobody", "rows", (2, 2)), "nobody"),
        (SplitSpec("", "no-such-axis", (2, 2)), "no-such-axis"),
        (SplitSpec("", "rows", (1, 1)), "sum 4"),
        (SplitSpec("", "rows", (4, 0)), "sum 4"),
    ],
)
def test_impossible_splits_are_refused_by_name(spec: SplitSpec, text: str) -> None:
    model, _, _ = loaded("tiny_mlp")
    op = next(op for op in model.graph.ops if op.op_type == "MatMul")
    wanted = spec if spec.op else SplitSpec(op.name, spec.axis, spec.sizes)
    with pytest.raises(PlanError, match=text):
        build_split_graph(model, [wanted])


def axis_at(model: LoadedModel, op: Op, position: int, dimension: int) -> str:
    """The operator's axis that cuts this dimension of this output, one to one."""
    axes = AxisCache(model.graph).axes(op)
    for axis in axes:
        use = axis.outputs[position]
        if use is not None and use.axis == dimension and use.scale == Fraction(1):
            return axis.name
    raise AssertionError((op, axes))


def weights_sliced_at_run_time(split: SplitGraph) -> list[str]:
    return [op.name for op in split.graph.ops if op.name.startswith("Slice:") and op.inputs[0] in split.graph.weights]
