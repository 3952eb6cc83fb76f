from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from planner.errors import InputError
from planner.graph.paths import critical_path, levels, links
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.bare import load_bare, uniform_comm
from planner.schedule.bounds import critical_path_bound_ns, lower_bound_ns, staggered_bound_ns, work_bound_ns
from planner.schedule.checker import violations
from planner.schedule.lists import schedule_fixed
from tests.schedule.task_graphs import links_of, problems, task_graph

GRAPH = task_graph([[10, 20], [5, 5], [3, 3]], [(0, 1, 100), (0, 2, 0)])
COMM = links_of([[0, 7], [9, 0]], [[0, 1000], [1000, 0]])


def schedule(device: list[int], start: list[int], finish: list[int]) -> Schedule:
    return Schedule(np.array(device, np.int32), np.array(start, np.int64), np.array(finish, np.int64))


def test_a_good_schedule_has_no_violations() -> None:
    # 100 bytes at 1000 ns per KiB: 97.65 ns, rounded up, and 7 ns of latency.
    assert violations(GRAPH, COMM, schedule([0, 1, 0], [0, 115, 10], [10, 120, 13])) == []


@pytest.mark.parametrize(
    ("device", "start", "finish", "found"),
    [
        ([0, 1, 0], [0, 114, 10], [10, 119, 13], "t1: starts at 114 ns, before what t0 makes arrives at 115 ns"),
        ([0, 0, 0], [0, 10, 14], [10, 15, 17], "t2: starts at 14 ns on device 0, where t1 runs until 15 ns"),
        ([1, 1, 1], [0, 10, 15], [10, 15, 18], "t0: takes 10 ns, costs 20 ns on device 1"),
        ([0, 0, 0], [-1, 9, 14], [9, 14, 17], "t0: starts at -1 ns"),
        ([0, 0, 2], [0, 10, 15], [10, 15, 18], "t2: no device 2"),
        ([0, 0], [0, 10], [10, 15], "3 tasks, but the schedule has columns of 2 entries"),
    ],
)
def test_what_is_wrong_is_found(device: list[int], start: list[int], finish: list[int], found: str) -> None:
    assert any(found in line for line in violations(GRAPH, COMM, schedule(device, start, finish)))


def test_a_task_of_no_length_may_not_lie_inside_another() -> None:
    graph = task_graph([[10], [0]])
    assert violations(graph, uniform_comm(1), schedule([0, 0], [0, 5], [10, 5])) != []
    assert violations(graph, uniform_comm(1), schedule([0, 0], [0, 10], [10, 10])) == []
    assert violations(graph, uniform_comm(1), schedule([0, 0], [0, 0], [10, 0])) == []


def test_bounds_by_hand() -> None:
    assert critical_path_bound_ns(task_graph([[4, 2], [6, 3], [1, 9]], [(0, 1, 99)])) == 5
    assert work_bound_ns(task_graph([[4, 2], [6, 3], [1, 9]])) == 3
    # A task of 10 before and after ten tasks of 1 on two devices: 10 + 5 + 10, more than either bound alone.
    edges = [(0, i, 0) for i in range(1, 11)] + [(i, 11, 0) for i in range(1, 11)]
    fork_join = task_graph([[10, 10]] + [[1, 1]] * 10 + [[10, 10]], edges)
    assert critical_path_bound_ns(fork_join) == 21
    assert work_bound_ns(fork_join) == 15
    assert staggered_bound_ns(fork_join) == 20
    assert lower_bound_ns(task_graph([], devices=3)) == 0


@settings(max_examples=40)
@given(problem=problems(max_tasks=4, max_devices=3))
def test_no_placement_beats_the_bound(problem: tuple[TaskGraph, CommCosts]) -> None:
    graph, comm = problem
    bound = lower_bound_ns(graph)
    for placement in itertools.product(range(graph.num_devices), repeat=graph.num_tasks):
        assert schedule_fixed(graph, comm, list(placement)).makespan_ns >= bound


def test_paths() -> None:
    adjacency = links(4, np.array([0, 0, 1, 2], np.int32), np.array([1, 2, 3, 3], np.int32))
    assert levels(adjacency).tolist() == [0, 1, 1, 2]
    assert critical_path(adjacency, np.array([1, 2, 5, 1]), np.array([4, 0, 0, 0])) == (0, 1, 3)
    assert critical_path(adjacency, np.array([1, 2, 5, 1]), np.array([0, 0, 0, 0])) == (0, 2, 3)


def test_bare_instances_may_be_in_any_order() -> None:
    graph, comm = load_bare({"processors": 2, "weights": [3, 4, 5], "edges": [[2, 0, 7], [0, 1]]})
    assert graph.names == ("2", "0", "1")
    assert graph.compute_ns.tolist() == [[5, 5], [3, 3], [4, 4]]
    found = schedule_fixed(graph, comm, [0, 1, 0])
    assert found.start_ns.tolist() == [0, 12, 15]


def test_bare_instances_with_a_cycle_or_a_wrong_edge_are_refused() -> None:
    with pytest.raises(InputError, match="loop:edges: the edges form a cycle"):
        load_bare({"name": "loop", "processors": 1, "weights": [1, 1], "edges": [[0, 1, 1], [1, 0, 1]]})
    with pytest.raises(InputError, match="edge 0 -> 2 names no task"):
        load_bare({"processors": 1, "weights": [1, 1], "edges": [[0, 2, 1]]})
