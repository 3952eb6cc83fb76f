"""Schedules as sequences a device, and what it takes to move one task of them: the arithmetic of ``tabu.py``.

=========  ======================================================================================  ==============
symbol     meaning                                                                                 here
=========  ======================================================================================  ==============
r(u)       head: longest path to the start of u, over data edges and device sequences              ``head``
q(u)       tail: longest path from the finish of u                                                 ``tail``
G-         the schedule without task v
r-, q-     heads and tails in G-                                                                   ``head2, tail2``
through v  max(inputs of v on d, r-(a) + w(a)) + w(v, d) + max(outputs of v, w(b) + q-(b)) for v   ``through``
           between a and b on device d
=========  ======================================================================================  ==============

A task is taken out, and put in elsewhere. Every path of the new schedule either passes v or lies in G-, and what
precedes v does not depend on it: so the larger of the length of G- and the path through v *is* the new length, not an
estimate. Feasible are the places behind the last ancestor of v on the device and before its first descendant, by paths
of G-.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.graph.jit import kernel
from planner.graph.task_graph import I64
from planner.schedule.memory import Memory, Residency, hold_all, place, take
from planner.schedule.timeline import Problem, transfer_ns

Flags = npt.NDArray[np.bool_]
NEVER = 1 << 62


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


class Sequences(NamedTuple):
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


def no_edges(num_tasks: int, num_devices: int) -> Edges:
    """Nothing outside."""
    both = np.zeros((num_tasks, num_devices), np.int64)
    return Edges(both, both, np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64))


def levels_of(prob: Problem, order: I64, placed: I64) -> tuple[I64, I64, int]:
    """([tasks] heads, [tasks] tails, length) of a schedule in a topological order."""
    return times_of(prob, no_edges(*prob.compute.shape), order, placed)


def times_of(prob: Problem, outside: Edges, order: I64, placed: I64) -> tuple[I64, I64, int]:
    """([tasks] heads, [tasks] tails, length) beside what is outside."""
    s = begin(prob, order, placed)
    length = levels(prob, outside, s)
    return s.head, s.tail, length


def begin(prob: Problem, order: I64, placed: I64) -> Sequences:
    """A schedule from a topological order, which also orders the tasks of a device, and a placement."""
    n, devices = prob.compute.shape
    none = -np.ones(n, np.int64)
    s = Sequences(
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
    chain(prob, s)
    return s


@kernel
def chain(prob: Problem, s: Sequences) -> None:
    """Sequences of the devices from the order."""
    last = np.empty(prob.compute.shape[1], np.int64)
    for device in range(len(last)):
        last[device] = -1
        s.first[device] = -1
    for task in range(len(s.order)):
        s.behind[task] = -1
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


def put_back(prob: Problem, memory: Memory, held: Residency, s: Sequences, order: I64, placed: I64) -> None:
    """Back to another schedule."""
    for column in held:
        column[:] = 0
    s.order[:], s.placed[:] = order, placed
    hold_all(memory, held, placed)
    chain(prob, s)


@kernel
def levels(prob: Problem, outside: Edges, s: Sequences) -> int:
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
def take_out(prob: Problem, outside: Edges, s: Sequences, v: int) -> int:
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
def best_place(prob: Problem, outside: Edges, s: Sequences, v: int, device: int) -> tuple[int, int]:
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
def move(prob: Problem, memory: Memory, held: Residency, s: Sequences, v: int, device: int, prior: int) -> None:
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
        take(memory, held, v, old)
        place(memory, held, v, device)
    sort_again(prob, s)


@kernel
def sort_again(prob: Problem, s: Sequences) -> None:
    """A topological order over data edges and sequences (Kahn 1962)."""
    adjacency, waiting = prob.links, s.waiting
    n = len(s.order)
    end = 0
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
