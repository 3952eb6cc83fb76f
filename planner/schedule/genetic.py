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

import random
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.graph.paths import links
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.essential import essential
from planner.schedule.lists import NO_TABLE, place_in_order
from planner.schedule.memory import Memory, memory_of
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
        children: lists to make in all, up to five schedules each.
        target_ns: stop here: a lower bound.
        seed: of the random choices.
        memory_limit: bytes a device; None for no limit.
    """
    best = min(schedules, key=lambda schedule: schedule.makespan_ns)
    if graph.num_tasks < 2 or best.makespan_ns <= target_ns:
        return best
    prob = essential(problem(graph, comm))
    orders = [np.lexsort((np.arange(graph.num_tasks), s.finish_ns, s.start_ns)).tolist() for s in schedules]
    found = _evolve(_Lists(prob, memory_of(graph, memory_limit), seed), orders, children, target_ns)
    if found is None or found.length >= best.makespan_ns:
        return best
    return to_schedule(prob, found.placed, found.start)


def _reversed(prob: Problem) -> Problem:
    """The same tasks with all edges turned round."""
    src, dst = prob.links.dst.astype(np.int32), prob.links.src.astype(np.int32)
    return prob._replace(
        links=links(len(prob.compute), src, dst),
        latency=np.ascontiguousarray(prob.latency.T),
        per_mib=np.ascontiguousarray(prob.per_mib.T),
    )


class _Lists:
    """Decodes and varies task lists of one problem."""

    def __init__(self, prob: Problem, memory: Memory, seed: int) -> None:
        self._prob, self._back, self._memory = prob, _reversed(prob), memory
        # Of tasks without any length, numbers tell which comes first: rising forward, falling backward.
        self._number = np.arange(len(prob.compute))
        self._anywhere = np.full(len(prob.compute), -1, np.int64)
        self._random = random.Random(seed)
        edges = zip(prob.links.src.tolist(), prob.links.dst.tolist(), strict=True)
        self._joined = set(edges)
        self._after: list[list[int]] = [[] for _ in range(len(prob.compute))]
        for src, dst in sorted(self._joined):
            self._after[src].append(dst)

    def decode(self, order: I64) -> _Person | None:
        """A list's schedule, improved by scheduling backward and forward; None if the memory does not suffice."""
        person = self._forward(order)
        for _ in range(2):
            if person is None:
                return None
            placed, start = place_in_order(
                self._back,
                self._memory,
                np.lexsort((-self._number, -person.start, -person.finish)),
                self._anywhere,
                NO_TABLE,
            )
            if placed.min() < 0:
                return person
            finish = start + self._back.compute[np.arange(len(start)), placed]
            better = self._forward(np.lexsort((self._number, -start, -finish)))
            if better is None or better.length >= person.length:
                return person
            person = better
        return person

    def _forward(self, order: I64) -> _Person | None:
        placed, start = place_in_order(self._prob, self._memory, order, self._anywhere, NO_TABLE)
        if placed.min() < 0:
            return None
        finish = start + self._prob.compute[np.arange(len(start)), placed]
        return _Person(placed, start, finish, int(finish.max()))

    def pick(self, people: list[_Person]) -> list[int]:
        """The list of the better of two by chance."""
        a, b = self._random.randrange(len(people)), self._random.randrange(len(people))
        return people[a if people[a].length <= people[b].length else b].order

    def crossed(self, mother: list[int], father: list[int]) -> list[int]:
        """Two-point crossover: the middle in the father's order. Both are topological, so the child is.

        Then neighbours that no edge joins are swapped, one in twenty.
        """
        n = len(mother)
        low, high = sorted((self._random.randrange(n), self._random.randrange(n)))
        child = mother[:low]
        taken = set(child)
        middle = [task for task in father if task not in taken][: high - low]
        taken.update(middle)
        child += middle
        child += [task for task in mother if task not in taken]
        for k in range(n - 1):
            if self._random.random() < 0.05 and (child[k], child[k + 1]) not in self._joined:
                child[k], child[k + 1] = child[k + 1], child[k]
        return child

    def disturbed(self, order: list[int]) -> list[int]:
        """A list in which of the ready tasks one of the next few in the given list comes next."""
        waiting = np.diff(self._prob.links.in_start).tolist()
        rank = {task: position for position, task in enumerate(order)}
        ready = sorted((task for task in order if not waiting[task]), key=rank.__getitem__)
        found = []
        while ready:
            place = 0
            while place + 1 < min(len(ready), 8) and self._random.random() < 0.5:
                place += 1
            task = ready.pop(place)
            found.append(task)
            for other in self._after[task]:
                waiting[other] -= 1
                if not waiting[other]:
                    insort(ready, other, key=rank.__getitem__)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Person:
    """A schedule, and the list that stands for it."""

    placed: I64
    start: I64
    finish: I64
    length: int

    @property
    def order(self) -> list[int]:
        """Tasks by start, then by finish, then by number: topological."""
        found: list[int] = np.lexsort((np.arange(len(self.start)), self.finish, self.start)).tolist()
        return found


def _evolve(lists: _Lists, orders: list[list[int]], children: int, target: int) -> _Person | None:
    """The best schedule."""
    people: list[_Person] = []
    best: _Person | None = None
    for made in range(max(children, len(orders))):
        if made < len(orders):
            order = orders[made]
        elif len(people) < SIZE:
            order = lists.disturbed(orders[made % len(orders)])
        else:
            order = lists.crossed(lists.pick(people), lists.pick(people))
        person = lists.decode(np.array(order, np.int64))
        if person is None:
            if made >= SIZE and not people:
                break  # the memory is too short for lists
            continue
        if best is None or person.length < best.length:
            best = person
            if best.length <= target:
                break
        if len(people) < SIZE:
            people.append(person)
        else:
            worst = max(range(SIZE), key=lambda k: (people[k].length, k))
            if person.length <= people[worst].length:
                people[worst] = person
    return best
