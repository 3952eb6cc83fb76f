"""Beam search over partial schedules: device by device in order of time, the most promising states stay.

A state is a schedule of some tasks. The device that is free first takes the next task; of all ways to go on, from all
states, the ``width`` with the least cost stay. Beam search goes back to Lowerre (The Harpy speech recognition system,
1976), for schedules to Ow and Morton (Filtered beam search in scheduling. International Journal of Production Research
26, 1988). Ours is the cost:

* ``lost``, time in which devices have had nothing to do, or a task not on its fastest device: a schedule that loses
  nothing is optimal;
* ``late``, by how much the longest path through what is scheduled exceeds the target, counted once a device;
* ``waits``, the logarithm of how long each task's inputs have lain there: where delays are long, a task is best taken
  when they arrive, and a schedule in which every task is has lost nothing;
* ``level``, the length of the path from each task to an exit, with half the delays: urgent tasks go first.

What the last two are worth against the first is a :class:`Taste`; which one is best depends on delays and size, so
several are tried. States with the same tasks and the same free times count as one. No idle slot is used.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.graph.jit import kernel
from planner.graph.paths import bottom_levels
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.essential import essential
from planner.schedule.lists import require_devices
from planner.schedule.timeline import Problem, inputs_ready, mean_costs, problem, to_schedule

BRANCHES: Final = 4
"""Ways to go on that are kept of each state, at most."""


class Taste(NamedTuple):
    """What counts beside lost time, in sixteenths of a hundredth of a mean task.

    Attributes:
        wait: for every doubling of the time that a task's inputs have lain there.
        level: taken off for every mean task on the path from a task to an exit.
    """

    wait: int
    level: int


class _States(NamedTuple):
    """Two generations of states; the first index tells which.

    Attributes:
        placed: [2, states, tasks] device; -1 while not scheduled.
        finish: [2, states, tasks] ns.
        waiting: [2, states, tasks] producers that are not scheduled yet.
        ready: [2, states, tasks] tasks whose producers are all scheduled, in the order in which they became so.
        num_ready: [2, states].
        free: [2, states, devices] ns.
        totals: [2, states, 4] lost, late, other costs, and what identifies the set of scheduled tasks.
    """

    placed: npt.NDArray[Any]
    finish: I64
    waiting: npt.NDArray[Any]
    ready: npt.NDArray[Any]
    num_ready: I64
    free: I64
    totals: I64


class _Children(NamedTuple):
    """Ways to go on from all states of a generation.

    Attributes:
        of: [children, 4] state, task, device, start.
        totals: [children, 4] as of the state that comes of it.
        cost: [children].
        mark: [children] equal for equal states.
    """

    of: I64
    totals: I64
    cost: I64
    mark: I64


class _Costs(NamedTuple):
    """What states are judged by.

    Attributes:
        least: [tasks] cost on the fastest device.
        tail: [tasks] longest path from the task's start to an exit, by least costs, without delays.
        level: [tasks] to be taken off.
        identity: [tasks] random bits.
        mean: of the tasks, ns.
        wait: see :class:`Taste`.
        target: ns.
    """

    least: I64
    tail: I64
    level: I64
    identity: I64
    mean: int
    wait: int
    target: int


def beam(graph: TaskGraph, comm: CommCosts, *, taste: Taste, width: int, target_ns: int) -> Schedule:
    """The best schedule of the last generation.

    Args:
        graph: tasks and edges; memory and wishes are not looked at.
        comm: transfer costs.
        taste: what counts beside lost time.
        width: states that are kept.
        target_ns: a lower bound of the makespan.

    Raises:
        UsageError: if there is no device.
    """
    require_devices(graph)
    prob = essential(problem(graph, comm))
    n = graph.num_tasks
    if not n:
        return to_schedule(prob, np.zeros(0, np.int64), np.zeros(0, np.int64))
    least = prob.compute.min(axis=1)
    mean = max(int(least.sum()) // n, 1)
    task_ns, edge_ns = mean_costs(prob)
    level = bottom_levels(prob.links, task_ns, edge_ns // 2)
    costs = _Costs(
        least,
        bottom_levels(prob.links, least, np.zeros_like(edge_ns)),
        level * taste.level // mean,
        _identities(n),
        mean,
        taste.wait,
        target_ns,
    )
    placed, start = _search(prob, costs, width, BRANCHES)
    return to_schedule(prob, placed, start)


def _identities(count: int) -> I64:
    """[count] bits that look random, the same everywhere (splitmix64; Steele, Lea, Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        bits = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (bits ^ (bits >> np.uint64(31))).view(np.int64)


@kernel
def _search(prob: Problem, costs: _Costs, width: int, branches: int) -> tuple[I64, I64]:
    """[tasks] device and [tasks] start of the shortest schedule found."""
    n, devices = prob.compute.shape
    states = _States(
        np.full((2, width, n), -1, np.int16),
        np.zeros((2, width, n), np.int64),
        np.zeros((2, width, n), np.int32),
        np.zeros((2, width, n), np.int32),
        np.zeros((2, width), np.int64),
        np.zeros((2, width, devices), np.int64),
        np.zeros((2, width, 4), np.int64),
    )
    most = width * branches
    children = _Children(
        np.zeros((most, 4), np.int64), np.zeros((most, 4), np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    )
    for task in range(n):
        states.waiting[0, 0, task] = prob.links.in_start[task + 1] - prob.links.in_start[task]
        if states.waiting[0, 0, task] == 0:
            states.ready[0, 0, states.num_ready[0, 0]] = task
            states.num_ready[0, 0] += 1
    slots = 1
    while slots < 2 * most:
        slots *= 2
    seen = np.zeros(slots, np.int64)
    best = np.zeros((branches, 4), np.int64)
    now, count = 0, 1
    for _ in range(n):
        made = 0
        for state in range(count):
            made = _go_on(prob, costs, states, now, state, children, made, best)
        order = np.argsort(children.cost[:made], kind="mergesort")
        seen[:] = 0
        kept = 0
        for child in order:
            if kept < width and _is_new(seen, children.mark[child]):
                _adopt(prob, states, now, children, child, kept)
                kept += 1
        now, count = 1 - now, kept
    chosen = 0
    for state in range(count):
        if states.free[now, state].max() < states.free[now, chosen].max():
            chosen = state
    placed, start = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for task in range(n):
        placed[task] = states.placed[now, chosen, task]
        start[task] = states.finish[now, chosen, task] - prob.compute[task, placed[task]]
    return placed, start


@kernel
def _go_on(
    prob: Problem, costs: _Costs, states: _States, now: int, state: int, children: _Children, made: int, best: I64
) -> int:
    """Add the cheapest ways to go on from a state; returns how many children there are now.

    ``best`` is room for them: [branches, 4] cost, task, start, inputs there.
    """
    devices = prob.compute.shape[1]
    free, totals = states.free[now, state], states.totals[now, state]
    device = 0
    for other in range(1, devices):
        if free[other] < free[device]:
            device = other
    begin, found = free[device], 0
    for k in range(states.num_ready[now, state]):
        task = states.ready[now, state, k]
        there = inputs_ready(prob, task, device, states.placed[now, state], states.finish[now, state])
        start = max(begin, there)
        lost = start - begin + prob.compute[task, device] - costs.least[task]
        cost = lost * 1600 // costs.mean + ((costs.wait * _log(costs, start - there)) >> 4) - costs.level[task]
        if found < len(best):
            found += 1
        elif cost >= best[found - 1, 0]:
            continue
        place = found - 1
        while place > 0 and best[place - 1, 0] > cost:
            best[place] = best[place - 1]
            place -= 1
        best[place, 0], best[place, 1], best[place, 2], best[place, 3] = cost, task, start, there
    for k in range(found):
        task, start, there = best[k, 1], best[k, 2], best[k, 3]
        finish = start + prob.compute[task, device]
        lost = totals[0] + finish - begin - costs.least[task]
        late = max(totals[1], finish - costs.least[task] + costs.tail[task] - costs.target)
        other_costs = totals[2] + ((costs.wait * _log(costs, start - there)) >> 4) - costs.level[task]
        identity = totals[3] ^ costs.identity[task]
        mark = identity
        for other in range(devices):
            time = finish if other == device else free[other]
            mixed = (time + 1) * (time ^ 0x5851F42D4C957F2D)
            mark += mixed ^ (mixed >> 29)
        children.of[made, 0], children.of[made, 1] = state, task
        children.of[made, 2], children.of[made, 3] = device, start
        children.totals[made, 0], children.totals[made, 1] = lost, late
        children.totals[made, 2], children.totals[made, 3] = other_costs, identity
        children.cost[made] = (lost + devices * late) * 1600 // costs.mean + other_costs
        children.mark[made] = mark | 1  # 0 is an empty slot
        made += 1
    return made


@kernel
def _log(costs: _Costs, wait: int) -> int:
    """Sixteen times the binary logarithm of 1 + a time in hundredths of a mean task, straight between powers."""
    value = 1 + wait * 100 // costs.mean
    whole = 0
    while value >> (whole + 1):
        whole += 1
    return 16 * whole + ((value << 4) >> whole) - 16


@kernel
def _is_new(seen: I64, mark: int) -> bool:
    """Whether a mark was not seen before; it is from now on."""
    slot = (mark ^ (mark >> 32)) & (len(seen) - 1)
    while seen[slot] != 0:
        if seen[slot] == mark:
            return False
        slot = (slot + 1) & (len(seen) - 1)
    seen[slot] = mark
    return True


@kernel
def _adopt(prob: Problem, states: _States, now: int, children: _Children, child: int, place: int) -> None:
    """A child becomes a state of the next generation."""
    then = 1 - now
    state, task, device, start = children.of[child]
    states.placed[then, place] = states.placed[now, state]
    states.finish[then, place] = states.finish[now, state]
    states.waiting[then, place] = states.waiting[now, state]
    states.free[then, place] = states.free[now, state]
    states.totals[then, place] = children.totals[child]
    finish = start + prob.compute[task, device]
    states.placed[then, place, task] = device
    states.finish[then, place, task] = states.free[then, place, device] = finish
    count = 0
    for k in range(states.num_ready[now, state]):
        if states.ready[now, state, k] != task:
            states.ready[then, place, count] = states.ready[now, state, k]
            count += 1
    for k in range(prob.links.out_start[task], prob.links.out_start[task + 1]):
        consumer = prob.links.dst[prob.links.out_edge[k]]
        states.waiting[then, place, consumer] -= 1
        if states.waiting[then, place, consumer] == 0:
            states.ready[then, place, count] = consumer
            count += 1
    states.num_ready[then, place] = count
