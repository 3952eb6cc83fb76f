"""DCP as published: the next task comes from all unscheduled tasks, and start times float until the end.

Kwok, Ahmad: Dynamic critical-path scheduling: an effective technique for allocating task graphs to multiprocessors.
IEEE Transactions on Parallel and Distributed Systems 7(5), 1996. Symbols as in ``ready_dcp.py``; here

===========  ==================================================================  ============================
paper        meaning                                                             here
===========  ==================================================================  ============================
AEST(i)      over data edges and the edges between neighbours on a device        ``aest[i]``
ALST(i)      likewise                                                            ``DCPL - tail[i]``
zeroed edge  both ends on one device                                             ``_delay`` is 0
slot rule    task i fits between a and b on J if max(AEST(i, J), AEST(a) + w(a)  ``through <= dcpl``
             ) + w(i) <= min(ALST(i, J) + w(i), ALST(b))
===========  ==================================================================  ============================

Differences that a fixed set of different devices asks for: an unscheduled task costs its mean over the devices, its
edges their mean over the pairs; all devices are tried, not only those of parents and children and a new one; where no
slot leaves DCPL as it is, the slot that stretches it least is taken. A slot is only considered if it closes no cycle:
the slot rule alone may put a task behind one of its descendants.

Ours: the order that comes out is decoded once more by earliest finish, and the shorter schedule is kept. Measured on
359 public instances: mean ratio to the optimum 1.084 as published, 1.057 with that.

Selection key, the least goes first: (ALST - AEST, AEST, number). Slot key: (growth of DCPL, start of the task + start
of its critical child, device index, position).

Every step visits all tasks and edges: O(V (V + E)). Meant as a reference and for graphs of up to some thousand tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.graph.jit import kernel
from planner.graph.paths import Links, bottom_levels
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import NO_TABLE, place_in_order, priority_order, require_devices
from planner.schedule.memory import Memory, empty, fits, memory_of, pack, place
from planner.schedule.timeline import Problem, mean_costs, problem, to_schedule, transfer_ns


class _State(NamedTuple):
    """The partial schedule.

    Attributes:
        placed: [tasks] device, -1 while unscheduled.
        before: [tasks] task that runs directly before on the device, -1 for none.
        behind: [tasks] task that runs directly after, -1 for none.
        first: [devices] first task, -1 for none.
        cost: [tasks] cost on the device; the mean while unscheduled.
        edge_ns: [edges] mean delay.
        delay: [edges] delay between the devices of its ends; the mean while one of them floats.
        order: [tasks] a topological order over data edges and neighbours on devices.
        aest: [tasks] earliest start.
        tail: [tasks] longest path from the start of the task to the end.
    """

    placed: I64
    before: I64
    behind: I64
    first: I64
    cost: I64
    edge_ns: I64
    delay: I64
    order: I64
    aest: I64
    tail: I64


def dcp(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by the 1996 algorithm.

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
    task_ns, edge_ns = mean_costs(prob)
    placed, start = _schedule_all(prob, memory_of(graph, memory_limit), task_ns, edge_ns)
    if (placed < 0).any():
        order = priority_order(prob.links, bottom_levels(prob.links, task_ns, edge_ns))
        where = pack(graph, memory_limit)
        placed, start = place_in_order(prob, memory_of(graph, None), order, where, NO_TABLE)
    plain = to_schedule(prob, placed, start)
    order = np.lexsort((np.arange(graph.num_tasks), plain.finish_ns, plain.start_ns)).astype(np.int64)
    anywhere = np.full(graph.num_tasks, -1, np.int64)
    placed, start = place_in_order(prob, memory_of(graph, memory_limit), order, anywhere, NO_TABLE)
    if (placed < 0).any():
        return plain
    return min(plain, to_schedule(prob, placed, start), key=lambda schedule: schedule.makespan_ns)


@kernel
def _schedule_all(prob: Problem, memory: Memory, task_ns: I64, edge_ns: I64) -> tuple[I64, I64]:
    """[tasks] device (some -1 if a task fits nowhere) and [tasks] start."""
    n, devices = prob.compute.shape
    none = -np.ones(n, np.int64)
    state = _State(
        none.copy(),
        none.copy(),
        none.copy(),
        -np.ones(devices, np.int64),
        task_ns.copy(),
        edge_ns,
        edge_ns.copy(),
        np.arange(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
    )
    held = empty(memory)
    for _ in range(n):
        _levels(prob, state)
        task = _next_task(state)
        above, below = _relatives(prob, state, task)
        dcpl = (state.aest + state.tail).max()
        child = _critical_child(prob, state, task)
        best, best_growth, best_sum, best_before = -1, 0, 0, -1
        for device in range(devices):
            if not fits(memory, held, task, device):
                continue
            begin, through, previous = _slot(prob, state, above, below, task, device, dcpl)
            growth = max(through - dcpl, 0)
            both = begin + _child_start(prob, state, child, task, device, begin + prob.compute[task, device])
            if best < 0 or (growth, both) < (best_growth, best_sum):
                best, best_growth, best_sum, best_before = device, growth, both, previous
        if best < 0:
            break
        place(memory, held, task, best)
        _insert(prob, state, task, best, best_before)
    _levels(prob, state)
    return state.placed, state.aest


@kernel
def _delay(prob: Problem, state: _State, edge: int, src_device: int, dst_device: int) -> int:
    """Delay of an edge: between the devices of its ends, the mean while one end floats (device -1)."""
    if src_device < 0 or dst_device < 0:
        mean: int = state.edge_ns[edge]
        return mean
    return transfer_ns(prob, edge, src_device, dst_device)


@kernel
def _arrival(prob: Problem, state: _State, task: int, device: int) -> int:
    """AEST of a task by its data edges alone, if it ran on ``device`` (-1: floating)."""
    ready = 0
    for k in range(prob.links.in_start[task], prob.links.in_start[task + 1]):
        edge = prob.links.in_edge[k]
        src = prob.links.src[edge]
        ready = max(ready, state.aest[src] + state.cost[src] + _delay(prob, state, edge, state.placed[src], device))
    return ready


@kernel
def _remaining(prob: Problem, state: _State, task: int, device: int) -> int:
    """Longest path from a task's finish to the end by its data edges alone, if it ran on ``device``."""
    rest = 0
    for k in range(prob.links.out_start[task], prob.links.out_start[task + 1]):
        edge = prob.links.out_edge[k]
        dst = prob.links.dst[edge]
        rest = max(rest, _delay(prob, state, edge, device, state.placed[dst]) + state.tail[dst])
    return rest


@kernel
def _levels(prob: Problem, state: _State) -> None:
    """Recompute ``aest`` and ``tail``. The innermost loops of the algorithm: no calls, arrays as locals."""
    order, cost, delay, aest, tail = state.order, state.cost, state.delay, state.aest, state.tail
    src, in_start, in_edge, before = prob.links.src, prob.links.in_start, prob.links.in_edge, state.before
    dst, out_start, out_edge, behind = prob.links.dst, prob.links.out_start, prob.links.out_edge, state.behind
    for position in range(len(order)):
        task = order[position]
        previous = before[task]
        ready = aest[previous] + cost[previous] if previous >= 0 else 0
        for k in range(in_start[task], in_start[task + 1]):
            edge = in_edge[k]
            ready = max(ready, aest[src[edge]] + cost[src[edge]] + delay[edge])
        aest[task] = ready
    for position in range(len(order) - 1, -1, -1):
        task = order[position]
        rest = tail[behind[task]] if behind[task] >= 0 else 0
        for k in range(out_start[task], out_start[task + 1]):
            edge = out_edge[k]
            rest = max(rest, delay[edge] + tail[dst[edge]])
        tail[task] = cost[task] + rest


@kernel
def _next_task(state: _State) -> int:
    """The unscheduled task with the least (ALST - AEST, AEST, number)."""
    best = -1
    for task in range(len(state.placed)):
        if state.placed[task] >= 0:
            continue
        mine = (-state.aest[task] - state.tail[task], state.aest[task])
        if best < 0 or mine < (-state.aest[best] - state.tail[best], state.aest[best]):
            best = task
    return best


@kernel
def _critical_child(prob: Problem, state: _State, task: int) -> int:
    """The child with the least (ALST - AEST, AEST, number), -1 without children."""
    best = -1
    for k in range(prob.links.out_start[task], prob.links.out_start[task + 1]):
        child = prob.links.dst[prob.links.out_edge[k]]
        mine = (-state.aest[child] - state.tail[child], state.aest[child], child)
        if best < 0 or mine < (-state.aest[best] - state.tail[best], state.aest[best], best):
            best = child
    return best


@kernel
def _relatives(prob: Problem, state: _State, task: int) -> tuple[I64, I64]:
    """[tasks] 1 for each task above (below) a task, over data edges and neighbours on devices."""
    order, before, behind = state.order, state.before, state.behind
    src, in_start, in_edge = prob.links.src, prob.links.in_start, prob.links.in_edge
    dst, out_start, out_edge = prob.links.dst, prob.links.out_start, prob.links.out_edge
    above, below = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    above[task], below[task] = 1, 1
    for position in range(len(order) - 1, -1, -1):
        other = order[position]
        if above[other]:
            for k in range(in_start[other], in_start[other + 1]):
                above[src[in_edge[k]]] = 1
            if before[other] >= 0:
                above[before[other]] = 1
    for position in range(len(order)):
        other = order[position]
        if below[other]:
            for k in range(out_start[other], out_start[other + 1]):
                below[dst[out_edge[k]]] = 1
            if behind[other] >= 0:
                below[behind[other]] = 1
    return above, below


@kernel
def _slot(
    prob: Problem, state: _State, above: I64, below: I64, task: int, device: int, dcpl: int
) -> tuple[int, int, int]:
    """(Start, longest path through the task, task before it) of the first slot that leaves DCPL, else of the best."""
    cost = prob.compute[task, device]
    ready, rest = _arrival(prob, state, task, device), _remaining(prob, state, task, device)
    best, best_through, best_before = -1, 0, -1
    previous, following = -1, state.first[device]
    while True:
        if following < 0 or not above[following]:
            begin = ready
            if previous >= 0:
                begin = max(begin, state.aest[previous] + state.cost[previous])
            behind = state.tail[following] if following >= 0 else 0
            through = begin + cost + max(rest, behind)
            if best < 0 or through < best_through:
                best, best_through, best_before = begin, through, previous
            if through <= dcpl:
                break
        if following < 0 or below[following]:
            break
        previous, following = following, state.behind[following]
    return best, best_through, best_before


@kernel
def _child_start(prob: Problem, state: _State, child: int, task: int, device: int, done: int) -> int:
    """Start of the critical child, there or where it is already, if the task finishes at ``done`` on ``device``."""
    if child < 0:
        return done
    where = state.placed[child] if state.placed[child] >= 0 else device
    ready = done
    for k in range(prob.links.in_start[child], prob.links.in_start[child + 1]):
        edge = prob.links.in_edge[k]
        src = prob.links.src[edge]
        if src == task:
            ready = max(ready, done + transfer_ns(prob, edge, device, where))
        else:
            delay = _delay(prob, state, edge, state.placed[src], where)
            ready = max(ready, state.aest[src] + state.cost[src] + delay)
    return ready


@kernel
def _insert(prob: Problem, state: _State, task: int, device: int, previous: int) -> None:
    """Put a task behind ``previous`` on a device (first if -1), with its cost and the delays of its edges."""
    following = state.behind[previous] if previous >= 0 else state.first[device]
    state.placed[task], state.cost[task] = device, prob.compute[task, device]
    state.before[task], state.behind[task] = previous, following
    if previous >= 0:
        state.behind[previous] = task
    else:
        state.first[device] = task
    if following >= 0:
        state.before[following] = task
    for k in range(prob.links.in_start[task], prob.links.in_start[task + 1]):
        edge = prob.links.in_edge[k]
        state.delay[edge] = _delay(prob, state, edge, state.placed[prob.links.src[edge]], device)
    for k in range(prob.links.out_start[task], prob.links.out_start[task + 1]):
        edge = prob.links.out_edge[k]
        state.delay[edge] = _delay(prob, state, edge, device, state.placed[prob.links.dst[edge]])
    _sort(prob.links, state.before, state.behind, state.order)


@kernel
def _sort(adjacency: Links, before: I64, behind: I64, order: I64) -> None:
    """Make ``order`` topological over data edges and neighbours on devices (Kahn 1962)."""
    dst, out_start, out_edge = adjacency.dst, adjacency.out_start, adjacency.out_edge
    waiting = adjacency.in_start[1:] - adjacency.in_start[:-1]
    used = 0
    for task in range(len(order)):
        if before[task] >= 0:
            waiting[task] += 1
        if waiting[task] == 0:
            order[used] = task
            used += 1
    for position in range(len(order)):
        task = order[position]
        for k in range(out_start[task], out_start[task + 1]):
            other = dst[out_edge[k]]
            waiting[other] -= 1
            if waiting[other] == 0:
                order[used] = other
                used += 1
        other = behind[task]
        if other >= 0:
            waiting[other] -= 1
            if waiting[other] == 0:
                order[used] = other
                used += 1
