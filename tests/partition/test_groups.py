"""Groups, lanes and what is free: every task has one place, and contracting groups leaves an acyclic graph."""

from __future__ import annotations

import random
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model.load import load_model
from planner.partition.free import FreeIndex, free_ops, task_ops
from planner.partition.groups import Groups, group_ops
from planner.partition.lanes import op_lanes
from planner.partition.split_graph import SplitGraph, build_split_graph
from planner.split.propagate import AxisCache, batch_layouts, spread
from tests.cases.support import CASES_DIR
from tests.models import save
from tests.models.small import SMALL_MODELS, GraphBuilder
from tests.partition.support import loaded
from tests.scatter import random_splits

NAMES = (*SMALL_MODELS, *(f"mix-{seed}" for seed in range(8)))


def check_groups(split: SplitGraph, groups: Groups) -> None:
    graph = split.graph
    listed = [op.name for members in groups.members for op in members]
    assert sorted(listed) == sorted(op.name for op in task_ops(graph))
    assert groups.group_of == {op.name: i for i, members in enumerate(groups.members) for op in members}
    producers = graph.producers()
    for op in task_ops(graph):
        for name in op.reads:
            maker = producers.get(name)
            if maker is not None and maker.name in groups.group_of:
                assert groups.group_of[maker.name] <= groups.group_of[op.name]
                if graph.tensors[name].kind != "tensor":
                    assert groups.group_of[maker.name] == groups.group_of[op.name]


@settings(max_examples=15)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 999), device=st.sampled_from(["cpu", "cuda"]))
def test_groups_cover_all_tasks_in_a_topological_order(name: str, seed: int, device: str) -> None:
    model, _, _ = loaded(name)
    split = build_split_graph(model, random_splits(model, random.Random(seed), 3, 0.5))
    check_groups(split, group_ops(split.graph, device))


@settings(max_examples=10)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 999))
def test_a_task_for_two_kinds_of_device_is_what_both_fuse(name: str, seed: int) -> None:
    model, _, _ = loaded(name)
    split = build_split_graph(model, random_splits(model, random.Random(seed), 3, 0.5))
    both = group_ops(split.graph, "cuda", "cpu")
    check_groups(split, both)
    for device in ("cpu", "cuda"):
        alone = group_ops(split.graph, device).group_of
        assert all(len({alone[op.name] for op in members}) == 1 for members in both.members)
    alike: dict[tuple[int, int], set[int]] = {}
    cpu, cuda = (group_ops(split.graph, device).group_of for device in ("cpu", "cuda"))
    for op, number in both.group_of.items():
        alike.setdefault((cpu[op], cuda[op]), set()).add(number)
    assert all(len(numbers) == 1 for numbers in alike.values())


@pytest.mark.parametrize("case", ["sequence_split_concat", "optional_type", "sequence_loop_carried"])
def test_values_that_cannot_leave_a_segment_hold_a_group_together(case: str, shared_dir: Path) -> None:
    model = load_model(CASES_DIR / f"{case}.onnx")
    split = build_split_graph(model, ())
    check_groups(split, group_ops(split.graph, "cpu"))


def test_groups_that_would_wait_for_each_other_become_one(shared_dir: Path) -> None:
    model = load_model(CASES_DIR / "sequence_split_concat.onnx")
    groups = group_ops(model.graph, "cpu")
    contracted = nx.DiGraph()
    producers = model.graph.producers()
    for op in task_ops(model.graph):
        for name in op.reads:
            if name in producers and producers[name].name in groups.group_of:
                a, b = groups.group_of[producers[name].name], groups.group_of[op.name]
                if a != b:
                    contracted.add_edge(a, b)
    assert nx.is_directed_acyclic_graph(contracted)


@pytest.mark.parametrize("name", ["tiny_cnn", "residual_chain", "tiny_mlp"])
def test_a_batch_split_gives_each_lane_its_own_shard_of_everything(name: str) -> None:
    model, _, _ = loaded(name)
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, (1, 1), {}), shares=(1, 1))
    split = build_split_graph(model, splits)
    lanes = op_lanes(split, 2)
    assert lanes.keys() == {op.name for op in split.graph.ops}
    producers = split.graph.producers()
    for op in split.graph.ops:
        if op.name in split.origin:
            assert lanes[op.name] == split.origin[op.name][1]
        elif op.op_type == "Slice":
            assert [lanes[r.name] for r in split.graph.consumers()[op.outputs[0]]] == [lanes[op.name]]
    crossing = [
        name
        for op in split.graph.ops
        for name in op.reads
        if name in producers and lanes[producers[name].name] != lanes[op.name]
    ]
    assert len(crossing) == 1  # the other lane's half of the result


def test_shards_beyond_the_lanes_start_again() -> None:
    model, _, _ = loaded("tiny_mlp")
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, (1,) * 4, {}), shares=(1,) * 4)
    split = build_split_graph(model, splits)
    lanes = op_lanes(split, 2)
    assert {lanes[name] for name, (_, shard) in split.origin.items() if shard % 2 == 0} == {0}
    assert {lanes[name] for name, (_, shard) in split.origin.items() if shard % 2 == 1} == {1}


def test_what_follows_from_weights_alone_is_free_but_no_result_and_nothing_random(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    table = g.node("Exp", [g.vector(6)])
    doubled = g.node("Add", [table, table])
    noise = g.node("RandomNormal", [], shape=[6])
    known = g.named("Neg", [doubled], "known")
    y = g.node("Add", [g.node("Add", ["x", doubled]), g.node("Mul", [noise, g.vector(6, 0.0, 0.0)])])
    model = load_model(save(g.model({"x": (4, 6)}, {y: (4, 6), known: (6,)}), tmp_path))
    free = free_ops(model.graph)
    by_type = {op.name: op.op_type for op in model.graph.ops}
    assert {by_type[name] for name in free} <= {"Exp", "Add"}
    tasks = [op.op_type for op in task_ops(model.graph)]
    assert "RandomNormal" in tasks
    assert "Neg" in tasks or known in model.graph.weights
    for name in free:
        assert not set(next(op for op in model.graph.ops if op.name == name).writes) & set(model.graph.outputs)


def test_free_operators_come_along_with_what_reads_them(tmp_path: Path) -> None:
    g = GraphBuilder(0)
    big = g.node("Exp", [g.weight((64, 64), 64)])
    bigger = g.node("Neg", [big])
    y = g.node("MatMul", ["x", bigger])
    z = g.node("Relu", ["x"])
    model = load_model(save(g.model({"x": (4, 64)}, {y: (4, 64), z: (4, 64)}), tmp_path))
    index = FreeIndex(model.graph)
    by_type = {op.op_type: op for op in model.graph.ops}
    assert {by_type["Exp"].name, by_type["Neg"].name} == index.free
    together = index.with_needed([by_type["MatMul"]])
    assert [op.op_type for op in together] == ["Exp", "Neg", "MatMul"]
    assert [op.op_type for op in index.with_needed([by_type["Relu"]])] == ["Relu"]


def test_where_shards_are_too_few_the_slowest_lanes_get_none() -> None:
    model, _, _ = loaded("tiny_mlp")
    shares = (1, 9, 9, 9)
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, shares, {}), shares=shares)
    (count,) = {len(spec.sizes) for spec in splits}
    assert count == 3
    lanes = op_lanes(build_split_graph(model, splits), 4, shares)
    assert set(lanes.values()) == {1, 2, 3}
