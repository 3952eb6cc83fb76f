"""m-TOPO: fill the devices in topological order, each to an even share of the memory.

Jeon et al.: Baechi, SoCC 2020 (public code: beomyeol/baechi). Theirs: the cap of a device is the even share of what the
graph needs, plus the largest single need, and no more than what the device has; operators go to the current device in
topological order, and to the next one when the cap is reached. Ours, since that balances memory and not time: graphs
without weights are filled by time; and both fillings are made, the one with the shorter schedule is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import require_devices, schedule_fixed
from planner.schedule.memory import Held, pack


def m_topo(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by m-TOPO; arguments and errors as :func:`planner.schedule.heft.heft`."""
    require_devices(graph)
    time = graph.compute_ns.min(axis=1) if graph.num_tasks else np.zeros(0, np.int64)
    memory = graph.weight_bytes + graph.output_bytes
    found = []
    for need in (memory, time):
        placed = _fill(graph, np.asarray(need, np.int64), memory_limit)
        if placed is not None:
            found.append(schedule_fixed(graph, comm, placed))
    if not found:
        found.append(schedule_fixed(graph, comm, pack(graph, memory_limit)))
    return min(found, key=lambda schedule: schedule.makespan_ns)


def _fill(graph: TaskGraph, need: I64, memory_limit: Sequence[int] | None) -> I64 | None:
    """[tasks] devices filled one after the other; None if a task is left over."""
    held = Held(graph, memory_limit)
    cap = -(-int(need.sum()) // graph.num_devices) + int(need.max(initial=0))
    placed = np.zeros(graph.num_tasks, np.int64)
    device, used = 0, 0
    for task in range(graph.num_tasks):
        if used + int(need[task]) > cap and device + 1 < graph.num_devices:
            device, used = device + 1, 0
        fitting = np.flatnonzero(held.fitting(task))
        ahead = fitting[fitting >= device]
        if not len(fitting):
            return None
        where = int(ahead[0]) if len(ahead) else int(fitting[-1])
        if where > device:
            device, used = where, 0
        placed[task] = where
        used += int(need[task])
        held.add(task, where)
    return placed
