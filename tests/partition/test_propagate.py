"""Splits spread along matching axes: what they leave between neighbours is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.load import load_model
from planner.partition.split_graph import build_split_graph
from planner.split.propagate import AxisCache, Layout, batch_layouts, sizes_for, spread
from planner.split.types import SplitAxis
from tests.models import save
from tests.models.small import SMALL_MODELS, GraphBuilder, tiny_mlp
from tests.partition.support import count_types, graph_problems, loaded


@given(st.integers(1, 10_000), st.lists(st.integers(1, 1000), min_size=1, max_size=9))
def test_sizes_add_up_in_proportion(extent: int, shares: list[int]) -> None:
    sizes = sizes_for(extent, shares)
    assert sum(sizes) == extent
    assert min(sizes) > 0
    if len(sizes) == len(shares):
        for size, share in zip(sizes, shares, strict=True):
            assert abs(size - extent * share / sum(shares)) < 1


@given(st.integers(1, 500), st.integers(1, 9))
def test_equal_shares_give_sizes_that_differ_by_one_at_most_the_larger_first(extent: int, count: int) -> None:
    sizes = sizes_for(extent, [7] * count)
    assert sizes == tuple(sorted(sizes, reverse=True))
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == min(extent, count)


@pytest.mark.parametrize("name", SMALL_MODELS)
@pytest.mark.parametrize("shares", [(1, 1), (3, 1), (1, 1, 1)])
def test_every_split_is_one_that_its_operator_offers(name: str, shares: tuple[int, ...]) -> None:
    model, _, _ = loaded(name)
    cache = AxisCache(model.graph)
    layouts = batch_layouts(model.graph, shares, {})
    splits = spread(cache, layouts, shares=shares)
    ops = {op.name: op for op in model.graph.ops}
    assert len({spec.op for spec in splits}) == len(splits)
    assert [spec.op for spec in splits] == [op.name for op in model.graph.ops if op.name in {s.op for s in splits}]
    for spec in splits:
        axis = next(axis for axis in cache.axes(ops[spec.op]) if axis.name == spec.axis)
        assert sum(spec.sizes) == axis.extent
    assert graph_problems(build_split_graph(model, splits).graph) == []


@pytest.mark.parametrize(
    ("name", "slices", "joins"),
    [("tiny_cnn", 2, 1), ("residual_chain", 2, 1), ("tiny_mlp", 2, 1), ("tiny_transformer", 2, 1)],
)
def test_a_batch_split_of_a_whole_model_cuts_its_input_and_joins_its_output(name: str, slices: int, joins: int) -> None:
    model, _, _ = loaded(name)
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, (1, 1), {}), shares=(1, 1))
    before, after = count_types(model.graph), count_types(build_split_graph(model, splits).graph)
    glue = {kind: after[kind] - 2 * before.get(kind, 0) for kind in ("Slice", "Concat", "Sum") if kind in after}
    assert glue.get("Slice", 0) == slices
    assert glue.get("Concat", 0) == joins
    assert glue.get("Sum", 0) == 0


def test_a_run_started_at_columns_goes_on_to_a_partial_sum(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    inner = g.relu(g.node("MatMul", ["x", g.weight((8, 12), 8)]))
    y = g.node("MatMul", [inner, g.weight((12, 6), 12)])
    model = load_model(save(g.model({"x": (4, 8)}, {y: (4, 6)}), tmp_path))
    first = model.graph.ops[0].name

    def columns(op: object, axes: tuple[SplitAxis, ...]) -> SplitAxis | None:
        return next((axis for axis in axes if axis.name == "columns"), None) if op is model.graph.ops[0] else None

    splits = spread(AxisCache(model.graph), {}, starts=columns, shares=(1, 2))
    assert [(spec.op == first, spec.axis, spec.sizes) for spec in splits][::2] == [
        (True, "columns", (4, 8)),
        (False, "reduce", (4, 8)),
    ]
    assert count_types(build_split_graph(model, splits).graph) == {"MatMul": 4, "Relu": 2, "Sum": 1}


def test_a_run_stays_within_the_operators_named() -> None:
    model, _, _ = loaded("tiny_mlp")
    some = frozenset(op.name for op in model.graph.ops[:3])
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, (1, 1), {}), shares=(1, 1), within=some)
    assert {spec.op for spec in splits} == some


def test_nothing_is_cut_without_layouts_and_starts() -> None:
    model, _, _ = loaded("tiny_cnn")
    assert spread(AxisCache(model.graph), {}, shares=(1, 1)) == []


@pytest.mark.parametrize(
    ("batch", "shares", "expected"),
    [
        (4, (1, 1), {"x": Layout(0, (0, 2, 4))}),
        (5, (4, 1), {"x": Layout(0, (0, 4, 5))}),
        (1, (1, 1), {}),
        (4, (1,), {}),
    ],
)
def test_batch_layouts(tmp_path: Path, batch: int, shares: tuple[int, ...], expected: dict[str, Layout]) -> None:
    model = load_model(save(tiny_mlp(batch), tmp_path))
    assert batch_layouts(model.graph, shares, {}) == expected


def test_the_batch_is_where_the_caller_says(tmp_path: Path) -> None:
    model, _, _ = loaded("tiny_lstm")  # x is (length 6, batch 4, width)
    assert batch_layouts(model.graph, (1, 1), {"x": 1}) == {"x": Layout(1, (0, 2, 4))}
    assert batch_layouts(model.graph, (1, 1), {"x": -1}) == {}


def test_inputs_of_another_first_size_stay_whole(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    y = g.node("Add", [g.node("Mul", ["a", "b"]), "table"])
    proto = g.model({"a": (4, 6), "b": (4, 6), "table": (1, 6)}, {y: (4, 6)})
    model = load_model(save(proto, tmp_path))
    assert batch_layouts(model.graph, (1, 1), {}) == {"a": Layout(0, (0, 2, 4)), "b": Layout(0, (0, 2, 4))}
