"""Pipeline stages: contiguous cuts of the topological order, found by dynamic programming.

The classical chain partition problem (e.g. Bokhari: Partitioning problems in parallel, pipelined and distributed
computing. IEEE Transactions on Computers 37(1), 1988), with costs of different devices and of what crosses a cut: the
longest stage, with what it receives, is as short as possible. PipeDream and GPipe partition alike. Stages go to the
devices in their order; every number of stages is tried, and the shortest schedule is kept. With micro-batches (on
models) the stages overlap, see ``pipeline_drafts.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import obeying, require_devices, schedule_fixed
from planner.schedule.memory import device_need, pack

MOST_CUTS = 1000
"""Cuts that are looked at: of longer graphs every k-th place only."""


def pipeline(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule stages; arguments and errors as :func:`planner.schedule.heft.heft`."""
    require_devices(graph)
    found: Schedule | None = None
    for count in range(1, graph.num_devices + 1):
        stage = obeying(graph, stages(graph, comm, count))
        if memory_limit is not None and any(
            need > limit for need, limit in zip(device_need(graph, stage.tolist()), memory_limit, strict=True)
        ):
            continue
        schedule = schedule_fixed(graph, comm, stage)
        if found is None or schedule.makespan_ns < found.makespan_ns:
            found = schedule
    return schedule_fixed(graph, comm, pack(graph, memory_limit)) if found is None else found


def stages(graph: TaskGraph, comm: CommCosts, count: int) -> I64:
    """[tasks] stage of each task, that is its device.

    Args:
        graph: tasks in topological order.
        comm: transfer costs.
        count: most stages; at most one a device.
    """
    n = graph.num_tasks
    step = max(1, n // MOST_CUTS)
    cuts = np.unique(np.append(np.arange(0, n, step), n)) if n else np.zeros(1, np.int64)
    work = np.zeros((n + 1, graph.num_devices), np.int64)
    np.cumsum(graph.compute_ns, axis=0, out=work[1:])
    work = work[cuts]
    crossing = crossing_bytes(graph)[cuts]
    least = work[:, 0].copy()
    came_from: list[I64] = []
    for device in range(1, count):
        receive = comm.latency_ns[device - 1, device] + crossing * comm.ns_per_mib[device - 1, device] // 2**20
        best = np.empty_like(least)
        source = np.zeros(len(cuts), np.int64)
        for end in range(len(cuts)):
            own = work[end, device] - work[: end + 1, device] + receive[: end + 1]
            own[end] = 0  # an empty stage receives nothing
            longest = np.maximum(least[: end + 1], own)
            source[end] = int(np.argmin(longest))
            best[end] = longest[source[end]]
        least = best
        came_from.append(source)
    stage = np.zeros(n, np.int64)
    end = len(cuts) - 1
    for device in range(count - 1, 0, -1):
        begin = int(came_from[device - 1][end])
        stage[cuts[begin] : cuts[end]] = device
        end = begin
    return stage


def crossing_bytes(graph: TaskGraph) -> I64:
    """[tasks + 1] bytes of the tensors that are made before each place in the order and read behind it."""
    change = np.zeros(graph.num_tasks + 2, np.int64)
    last = np.full(len(graph.tensor_bytes), -1, np.int64)
    first = np.full(len(graph.tensor_bytes), -1, np.int64)
    np.maximum.at(last, graph.edge_tensor, graph.edge_dst)
    first[graph.edge_tensor] = graph.edge_src
    used = first >= 0
    np.add.at(change, first[used] + 1, graph.tensor_bytes[used])
    np.add.at(change, last[used] + 1, -graph.tensor_bytes[used])
    return np.cumsum(change)[: graph.num_tasks + 1]
