"""A genetic algorithm over task lists, with forward-backward improvement.

The design is the usual one for resource-constrained projects, of which tasks on equal processors are a case: task lists
with two-point crossover (Hartmann: A competitive genetic algorithm for resource-constrained project scheduling. Naval
Research Logistics 45, 1998), and each schedule is improved by scheduling the reversed graph in the order of falling
finishes, then the graph in the order that gave (double justification: Valls, Ballestin, Quintanilla, EJOR 165, 2005).
Ours: a list is decoded by earliest finish over devices with delays between them, idle slots used, both ways.

Where tabu search (``tabu.py``) moves one task of a critical path, this shifts whole parts of a schedule: it is the
better one where delays are small beside the work, and many paths are critical at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.jit import kernel
from planner.graph.paths import links
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.essential import essential
from planner.schedule.lists import NO_TABLE, place_in_order
from planner.schedule.memory import Memory, memory_of
from planner.schedule.random import U64, draw, seeded
from planner.schedule.timeline import Problem, problem, to_schedule

SIZE = 40
"""Lists in the population."""


def evolve(
    graph: TaskGraph,
    comm: CommCosts,
    schedules: Sequence[Schedule],
    *,
    children: int,
    target_ns: int = 0,
    seed: int = 0,
    memory_limit: Sequence[int] | None = None,
) -> Schedule:
    """A schedule that is at least as short as the shortest that is given.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        schedules: valid schedules to start from, at least one.
        children: lists to make, three schedules each.
        target_ns: stop here: a lower bound.
        seed: of the random choices.
        memory_limit: bytes a device; None for no limit.
    """
    best = min(schedules, key=lambda schedule: schedule.makespan_ns)
    if graph.num_tasks < 2 or best.makespan_ns <= target_ns:
        return best
    prob = essential(problem(graph, comm))
    orders = np.stack(
        [np.lexsort((np.arange(graph.num_tasks), s.finish_ns, s.start_ns)).astype(np.int64) for s in schedules]
    )
    placed, start, length = _evolve(
        prob, _reversed(prob), memory_of(graph, memory_limit), orders, children, target_ns, seeded(seed)
    )
    found = to_schedule(prob, placed, start)
    return found if length < best.makespan_ns else best


def _reversed(prob: Problem) -> Problem:
    """The same tasks with all edges turned round."""
    src, dst = prob.links.dst.astype(np.int32), prob.links.src.astype(np.int32)
    return prob._replace(
        links=links(len(prob.compute), src, dst),
        latency=np.ascontiguousarray(prob.latency.T),
        per_mib=np.ascontiguousarray(prob.per_mib.T),
    )


@kernel
def _evolve(
    prob: Problem, back: Problem, memory: Memory, orders: I64, children: int, target: int, state: U64
) -> tuple[I64, I64, int]:
    """([tasks] device, [tasks] start, length) of the best schedule."""
    n = len(prob.compute)
    anywhere = np.full(n, -1, np.int64)
    people, lengths = np.empty((SIZE, n), np.int64), np.full(SIZE, np.iinfo(np.int64).max, np.int64)
    best, best_placed, best_start = np.iinfo(np.int64).max, anywhere.copy(), anywhere.copy()
    for made in range(children + SIZE):
        if made < len(orders) and made < SIZE:
            order = orders[made].copy()
        elif made < SIZE:
            order = _disturbed(prob, orders[draw(state) % len(orders)], state)
        else:
            mother, father = _pick(lengths, state), _pick(lengths, state)
            order = _crossed(people[mother], people[father], state)
            _mutate(prob, order, state)
        placed, start = place_in_order(prob, memory, order, anywhere, NO_TABLE)
        if placed.min() < 0:
            if made < SIZE:
                people[made] = order
            continue
        finish = _finish(prob, placed, start)
        length = finish.max()
        for _ in range(2):
            mirrored, late = place_in_order(back, memory, _order(-finish, -start), anywhere, NO_TABLE)
            if mirrored.min() < 0:
                break
            done = _finish(back, mirrored, late)
            order = _order(-done, -late)
            again, begin = place_in_order(prob, memory, order, anywhere, NO_TABLE)
            if again.min() < 0:
                break
            shorter = _finish(prob, again, begin).max()
            if shorter >= length:
                break
            placed, start, length = again, begin, shorter
            finish = _finish(prob, placed, start)
        if length < best:
            best, best_placed, best_start = length, placed.copy(), start.copy()
            if best <= target:
                break
        slot = made if made < SIZE else _worst(lengths)
        if made < SIZE or length <= lengths[slot]:
            people[slot] = _order(start, finish)
            lengths[slot] = length
    return best_placed, best_start, best


@kernel
def _order(first: I64, second: I64) -> I64:
    """Tasks by two keys; equal ones keep their numbers' order or, of reversed keys, the opposite."""
    by_second = np.argsort(second, kind="mergesort")
    return by_second[np.argsort(first[by_second], kind="mergesort")]


@kernel
def _finish(prob: Problem, placed: I64, start: I64) -> I64:
    finish = np.empty(len(start), np.int64)
    for task in range(len(start)):
        finish[task] = start[task] + prob.compute[task, placed[task]]
    return finish


@kernel
def _pick(lengths: I64, state: U64) -> int:
    """The better of two by chance."""
    a, b = draw(state) % len(lengths), draw(state) % len(lengths)
    return a if lengths[a] <= lengths[b] else b


@kernel
def _worst(lengths: I64) -> int:
    worst = 0
    for k in range(len(lengths)):
        if lengths[k] >= lengths[worst]:
            worst = k
    return worst


@kernel
def _crossed(mother: I64, father: I64, state: U64) -> I64:
    """Two-point crossover: the middle in the father's order. Both are topological, so the child is."""
    n = len(mother)
    a, b = draw(state) % n, draw(state) % n
    low, high = min(a, b), max(a, b)
    taken = np.zeros(n, np.bool_)
    child = np.empty(n, np.int64)
    for k in range(low):
        child[k] = mother[k]
        taken[mother[k]] = True
    used = low
    for k in range(n):
        if used > high:
            break
        if not taken[father[k]]:
            child[used] = father[k]
            taken[father[k]] = True
            used += 1
    for k in range(n):
        if not taken[mother[k]]:
            child[used] = mother[k]
            used += 1
    return child


@kernel
def _mutate(prob: Problem, order: I64, state: U64) -> None:
    """Swap neighbours that no edge joins, one in twenty."""
    for k in range(len(order) - 1):
        if draw(state) % 20 == 0 and not _joined(prob, order[k], order[k + 1]):
            order[k], order[k + 1] = order[k + 1], order[k]


@kernel
def _joined(prob: Problem, task: int, other: int) -> bool:
    for i in range(prob.links.out_start[task], prob.links.out_start[task + 1]):
        if prob.links.dst[prob.links.out_edge[i]] == other:
            return True
    return False


@kernel
def _disturbed(prob: Problem, order: I64, state: U64) -> I64:
    """A list in which of the ready tasks one of the next few in the given list comes next."""
    n = len(order)
    waiting = prob.links.in_start[1:] - prob.links.in_start[:-1]
    taken = np.zeros(n, np.bool_)
    found = np.empty(n, np.int64)
    first = 0
    for position in range(n):
        while first < n and taken[order[first]]:
            first += 1
        chosen, seen = -1, 0
        for k in range(first, n):
            task = order[k]
            if not taken[task] and waiting[task] == 0:
                chosen = task
                seen += 1
                if seen == 8 or draw(state) % 2 == 0:
                    break
        found[position] = chosen
        taken[chosen] = True
        for i in range(prob.links.out_start[chosen], prob.links.out_start[chosen + 1]):
            waiting[prob.links.dst[prob.links.out_edge[i]]] -= 1
    return found
