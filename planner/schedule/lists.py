"""List scheduling: tasks one after the other, each into the earliest slot of its best device.

Tie-breaks: tasks of equal priority by number (topological position), devices of equal finish by index.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.errors import UsageError
from planner.graph.jit import kernel
from planner.graph.paths import Links, bottom_levels
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.memory import Memory, empty, fits, memory_of, pack, place
from planner.schedule.timeline import (
    Problem,
    earliest_slot,
    inputs_ready,
    mean_costs,
    new_timelines,
    occupy,
    problem,
    to_schedule,
)

NO_TABLE: Final = np.zeros((0, 0), np.int64)
"""For :func:`place_in_order`: only the finish counts."""


def list_schedule(
    graph: TaskGraph, comm: CommCosts, priority: I64, *, memory_limit: Sequence[int] | None = None
) -> Schedule:
    """Ready tasks by falling priority, each on the device where it finishes first; idle slots are used.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        priority: [tasks] integers; larger goes first.
        memory_limit: bytes a device; None for no limit.

    Raises:
        InfeasibleError: if the weights do not fit.
        UsageError: if there is no device for the tasks, or a number of priorities or limits is wrong.
    """
    if len(priority) != graph.num_tasks:
        raise UsageError(f"{len(priority)} priorities", expected=f"{graph.num_tasks}, one a task")
    require_devices(graph)
    prob = problem(graph, comm)
    order = priority_order(prob.links, np.asarray(priority, np.int64))
    return place_ahead(graph, prob, order, NO_TABLE, memory_limit)


def place_ahead(
    graph: TaskGraph,
    prob: Problem,
    order: I64,
    ahead: I64,
    memory_limit: Sequence[int] | None,
    fixed: I64 | None = None,
) -> Schedule:
    """Tasks in an order, each where the sum of its finish and what lies ahead of it is least; idle slots are used.

    Args:
        graph: tasks and edges.
        prob: the same for kernels.
        order: [tasks] topological.
        ahead: [tasks, devices] to be added to the finish on a device; ``NO_TABLE`` for nothing.
        memory_limit: bytes a device; None for no limit.
        fixed: [tasks] device that a task must run on, -1 for any; whether there is room for it is not looked at.

    Raises:
        InfeasibleError: if the weights do not fit.
    """
    where = np.full(graph.num_tasks, -1, np.int64) if fixed is None else fixed
    placed, start = place_in_order(prob, memory_of(graph, memory_limit), order, where, ahead)
    if (placed < 0).any():
        placed, start = place_in_order(prob, memory_of(graph, None), order, pack(graph, memory_limit), NO_TABLE)
    return to_schedule(prob, placed, start)


def schedule_fixed(
    graph: TaskGraph, comm: CommCosts, placement: Sequence[int] | I64, *, priority: I64 | None = None
) -> Schedule:
    """Order and times for a placement that is given: ready tasks by falling bottom level, idle slots used.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        placement: [tasks] device index of each task; the user's wishes (``TaskGraph.allowed``) go first.
        priority: [tasks] larger goes first; by default the bottom level with the costs of the placement.

    Raises:
        UsageError: if the placement is not one existing device a task.
    """
    where = np.asarray(placement, np.int64)
    if where.shape != (graph.num_tasks,) or ((where < 0) | (where >= graph.num_devices)).any():
        raise UsageError(
            "the placement does not fit the graph",
            expected=f"one device of 0 to {graph.num_devices - 1} for each of {graph.num_tasks} tasks",
        )
    where = obeying(graph, where)
    prob = problem(graph, comm)
    if priority is None:
        priority = placed_bottom_levels(prob, where)
    order = priority_order(prob.links, np.asarray(priority, np.int64))
    _, start = place_in_order(prob, memory_of(graph, None), order, where, NO_TABLE)
    return to_schedule(prob, where, start)


def obeying(graph: TaskGraph, placement: I64) -> I64:
    """The placement with every task where it may run, and those that stay together where the first of them is."""
    if graph.allowed is None and graph.together is None:
        return placement
    where = placement.copy()
    allowed = np.ones((graph.num_tasks, graph.num_devices), np.bool_) if graph.allowed is None else graph.allowed
    bad = ~allowed[np.arange(graph.num_tasks), where]
    where[bad] = allowed[bad].argmax(axis=1)
    if graph.together is not None:
        for number in np.unique(graph.together[graph.together >= 0]).tolist():
            members = np.flatnonzero(graph.together == number)
            pinned = members[~allowed[members].all(axis=1)]
            where[members] = where[pinned[0] if len(pinned) else members[0]]
    return where


def one_device(graph: TaskGraph, device: int = 0) -> Schedule:
    """All tasks on one device, in their order, without a pause.

    Raises:
        UsageError: if there is no such device.
    """
    if not 0 <= device < graph.num_devices:
        raise UsageError(f"no device {device}", expected=f"0 to {graph.num_devices - 1}")
    finish = np.cumsum(graph.compute_ns[:, device])
    return Schedule(np.full(graph.num_tasks, device, np.int32), finish - graph.compute_ns[:, device], finish)


def require_devices(graph: TaskGraph) -> None:
    """Refuse a graph that has tasks but no device.

    Raises:
        UsageError: if so.
    """
    if graph.num_tasks and not graph.num_devices:
        raise UsageError("no devices to schedule on", expected="at least one")


def placed_bottom_levels(prob: Problem, where: I64) -> I64:
    """[tasks] bottom levels with the costs and delays of a placement."""
    source, target = where[prob.links.src], where[prob.links.dst]
    delay = prob.latency[source, target] + ((prob.nbytes * prob.per_mib[source, target] + 1048575) >> 20)
    delay[source == target] = 0
    return bottom_levels(prob.links, prob.compute[np.arange(len(where)), where], delay)


def mean_bottom_levels(prob: Problem) -> I64:
    """[tasks] bottom levels with mean costs and delays: ``rank_u`` of HEFT."""
    return bottom_levels(prob.links, *mean_costs(prob))


def priority_order(adjacency: Links, priority: I64) -> I64:
    """Topological order that takes, of the ready tasks, the one of highest priority; ties by number."""
    n = len(priority)
    keys = [-int(p) for p in priority]
    waiting = np.diff(adjacency.in_start).tolist()
    first, edge, dst = adjacency.out_start.tolist(), adjacency.out_edge.tolist(), adjacency.dst.tolist()
    heap = [(keys[t], t) for t in range(n) if waiting[t] == 0]
    heapq.heapify(heap)
    order = np.empty(n, np.int64)
    for position in range(n):
        _, task = heapq.heappop(heap)
        order[position] = task
        for k in range(first[task], first[task + 1]):
            consumer = dst[edge[k]]
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(heap, (keys[consumer], consumer))
    return order


@kernel
def place_in_order(prob: Problem, memory: Memory, order: I64, fixed: I64, ahead: I64) -> tuple[I64, I64]:
    """Place tasks in a topological order, each where its finish, and what lies ahead of it there, is least.

    Args:
        prob: the problem.
        memory: limits; not looked at for fixed tasks.
        order: [tasks] topological.
        fixed: [tasks] device that the task must run on, -1 for any.
        ahead: [tasks, devices] what to add to a finish; without rows: nothing.

    Returns:
        [tasks] device and [tasks] start. Stops at a task that fits no device: it and those behind it have device -1.
    """
    n, devices = prob.compute.shape
    lines = new_timelines(devices, n)
    held = empty(memory)
    placed = np.full(n, -1, np.int64)
    start, finish = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for task in order:
        best, best_start, best_finish, best_key = -1, 0, 0, 0
        for device in range(devices):
            if fixed[task] >= 0:
                if device != fixed[task]:
                    continue
            elif not fits(memory, held, task, device):
                continue
            cost = prob.compute[task, device]
            begin = earliest_slot(lines, device, inputs_ready(prob, task, device, placed, finish), cost)
            key = begin + cost
            if len(ahead) > 0:
                key += ahead[task, device]
            if best < 0 or key < best_key:
                best, best_start, best_finish, best_key = device, begin, begin + cost, key
        if best < 0:
            break
        placed[task], start[task], finish[task] = best, best_start, best_finish
        occupy(lines, best, best_start, best_finish - best_start)
        place(memory, held, task, best)
    return placed, start
