"""Improving a schedule of many tasks window by window.

The tasks in the order of their starts are cut into overlapping windows. Within one, tabu search (``tabu.py``) places
and orders its tasks anew while everything before and behind it stays: what comes before gives release times for each
task and device, what comes behind the longest path that each output and each device still leads to. So the length that
the search minimises is that of the whole schedule, as far as it passes the window. After each pass the windows begin
at another place. (Large neighbourhood search: Shaw 1998; time windows are the usual choice for schedules.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.paths import links
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.memory import UNLIMITED, Memory, memory_of
from planner.schedule.random import seeded
from planner.schedule.sequences import Edges, levels_of
from planner.schedule.tabu import search
from planner.schedule.timeline import Problem, problem, to_schedule

SIZE = 160
"""Tasks in a window."""


def improve_windows(
    graph: TaskGraph,
    comm: CommCosts,
    schedule: Schedule,
    *,
    work: int,
    target_ns: int = 0,
    seed: int = 0,
    memory_limit: Sequence[int] | None = None,
    size: int = SIZE,
) -> Schedule:
    """A schedule that is at least as short.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        schedule: a valid schedule.
        work: tasks and edges that the search may visit in all.
        target_ns: stop here: a lower bound.
        seed: of the random choices.
        memory_limit: bytes a device; None for no limit.
        size: tasks in a window.
    """
    n = graph.num_tasks
    if n == 0 or schedule.makespan_ns <= target_ns:
        return schedule
    prob, memory = problem(graph, comm), memory_of(graph, memory_limit)
    alike = False  # with what is outside, no device is like another
    placed = schedule.device.astype(np.int64)
    order = np.lexsort((np.arange(n), schedule.finish_ns, schedule.start_ns)).astype(np.int64)
    head, tail, length = levels_of(prob, order, placed)
    visits = n + len(graph.edge_src)
    state = seeded(seed)
    spent, turn, idle = 0, 0, 0
    while spent < work and length > target_ns and idle < 4:
        before = length
        offset = (turn * size) // 3 % size
        for low in range(-offset, n, size):
            part = order[max(low, 0) : low + size]
            if len(part) < 2 or spent >= work or length <= target_ns:
                continue
            cost = prob.compute[part, placed[part]]
            if int((head[part] + cost + tail[part]).max()) < length:
                continue  # no longest path passes here
            sub, outside, room = _window(prob, memory, order, placed, head, tail, max(low, 0), len(part))
            inner = len(part) + len(sub.nbytes) + 1
            steps = max(200, 12 * len(part))
            found, start, _ = search(
                sub, room, outside, np.arange(len(part), dtype=np.int64), placed[part], alike, steps, target_ns, state
            )
            spent += steps * inner + 2 * visits
            placed[part] = found
            order[max(low, 0) : max(low, 0) + len(part)] = part[
                np.lexsort((np.arange(len(part)), _ends(sub, found, start), start))
            ]
            head, tail, length = levels_of(prob, order, placed)
        order = np.lexsort((np.argsort(order), head + prob.compute[np.arange(n), placed], head)).astype(np.int64)
        turn += 1
        idle = 0 if length < before else idle + 1
    found_schedule = to_schedule(prob, placed, head)
    return found_schedule if found_schedule.makespan_ns < schedule.makespan_ns else schedule


def _ends(prob: Problem, placed: I64, start: I64) -> I64:
    return start + prob.compute[np.arange(len(placed)), placed]


def _window(
    prob: Problem, memory: Memory, order: I64, placed: I64, head: I64, tail: I64, low: int, count: int
) -> tuple[Problem, Edges, Memory]:
    """The tasks at some places of the order as a problem of their own."""
    n, devices = prob.compute.shape
    part = order[low : low + count]
    number = np.full(n, -1, np.int64)
    number[part] = np.arange(count)
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    entering = _edges_of(prob.links.in_start, prob.links.in_edge, part)
    leaving = _edges_of(prob.links.out_start, prob.links.out_edge, part)
    inside = entering[number[prob.links.src[entering]] >= 0]
    inside = np.sort(inside)
    release, delivery = np.zeros((count, devices), np.int64), np.zeros((count, devices), np.int64)
    early = entering[number[prob.links.src[entering]] < 0]
    src, dst = prob.links.src[early], prob.links.dst[early]
    ready = head[src] + prob.compute[src, placed[src]]
    np.maximum.at(release, number[dst], ready[:, None] + _delays(prob, early, placed[src]))
    late = leaving[number[prob.links.dst[leaving]] < 0]
    src, dst = prob.links.src[late], prob.links.dst[late]
    rest = prob.compute[dst, placed[dst]] + tail[dst]
    np.maximum.at(delivery, number[src], rest[:, None] + _delays(prob, late, placed[dst], back=True))
    free, after = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    past, future = order[:low], order[low + count :]
    np.maximum.at(free, placed[past], head[past] + prob.compute[past, placed[past]])
    np.maximum.at(after, placed[future], prob.compute[future, placed[future]] + tail[future])
    sub = Problem(
        links(count, number[prob.links.src[inside]].astype(np.int32), number[prob.links.dst[inside]].astype(np.int32)),
        np.ascontiguousarray(prob.compute[part]),
        prob.nbytes[inside],
        prob.latency,
        prob.per_mib,
    )
    return sub, Edges(release, delivery, free, after), _room(memory, placed, part)


def _edges_of(start: I64, edge: I64, tasks: I64) -> I64:
    """Edges of some tasks, one after the other."""
    counts = start[tasks + 1] - start[tasks]
    total = int(counts.sum())
    shift = np.repeat(start[tasks] - np.cumsum(counts) + counts, counts)
    return np.asarray(edge[np.arange(total) + shift], np.int64)


def _delays(prob: Problem, edges: I64, other: I64, *, back: bool = False) -> I64:
    """[edges, devices] delay from the device of the other end to each device, or back."""
    latency, per_mib = (prob.latency.T, prob.per_mib.T) if back else (prob.latency, prob.per_mib)
    found = latency[other] + ((prob.nbytes[edges][:, None] * per_mib[other] + 1048575) >> 20)
    found[np.arange(len(other)), other] = 0
    return np.asarray(found, np.int64)


def _room(memory: Memory, placed: I64, part: I64) -> Memory:
    """What the rest of the schedule leaves of the memory; weights that it shares with the window count twice."""
    devices, count = len(memory.limit), len(part)
    allowed = memory.allowed[part] if len(memory.allowed) else memory.allowed
    if len(memory.together):
        # Who must stay together stays where it is.
        stays = memory.together[part] >= 0
        allowed = allowed.copy() if len(allowed) else np.ones((count, devices), np.bool_)
        allowed[stays] = np.arange(devices)[None, :] == placed[part][stays][:, None]
    nobody = np.zeros(0, np.int64)
    if int(memory.limit.min()) == UNLIMITED:
        none = np.zeros(count, np.int64)
        return Memory(np.zeros(1, np.int64), none, none, memory.limit, allowed, nobody)
    inner = np.zeros(len(placed), bool)
    inner[part] = True
    pairs = np.unique(np.stack([memory.group[~inner], placed[~inner]]), axis=1)
    used = np.zeros(devices, np.int64)
    np.add.at(used, pairs[1], memory.weights[pairs[0]])
    groups, group = np.unique(memory.group[part], return_inverse=True)
    weights = memory.weights[groups]
    outside = int(memory.working[~inner].max(initial=0))
    room = np.maximum(memory.limit - used, 0)
    # A device needs its weights and the largest working set: that of a task outside counts as well, wherever it runs.
    working = np.maximum(memory.working[part], outside)
    return Memory(weights, group.astype(np.int64), working, room, allowed, nobody)
