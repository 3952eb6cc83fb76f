"""Contracting tasks loses nothing: no cycle, no cost, no edge; a schedule of the groups is one of all tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from planner.graph.task_graph import CommCosts, TaskGraph
from planner.schedule.bare import uniform_comm
from planner.schedule.checker import violations
from planner.schedule.coarsen import coarsen
from planner.schedule.heft import heft
from planner.schedule.ready_dcp import ready_dcp
from tests.schedule.task_graphs import problems, random_layers, task_graph

Problem = tuple[TaskGraph, CommCosts]


@given(problems())
def test_every_task_is_in_one_group_and_costs_are_those_of_the_members(problem: Problem) -> None:
    tasks, comm = problem
    coarse = coarsen(tasks, comm)
    assert sorted(task for group in coarse.members for task in group) == list(range(tasks.num_tasks))
    for number, group in enumerate(coarse.members):
        assert list(group) == sorted(group)
        assert coarse.tasks.compute_ns[number].tolist() == tasks.compute_ns[list(group)].sum(axis=0).tolist()
    assert coarse.tasks.num_devices == tasks.num_devices


@given(problems())
def test_the_contracted_graph_is_in_a_topological_order_with_all_edges_between_groups(problem: Problem) -> None:
    tasks, comm = problem
    coarse = coarsen(tasks, comm)
    group_of = {task: number for number, group in enumerate(coarse.members) for task in group}
    fine = zip(tasks.edge_src.tolist(), tasks.edge_dst.tolist(), tasks.edge_tensor.tolist(), strict=True)
    wanted = {(group_of[u], group_of[v], t) for u, v, t in fine if group_of[u] != group_of[v]}
    found = list(
        zip(
            coarse.tasks.edge_src.tolist(),
            coarse.tasks.edge_dst.tolist(),
            coarse.tasks.edge_tensor.tolist(),
            strict=True,
        )
    )
    assert found == sorted(wanted)
    assert all(u < v for u, v, _ in found)


@given(problems())
def test_a_schedule_of_the_contracted_graph_is_one_of_the_whole(problem: Problem) -> None:
    tasks, comm = problem
    coarse = coarsen(tasks, comm)
    for scheduler in (heft, ready_dcp):
        schedule = scheduler(coarse.tasks, comm)
        whole = coarse.expand(schedule, tasks)
        assert violations(tasks, comm, whole) == []
        assert whole.makespan_ns == schedule.makespan_ns


def test_a_chain_becomes_one_task() -> None:
    tasks = task_graph([[1000, 1000]] * 5, [(i, i + 1, 10) for i in range(4)])
    assert coarsen(tasks, uniform_comm(2, latency_ns=1)).members == ((0, 1, 2, 3, 4),)


def test_weights_shared_inside_a_group_count_once() -> None:
    tasks = task_graph([[1000, 1000]] * 4, [(i, i + 1, 10) for i in range(3)])
    tasks = replace(
        tasks,
        weight_bytes=np.array([100, 100, 7, 0], np.int64),
        weight_id=np.array([3, 3, -1, -1], np.int32),
    )
    coarse = coarsen(tasks, uniform_comm(2, latency_ns=1)).tasks
    assert coarse.weight_bytes.tolist() == [107]
    assert coarse.weight_id.tolist() == [-1]


def test_large_tasks_that_could_run_at_once_stay_apart() -> None:
    tasks = task_graph([[1000, 1000]] * 4, [(0, 1, 10), (0, 2, 10), (1, 3, 10), (2, 3, 10)])
    assert len(coarsen(tasks, uniform_comm(2, latency_ns=1)).members) == 4


def test_tasks_not_worth_sending_their_results_join_their_neighbour() -> None:
    tasks = task_graph([[1000, 1000], [5, 5], [5, 5], [1000, 1000]], [(0, 1, 10), (0, 2, 10), (1, 3, 10), (2, 3, 10)])
    assert len(coarsen(tasks, uniform_comm(2, latency_ns=100)).members) == 1


def test_large_graphs_shrink_and_stay_right() -> None:
    tasks, comm = random_layers(3000, 4, 1, reach=20)
    coarse = coarsen(tasks, comm)
    assert sum(len(group) for group in coarse.members) == tasks.num_tasks
    assert (coarse.tasks.edge_src < coarse.tasks.edge_dst).all()
    assert int(coarse.tasks.compute_ns.sum()) == int(tasks.compute_ns.sum())
    assert np.array_equal(coarse.tasks.tensor_bytes, tasks.tensor_bytes)
