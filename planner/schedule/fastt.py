"""FastT's placement: DPOS.

Yi et al.: Fast training of deep learning models over multiple GPUs. Middleware 2020. As recalled, its text was not to
be had: rank_u(o) = w(o) + max over successors of (c + rank_u), w the largest over the devices, c the largest over
pairs; the operators of the critical path (that of the largest ranks) go to the device with the least summed time that
has the memory, and spill over to the next one; the others, in the order of their ranks, to where they finish first,
idle slots used. Operators run by their start times.

Ours, where that is silent: of devices with equal sums the first; where the critical path's memory leaves no room for
the others, all operators go by earliest finish. Splitting (OS-DPOS) is in ``fastt_splits.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import InfeasibleError
from planner.graph.paths import bottom_levels, critical_path
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import NO_TABLE, place_ahead, priority_order, require_devices
from planner.schedule.memory import Held, device_need
from planner.schedule.timeline import Problem, problem


def fastt(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by DPOS; arguments and errors as :func:`planner.schedule.heft.heft`."""
    require_devices(graph)
    prob = problem(graph, comm)
    task_ns, edge_ns = largest_costs(prob)
    path = critical_path(prob.links, task_ns, edge_ns)
    order = priority_order(prob.links, bottom_levels(prob.links, task_ns, edge_ns))
    fixed = _path_devices(graph, path, memory_limit)
    try:
        found = place_ahead(graph, prob, order, NO_TABLE, memory_limit, fixed)
    except InfeasibleError:
        found = None
    if found is not None and (
        memory_limit is None
        or all(need <= limit for need, limit in zip(device_need(graph, found.device), memory_limit, strict=True))
    ):
        return found
    return place_ahead(graph, prob, order, NO_TABLE, memory_limit)


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
    return fixed
