"""ETF: earliest task first.

Hwang, Chow, Anger, Lee: Scheduling precedence graphs in systems with interprocessor communication times. SIAM Journal
on Computing 18(2), 1989. Of all pairs of a ready task and a device, the pair with the earliest start goes first; of
equal ones the task with the highest static level (longest path of mean costs to an exit, without delays), then the
lower number, then the first device. No idle slot is used.

Device-ready times only grow, so a pair's earliest start only grows: a heap of each ready task's best pair finds, by
looking at those whose key is not later than the best start seen, the same pair as a search of all.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from planner.graph.paths import bottom_levels
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import require_devices
from planner.schedule.memory import Held
from planner.schedule.timeline import Problem, arrivals, mean_costs, problem, to_schedule

NEVER = np.iinfo(np.int64).max // 2


def etf(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by ETF; with limits this is Baechi's m-ETF (see ``m_etf.py``).

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        memory_limit: bytes a device; a device that a task's weights would overflow is not eligible. None for no limit.

    Raises:
        InfeasibleError: if the weights do not fit.
        UsageError: if there is no device.
    """
    require_devices(graph)
    prob = problem(graph, comm)
    return to_schedule(prob, *earliest_first(prob, Held(graph, memory_limit), static_levels(prob)))


def static_levels(prob: Problem) -> I64:
    """[tasks] longest path of mean costs to an exit, without delays."""
    task_ns, edge_ns = mean_costs(prob)
    return bottom_levels(prob.links, task_ns, np.zeros_like(edge_ns))


def earliest_first(prob: Problem, held: Held, level: I64, favourite: I64 | None = None) -> tuple[I64, I64]:
    """[tasks] device and [tasks] start.

    Args:
        prob: the problem.
        held: what is on the devices; changed.
        level: [tasks] of equal starts the higher goes first.
        favourite: [tasks] the child that should follow on the same device at once, -1 for none: such a child is ready
            for its parent's device before its other parents are done, and others wait for it (see ``m_sct.py``).

    Raises:
        InfeasibleError: if a task fits nowhere.
    """
    n, devices = prob.compute.shape
    placed, start = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    finish, free = np.zeros(n, np.int64), np.zeros(devices, np.int64)
    reserved = np.full(devices, -1, np.int64)
    waiting = np.diff(prob.links.in_start)
    arrival: dict[int, I64] = {}
    heap: list[tuple[int, int, int, int]] = []

    def best(task: int, kept: bool) -> tuple[int, int, int, int]:
        """(Start, -level, task, device); ``kept``: devices kept for favourite children are not free before those."""
        begin = np.maximum(arrival[task], free)
        begin[~held.fitting(task)] = NEVER
        if kept and favourite is not None:
            for device in np.flatnonzero((reserved >= 0) & (reserved != task)).tolist():
                begin[device] = max(begin[device], _urgent(prob, placed, finish, int(reserved[device]), device))
        device = int(np.argmin(begin))
        return int(begin[device]), -int(level[task]), task, device

    for task in np.flatnonzero(waiting == 0).tolist():
        arrival[task] = arrivals(prob, task, placed, finish)
        heapq.heappush(heap, best(task, False))
    while heap:
        # Keys are starts without reservations as they were once: never too late. All that could be first are looked at.
        chosen: tuple[int, int, int, int] | None = None
        seen = []
        while heap and (chosen is None or heap[0][:2] <= chosen[:2]):
            task = heapq.heappop(heap)[2]
            now = best(task, True)
            seen.append(best(task, False))
            if chosen is None or now < chosen:
                chosen = now
        assert chosen is not None
        begin, _, task, device = chosen
        for key in seen:
            if key[2] != task:
                heapq.heappush(heap, key)
        if begin >= NEVER:
            held.refuse()
        placed[task], start[task] = device, begin
        finish[task] = free[device] = begin + prob.compute[task, device]
        held.add(task, device)
        del arrival[task]
        if favourite is not None:
            reserved[reserved == task] = -1
            reserved[device] = favourite[task]
        out = prob.links.out_edge[prob.links.out_start[task] : prob.links.out_start[task + 1]]
        for child in prob.links.dst[out].tolist():
            waiting[child] -= 1
            if waiting[child] == 0:
                arrival[child] = arrivals(prob, child, placed, finish)
                heapq.heappush(heap, best(child, False))
    return placed, start


def _urgent(prob: Problem, placed: I64, finish: I64, child: int, device: int) -> int:
    """When a favourite child could start on the device kept for it; 0 while a parent of it is not placed yet."""
    edges = prob.links.in_edge[prob.links.in_start[child] : prob.links.in_start[child + 1]]
    if (placed[prob.links.src[edges]] < 0).any():
        return 0
    return int(arrivals(prob, child, placed, finish)[device])
