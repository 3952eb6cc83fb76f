"""Improving a schedule by tabu search with exact insertion: take a task of the critical path out, put it in elsewhere.

The neighbourhood is that of Mastrolilli and Gambardella (Effective neighbourhood functions for the flexible job shop
problem, Journal of Scheduling 3, 2000), with delays between devices, and with every feasible insertion in place of
their subset. A schedule is a sequence of tasks on each device; a task starts as soon as its inputs and its device are
there.

=============  ====================================================================================  ==============
symbol         meaning                                                                               here
=============  ====================================================================================  ==============
r(u)           head: longest path to the start of u, over data edges and device sequences            ``head``
q(u)           tail: longest path from the finish of u                                               ``tail``
G-             the schedule without task v                                                           ``head2``, ...
r-, q-         heads and tails in G-                                                                 ``head2``, ``tail2``
through v      max(inputs of v on d, r-(a) + w(a)) + w(v, d) + max(outputs of v, w(b) + q-(b)) for   ``through``
               v between a and b on device d
=============  ====================================================================================  ==============

Every path of the new schedule either passes v or lies in G-, and what precedes v does not depend on it: so the larger
of the length of G- and the path through v *is* the new length, not an estimate. Feasible are the places behind the last
ancestor of v on the device and before its first descendant, by paths of G-.

A task does not go back to a device it was moved from for a number of iterations, unless that gives a new best. When
nothing better was found for a while, the best schedule is shaken by random insertions. Work is counted in (task out,
all places tried) steps; no clock. Random numbers are a counter's (splitmix64) with the caller's seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.graph.jit import kernel
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.memory import Memory, Residency, empty, fits, memory_of, place
from planner.schedule.random import U64, draw, seeded
from planner.schedule.timeline import Problem, problem, to_schedule, transfer_ns

Flags = npt.NDArray[np.bool_]

SAMPLE = 24
"""Most tasks of the critical path that are taken out in one iteration; a random stretch of a longer path."""

TENURE = 6
"""Iterations for which a task keeps away from a device it left: this many, and a random part of as many again."""


class Edges(NamedTuple):
    """What the rest of a larger schedule asks of the tasks here; all zero for a whole graph.

    Attributes:
        release: [tasks, devices] when inputs from outside are there.
        delivery: [tasks, devices] longest path outside that begins with an output of the task.
        free: [devices] when the device is free.
        after: [devices] longest path outside that begins with the next task on the device.
    """

    release: I64
    delivery: I64
    free: I64
    after: I64


class _State(NamedTuple):
    """A schedule, and scratch space.

    Attributes:
        placed: [tasks] device.
        before: [tasks] task directly before on the device, -1 for none.
        behind: [tasks] task directly after, -1 for none.
        first: [devices] first task, -1 for none.
        cost: [tasks] on its device.
        order: [tasks] a topological order over data edges and sequences.
        position: [tasks] place in that order.
        head: [tasks] r.
        tail: [tasks] q.
        head2: [tasks] r-.
        tail2: [tasks] q-.
        ancestor: [tasks] whether a path of G- leads to an input of v.
        descendant: [tasks] whether a path of G- leads from an output of v.
        waiting: [tasks] scratch.
    """

    placed: I64
    before: I64
    behind: I64
    first: I64
    cost: I64
    order: I64
    position: I64
    head: I64
    tail: I64
    head2: I64
    tail2: I64
    ancestor: Flags
    descendant: Flags
    waiting: I64


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
    alike = devices_alike(prob, memory.limit)
    whole = no_edges(graph.num_tasks, graph.num_devices)
    placed, start, _ = search(
        prob, memory, whole, order, schedule.device.astype(np.int64), alike, steps, target_ns, seeded(seed)
    )
    found = to_schedule(prob, placed, start)
    return found if found.makespan_ns < schedule.makespan_ns else schedule


def no_edges(num_tasks: int, num_devices: int) -> Edges:
    """Nothing outside."""
    both = np.zeros((num_tasks, num_devices), np.int64)
    return Edges(both, both, np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64))


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


@kernel
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
    n, devices = prob.compute.shape
    s = _begin(prob, order, placed)
    held = empty(memory)
    for task in range(n):
        place(memory, held, task, placed[task])
    length = _levels(prob, outside, s)
    best, best_order, best_placed = length, s.order.copy(), s.placed.copy()
    barred = np.zeros((n, devices), np.int64)
    taken, turn, quiet = 0, 0, 0
    patience = 40 + 4 * n
    while taken < steps and best > target:
        turn += 1
        path = _path(prob, outside, s, length, state)
        here = max(1, min(len(path), SAMPLE))
        skip = draw(state) % (len(path) - here + 1)
        chosen, to, back = -1, -1, -1
        value, ties = np.iinfo(np.int64).max, 0
        value2 = value
        for k in range(skip, skip + here):
            task = path[k]
            rest = _take_out(prob, outside, s, task)
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
                through, behind = _best_place(prob, outside, s, task, device)
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
            _shake(prob, outside, memory, held, s, 1, state)
        else:
            barred[chosen, s.placed[chosen]] = turn + TENURE + draw(state) % (TENURE + 1 + here)
            _move(prob, memory, held, s, chosen, to, back)
        length = _levels(prob, outside, s)
        quiet += 1
        if length < best:
            best, quiet = length, 0
            best_order[:], best_placed[:] = s.order, s.placed
        elif quiet > patience:
            quiet = 0
            _reset(prob, memory, held, s, best_order, best_placed)
            _shake(prob, outside, memory, held, s, 2 + draw(state) % max(4, n // 6), state)
            length = _levels(prob, outside, s)
    _reset(prob, memory, held, s, best_order, best_placed)
    best = _levels(prob, outside, s)
    return s.placed, s.head, best


@kernel
def _begin(prob: Problem, order: I64, placed: I64) -> _State:
    n, devices = prob.compute.shape
    none = -np.ones(n, np.int64)
    s = _State(
        placed.copy(),
        none.copy(),
        none.copy(),
        -np.ones(devices, np.int64),
        np.zeros(n, np.int64),
        order.copy(),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
        np.zeros(n, np.bool_),
        np.zeros(n, np.int64),
    )
    _chain(prob, s)
    return s


@kernel
def _chain(prob: Problem, s: _State) -> None:
    """Sequences of the devices from the order."""
    last = -np.ones(prob.compute.shape[1], np.int64)
    s.first[:] = -1
    s.behind[:] = -1
    for k in range(len(s.order)):
        task = s.order[k]
        device = s.placed[task]
        s.position[task] = k
        s.cost[task] = prob.compute[task, device]
        s.before[task] = last[device]
        if last[device] >= 0:
            s.behind[last[device]] = task
        else:
            s.first[device] = task
        last[device] = task


@kernel
def _reset(prob: Problem, memory: Memory, held: Residency, s: _State, order: I64, placed: I64) -> None:
    """Back to another schedule."""
    held.tasks[:] = 0
    held.weights[:] = 0
    held.working[:] = 0
    s.order[:], s.placed[:] = order, placed
    for task in range(len(order)):
        place(memory, held, task, placed[task])
    _chain(prob, s)


@kernel
def _levels(prob: Problem, outside: Edges, s: _State) -> int:
    """Heads and tails of all tasks; returns the length."""
    n = len(s.order)
    adjacency, placed, cost, head, tail = prob.links, s.placed, s.cost, s.head, s.tail
    length = 0
    for k in range(n):
        task = s.order[k]
        s.position[task] = k
        device = placed[task]
        prior = s.before[task]
        ready = outside.free[device] if prior < 0 else head[prior] + cost[prior]
        ready = max(ready, outside.release[task, device])
        for i in range(adjacency.in_start[task], adjacency.in_start[task + 1]):
            edge = adjacency.in_edge[i]
            src = adjacency.src[edge]
            ready = max(ready, head[src] + cost[src] + transfer_ns(prob, edge, placed[src], device))
        head[task] = ready
    for k in range(n - 1, -1, -1):
        task = s.order[k]
        device = placed[task]
        other = s.behind[task]
        longest = outside.after[device] if other < 0 else cost[other] + tail[other]
        longest = max(longest, outside.delivery[task, device])
        for i in range(adjacency.out_start[task], adjacency.out_start[task + 1]):
            edge = adjacency.out_edge[i]
            dst = adjacency.dst[edge]
            longest = max(longest, transfer_ns(prob, edge, device, placed[dst]) + cost[dst] + tail[dst])
        tail[task] = longest
        length = max(length, head[task] + cost[task] + longest)
    return length


@kernel
def _take_out(prob: Problem, outside: Edges, s: _State, v: int) -> int:
    """Heads, tails, ancestors and descendants in G-; returns its length."""
    n = len(s.order)
    adjacency, placed, cost, head2, tail2 = prob.links, s.placed, s.cost, s.head2, s.tail2
    here = s.position[v]
    for k in range(here):
        task = s.order[k]
        head2[task] = s.head[task]
        s.descendant[task] = False
    for k in range(here + 1, n):
        task = s.order[k]
        device = placed[task]
        prior = s.before[task]
        if prior == v:
            prior = s.before[v]
        below = False
        if prior < 0:
            ready = outside.free[device]
        else:
            ready = head2[prior] + cost[prior]
            below = s.descendant[prior]
        ready = max(ready, outside.release[task, device])
        for i in range(adjacency.in_start[task], adjacency.in_start[task + 1]):
            edge = adjacency.in_edge[i]
            src = adjacency.src[edge]
            if src == v:
                below = True
                continue
            below = below or s.descendant[src]
            ready = max(ready, head2[src] + cost[src] + transfer_ns(prob, edge, placed[src], device))
        head2[task] = ready
        s.descendant[task] = below
    length = 0
    for k in range(n - 1, here, -1):
        task = s.order[k]
        tail2[task] = s.tail[task]
        s.ancestor[task] = False
        length = max(length, head2[task] + cost[task] + tail2[task])
    for k in range(here - 1, -1, -1):
        task = s.order[k]
        device = placed[task]
        other = s.behind[task]
        if other == v:
            other = s.behind[v]
        above = False
        if other < 0:
            longest = outside.after[device]
        else:
            longest = cost[other] + tail2[other]
            above = s.ancestor[other]
        longest = max(longest, outside.delivery[task, device])
        for i in range(adjacency.out_start[task], adjacency.out_start[task + 1]):
            edge = adjacency.out_edge[i]
            dst = adjacency.dst[edge]
            if dst == v:
                above = True
                continue
            above = above or s.ancestor[dst]
            longest = max(longest, transfer_ns(prob, edge, device, placed[dst]) + cost[dst] + tail2[dst])
        tail2[task] = longest
        s.ancestor[task] = above
        length = max(length, head2[task] + cost[task] + longest)
    return length


@kernel
def _best_place(prob: Problem, outside: Edges, s: _State, v: int, device: int) -> tuple[int, int]:
    """(Least length of a path through v, the task it then comes behind or -1) on a device; (-1, -1) without a place.

    The place where v is now does not count.
    """
    adjacency, placed, cost, head2, tail2 = prob.links, s.placed, s.cost, s.head2, s.tail2
    ready, longest = outside.release[v, device], outside.delivery[v, device]
    for i in range(adjacency.in_start[v], adjacency.in_start[v + 1]):
        edge = adjacency.in_edge[i]
        src = adjacency.src[edge]
        ready = max(ready, head2[src] + cost[src] + transfer_ns(prob, edge, placed[src], device))
    for i in range(adjacency.out_start[v], adjacency.out_start[v + 1]):
        edge = adjacency.out_edge[i]
        dst = adjacency.dst[edge]
        longest = max(longest, transfer_ns(prob, edge, device, placed[dst]) + cost[dst] + tail2[dst])
    own = prob.compute[v, device]
    best, best_behind = -1, -1
    now = s.before[v] if placed[v] == device else -2
    prior, other = -1, s.first[device]
    while True:
        if other == v:
            other = s.behind[v]
        if other >= 0 and s.ancestor[other]:
            best = -1
        elif prior != now:
            start = outside.free[device] if prior < 0 else head2[prior] + cost[prior]
            end = outside.after[device] if other < 0 else cost[other] + tail2[other]
            through = max(start, ready) + own + max(end, longest)
            if best < 0 or through < best:
                best, best_behind = through, prior
        if other < 0 or s.descendant[other]:
            return best, best_behind
        prior, other = other, s.behind[other]


@kernel
def _move(prob: Problem, memory: Memory, held: Residency, s: _State, v: int, device: int, prior: int) -> None:
    """Take a task out and put it behind another one (-1: first) on a device; makes a new topological order."""
    old = s.placed[v]
    a, b = s.before[v], s.behind[v]
    if a >= 0:
        s.behind[a] = b
    else:
        s.first[old] = b
    if b >= 0:
        s.before[b] = a
    other = s.first[device] if prior < 0 else s.behind[prior]
    s.before[v], s.behind[v] = prior, other
    if prior >= 0:
        s.behind[prior] = v
    else:
        s.first[device] = v
    if other >= 0:
        s.before[other] = v
    s.placed[v] = device
    s.cost[v] = prob.compute[v, device]
    if old != device:
        group = memory.group[v]
        held.tasks[old, group] -= 1
        if held.tasks[old, group] == 0:
            held.weights[old] -= memory.weights[group]
        place(memory, held, v, device)
    _sort(prob, s)


@kernel
def _sort(prob: Problem, s: _State) -> None:
    """A topological order over data edges and sequences (Kahn 1962), keeping close to the one there was."""
    adjacency, waiting = prob.links, s.waiting
    n = len(s.order)
    end = 0
    for k in range(n):
        task = s.position[k]  # scratch: the queue; see below
    for task in range(n):
        waiting[task] = adjacency.in_start[task + 1] - adjacency.in_start[task] + (1 if s.before[task] >= 0 else 0)
        if waiting[task] == 0:
            s.order[end] = task
            end += 1
    done = 0
    while done < end:
        task = s.order[done]
        s.position[task] = done
        done += 1
        for i in range(adjacency.out_start[task], adjacency.out_start[task + 1]):
            dst = adjacency.dst[adjacency.out_edge[i]]
            waiting[dst] -= 1
            if waiting[dst] == 0:
                s.order[end] = dst
                end += 1
        dst = s.behind[task]
        if dst >= 0:
            waiting[dst] -= 1
            if waiting[dst] == 0:
                s.order[end] = dst
                end += 1


@kernel
def _path(prob: Problem, outside: Edges, s: _State, length: int, state: U64) -> I64:
    """A critical path from its last task back: each by a random one of what it waited for."""
    n = len(s.order)
    adjacency, placed, cost, head = prob.links, s.placed, s.cost, s.head
    path, count, ties, task = np.empty(n, np.int64), 0, 0, -1
    for other in range(n):
        if head[other] + cost[other] + s.tail[other] == length:
            ends = s.behind[other] < 0 or head[other] + cost[other] < head[s.behind[other]]
            for i in range(adjacency.out_start[other], adjacency.out_start[other + 1]):
                edge = adjacency.out_edge[i]
                dst = adjacency.dst[edge]
                away = transfer_ns(prob, edge, placed[other], placed[dst])
                if away + cost[dst] + s.tail[dst] == s.tail[other]:
                    ends = False
            if ends and s.behind[other] >= 0:
                ends = cost[s.behind[other]] + s.tail[s.behind[other]] != s.tail[other]
            if ends:
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
    return path[:count]


@kernel
def _shake(
    prob: Problem, outside: Edges, memory: Memory, held: Residency, s: _State, moves: int, state: U64
) -> None:
    """Random tasks to the best place on a random device each."""
    n, devices = prob.compute.shape
    for _ in range(moves):
        _levels(prob, outside, s)
        task, device = draw(state) % n, draw(state) % devices
        if device != s.placed[task] and not fits(memory, held, task, device):
            continue
        _take_out(prob, outside, s, task)
        through, behind = _best_place(prob, outside, s, task, device)
        if through >= 0:
            _move(prob, memory, held, s, task, device, behind)
