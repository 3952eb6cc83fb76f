"""FastT's placement: DPOS.

Yi et al.: Fast training of deep learning models over multiple GPUs. Middleware 2020. As recalled, its text was not to
be had: rank_u(o) = w(o) + max over successors of (c + rank_u), w the largest over the devices, c the largest over
pairs; the operators of the critical path (that of the largest ranks) go to the device with the least summed time that
has the memory, and spill over to the next one; the others, in the order of their ranks, to where they finish first,
idle slots used. Operators run by their start times.

Ours, where that is silent: of devices with equal sums the first; where the critical path's memory leaves no room for
the others, all operators go by earliest finish. Splitting (OS-DPOS) is in ``fastt_drafts.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.paths import bottom_levels, critical_path
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import NO_TABLE, place_ahead, place_in_order, priority_order, require_devices
from planner.schedule.memory import Held, device_need, memory_of
from planner.schedule.timeline import Problem, problem, to_schedule


def fastt(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by DPOS; arguments and errors as :func:`planner.schedule.heft.heft`."""
    require_devices(graph)
    prob = problem(graph, comm)
    task_ns, edge_ns = largest_costs(prob)
    path = critical_path(prob.links, task_ns, edge_ns)
    order = priority_order(prob.links, bottom_levels(prob.links, task_ns, edge_ns))
    fixed = _path_devices(graph, path, memory_limit)
    placed, start = place_in_order(prob, memory_of(graph, memory_limit), order, fixed, NO_TABLE)
    if (placed >= 0).all() and _fits(graph, placed, memory_limit):
        return to_schedule(prob, placed, start)
    return place_ahead(graph, prob, order, NO_TABLE, memory_limit)


def _fits(graph: TaskGraph, placed: I64, memory_limit: Sequence[int] | None) -> bool:
    """Whether a placement keeps the limits: tasks of the path were put down without looking."""
    if memory_limit is None:
        return True
    need = device_need(graph, placed.tolist())
    return all(used <= limit for used, limit in zip(need, memory_limit, strict=True))


def largest_costs(prob: Problem) -> tuple[I64, I64]:
    """([tasks] largest cost over the devices, [edges] largest delay over pairs of devices)."""
    if not prob.compute.size:
        return np.zeros(len(prob.compute), np.int64), np.zeros(len(prob.nbytes), np.int64)
    delay = np.zeros(len(prob.nbytes), np.int64)
    pairs = {(int(a), int(b)) for a, b in zip(prob.latency.ravel(), prob.per_mib.ravel(), strict=True)}
    for latency, per_mib in sorted(pairs):
        np.maximum(delay, latency + ((prob.nbytes * per_mib + 1048575) >> 20), out=delay)
    return prob.compute.max(axis=1), delay


def _path_devices(graph: TaskGraph, path: Sequence[int], memory_limit: Sequence[int] | None) -> I64:
    """[tasks] device of the tasks of the path, -1 for the others."""
    fixed = np.full(graph.num_tasks, -1, np.int64)
    if not path:
        return fixed
    total = graph.compute_ns[list(path)].sum(axis=0)
    ranked = sorted(range(graph.num_devices), key=lambda device: (int(total[device]), device))
    held = Held(graph, memory_limit)
    current = 0
    for task in path:
        fitting = held.fitting(task)
        while current < len(ranked) and not fitting[ranked[current]]:
            current += 1
        if current == len(ranked):
            return np.full(graph.num_tasks, -1, np.int64)
        fixed[task] = ranked[current]
        held.add(task, ranked[current])
    if graph.together is not None:
        # Who must stay with a task of the path is there before others could lead it elsewhere.
        for task in path:
            if graph.together[task] >= 0:
                fixed[graph.together == graph.together[task]] = fixed[task]
    return fixed
