"""Improving a schedule by tabu search with exact insertion: take a task of the critical path out, put it in elsewhere.

The neighbourhood is that of Mastrolilli and Gambardella (Effective neighbourhood functions for the flexible job shop
problem, Journal of Scheduling 3, 2000), with delays between devices, and with every feasible insertion in place of
their subset; its arithmetic is in ``sequences.py``.

A task does not go back to a device it was moved from for a number of iterations, unless that gives a new best. When
nothing better was found for a while, the best schedule is shaken by random insertions. Work is counted in (task out,
all places tried) steps; no clock. Random numbers are a counter's (splitmix64) with the caller's seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.jit import kernel
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.essential import essential
from planner.schedule.memory import Memory, Residency, empty, fits, hold_all, memory_of
from planner.schedule.random import U64, draw, seeded
from planner.schedule.sequences import (
    NEVER,
    Edges,
    Sequences,
    begin,
    best_place,
    levels,
    move,
    no_edges,
    put_back,
    take_out,
)
from planner.schedule.timeline import Problem, problem, to_schedule, transfer_ns

SAMPLE = 24
"""Most tasks of the critical path that are taken out in one iteration; a random stretch of a longer path."""

TENURE = 6
"""Iterations for which a task keeps away from a device it left: this many, and a random part of as many again."""


def tabu(
    graph: TaskGraph,
    comm: CommCosts,
    schedule: Schedule,
    *,
    steps: int,
    target_ns: int = 0,
    seed: int = 0,
    memory_limit: Sequence[int] | None = None,
) -> Schedule:
    """A schedule that is at least as short.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        schedule: a valid schedule of the graph.
        steps: tasks taken out, each with all its places tried: O(tasks + edges) each.
        target_ns: stop here: a lower bound.
        seed: of the random choices.
        memory_limit: bytes a device; no move overflows a device. None for no limit.
    """
    if graph.num_tasks == 0 or schedule.makespan_ns <= target_ns:
        return schedule
    prob = problem(graph, comm)
    order = np.lexsort((np.arange(graph.num_tasks), schedule.finish_ns, schedule.start_ns)).astype(np.int64)
    memory = memory_of(graph, memory_limit)
    alike = graph.allowed is None and devices_alike(prob, memory.limit)
    whole = no_edges(graph.num_tasks, graph.num_devices)
    placed, start, _ = search(
        essential(prob), memory, whole, order, schedule.device.astype(np.int64), alike, steps, target_ns, seeded(seed)
    )
    found = to_schedule(prob, placed, start)
    return found if found.makespan_ns < schedule.makespan_ns else schedule


def devices_alike(prob: Problem, limit: I64) -> bool:
    """Whether all devices and links are equal: then one idle device is as good as another."""
    count = prob.compute.shape[1]
    if count < 2:
        return True
    away = ~np.eye(count, dtype=bool)
    return bool(
        (prob.compute == prob.compute[:, :1]).all()
        and len(np.unique(prob.latency[away])) == 1
        and len(np.unique(prob.per_mib[away])) == 1
        and len(np.unique(limit)) == 1
    )


def search(
    prob: Problem,
    memory: Memory,
    outside: Edges,
    order: I64,
    placed: I64,
    alike: bool,
    steps: int,
    target: int,
    state: U64,
) -> tuple[I64, I64, int]:
    """The best schedule found: [tasks] device, [tasks] start, and its length with what is outside.

    Args:
        prob: the problem.
        memory: limits.
        outside: the rest of a larger schedule.
        order: [tasks] topological; the tasks of a device in their sequence.
        placed: [tasks] device.
        alike: whether all devices are equal.
        steps: tasks taken out.
        target: stop at this length.
        state: of the random numbers.
    """
    n = len(order)
    s = begin(prob, order, placed)
    held = empty(memory)
    hold_all(memory, held, placed)
    best = levels(prob, outside, s)
    best_order, best_placed = s.order.copy(), s.placed.copy()
    barred = np.zeros(prob.compute.shape, np.int64)
    taken = turn = 0
    # The walk is compiled; what happens between walks is not, since every kernel costs seconds when first used.
    while taken < steps and best > target:
        taken, turn, best = _walk(
            prob,
            memory,
            outside,
            held,
            s,
            barred,
            best_order,
            best_placed,
            alike,
            taken,
            steps,
            turn,
            best,
            target,
            state,
        )
        if taken < steps and best > target:
            put_back(prob, memory, held, s, best_order, best_placed)
            _shake(prob, outside, memory, held, s, 2 + draw(state) % max(4, n // 6), state)
    put_back(prob, memory, held, s, best_order, best_placed)
    best = levels(prob, outside, s)
    return s.placed, s.head, best


@kernel
def _walk(
    prob: Problem,
    memory: Memory,
    outside: Edges,
    held: Residency,
    s: Sequences,
    barred: I64,
    best_order: I64,
    best_placed: I64,
    alike: bool,
    taken: int,
    steps: int,
    turn: int,
    best: int,
    target: int,
    state: U64,
) -> tuple[int, int, int]:
    """Moves until nothing better was found for a while: (tasks taken out, turns, best length) so far."""
    n, devices = prob.compute.shape
    patience = 40 + 4 * n
    quiet = 0
    while taken < steps and best > target and quiet <= patience:
        length = levels(prob, outside, s)
        quiet += 1
        if length < best:
            best, quiet = length, 0
            for k in range(n):
                best_order[k], best_placed[k] = s.order[k], s.placed[k]
        turn += 1
        path, count = _path(prob, outside, s, length, state)
        here = max(1, min(count, SAMPLE))
        skip = draw(state) % (count - here + 1)
        chosen, to, back = -1, -1, -1
        value, value2, ties = NEVER, NEVER, 0
        for k in range(skip, skip + here):
            task = path[k]
            rest = take_out(prob, outside, s, task)
            taken += 1
            if rest > value:
                continue
            idle_seen = False
            for device in range(devices):
                if s.first[device] < 0 and alike:
                    if idle_seen:
                        continue
                    idle_seen = True
                if device != s.placed[task] and not fits(memory, held, task, device):
                    continue
                through, behind = best_place(prob, outside, s, task, device)
                if through < 0:
                    continue
                new = max(rest, through)
                if barred[task, device] > turn and new >= best:
                    continue
                if new < value or (new == value and through < value2):
                    value, value2, chosen, to, back, ties = new, through, task, device, behind, 1
                elif new == value and through == value2:
                    ties += 1
                    if draw(state) % ties == 0:
                        chosen, to, back = task, device, behind
        if chosen < 0:
            return taken, turn, best
        barred[chosen, s.placed[chosen]] = turn + TENURE + draw(state) % (TENURE + 1 + here)
        move(prob, memory, held, s, chosen, to, back)
    length = levels(prob, outside, s)
    if length < best:
        best = length
        for k in range(n):
            best_order[k], best_placed[k] = s.order[k], s.placed[k]
    return taken, turn, best


@kernel
def _path(prob: Problem, outside: Edges, s: Sequences, length: int, state: U64) -> tuple[I64, int]:
    """A critical path from its last task back: each by a random one of what it waited for."""
    n = len(s.order)
    adjacency, placed, cost, head = prob.links, s.placed, s.cost, s.head
    path, count, ties, task = np.empty(n, np.int64), 0, 0, -1
    for other in range(n):
        if head[other] + cost[other] + s.tail[other] == length:
            device = placed[other]
            rest = outside.delivery[other, device]
            if s.behind[other] < 0:
                rest = max(rest, outside.after[device])
            if s.tail[other] == rest:  # nothing here that it must wait for
                ties += 1
                if draw(state) % ties == 0:
                    task = other
    while task >= 0:
        path[count] = task
        count += 1
        cause, causes = -1, 0
        prior = s.before[task]
        if prior >= 0 and head[prior] + cost[prior] == head[task]:
            cause, causes = prior, 1
        for i in range(adjacency.in_start[task], adjacency.in_start[task + 1]):
            edge = adjacency.in_edge[i]
            src = adjacency.src[edge]
            if head[src] + cost[src] + transfer_ns(prob, edge, placed[src], placed[task]) == head[task]:
                causes += 1
                if draw(state) % causes == 0:
                    cause = src
        task = cause
    return path, count


@kernel
def _shake(
    prob: Problem, outside: Edges, memory: Memory, held: Residency, s: Sequences, moves: int, state: U64
) -> None:
    """Random tasks to the best place on a random device each."""
    n, devices = prob.compute.shape
    for _ in range(moves):
        levels(prob, outside, s)
        task, device = draw(state) % n, draw(state) % devices
        if device != s.placed[task] and not fits(memory, held, task, device):
            continue
        take_out(prob, outside, s, task)
        through, behind = best_place(prob, outside, s, task, device)
        if through >= 0:
            move(prob, memory, held, s, task, device, behind)
