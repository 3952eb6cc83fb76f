"""What all schedulers share: the problem as arrays, arrival times, and device timelines with idle slots.

A tensor of ``b`` bytes made by ``u`` is on device ``d`` at ``finish(u)`` if ``u`` ran there, else at ``finish(u) +
latency_ns[dev(u), d] + ceil(b * ns_per_mib[dev(u), d] / 2**20)``. It is sent once per consuming device; links do not
queue here (``simulate/`` models that), so all consumers on a device see the same arrival.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.graph.jit import kernel
from planner.graph.paths import Links, links
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph


class Problem(NamedTuple):
    """A task graph, prepared for kernels.

    Attributes:
        links: edges by task.
        compute: [tasks, devices] ns.
        nbytes: [edges] bytes that the edge carries.
        latency: [devices, devices] ns.
        per_mib: [devices, devices] ns per MiB.
    """

    links: Links
    compute: I64
    nbytes: I64
    latency: I64
    per_mib: I64


class Timelines(NamedTuple):
    """Busy intervals of each device, sorted; they never overlap.

    Attributes:
        begin: [devices, tasks] ns.
        end: [devices, tasks] ns.
        used: [devices] number of intervals.
        packed: [devices] leading intervals without any idle time before or between them: no search has to look there.
    """

    begin: I64
    end: I64
    used: I64
    packed: I64


def problem(graph: TaskGraph, comm: CommCosts) -> Problem:
    """The arrays that kernels work on."""
    return Problem(
        links(graph.num_tasks, graph.edge_src, graph.edge_dst),
        np.ascontiguousarray(graph.compute_ns, np.int64),
        graph.tensor_bytes[graph.edge_tensor].astype(np.int64),
        np.ascontiguousarray(comm.latency_ns, np.int64),
        np.ascontiguousarray(comm.ns_per_mib, np.int64),
    )


def to_schedule(prob: Problem, device: npt.NDArray[np.int64], start: I64) -> Schedule:
    """Device and start of each task as a :class:`Schedule`."""
    cost = prob.compute[np.arange(len(device)), device] if len(device) else np.zeros(0, np.int64)
    return Schedule(device.astype(np.int32), start, start + cost)


def mean_costs(prob: Problem) -> tuple[I64, I64]:
    """(Mean cost of each task over the devices, mean delay of each edge over pairs of devices), rounded down."""
    devices = prob.compute.shape[1]
    pairs = max(devices * (devices - 1), 1)
    task_ns = prob.compute.sum(axis=1) // max(devices, 1)
    edge_ns = prob.latency.sum() // pairs + prob.nbytes * (prob.per_mib.sum() // pairs) // 2**20
    return task_ns, edge_ns.astype(np.int64)


@kernel
def transfer_ns(prob: Problem, edge: int, src: int, dst: int) -> int:
    """Delay of an edge between two devices; 0 on one device."""
    if src == dst:
        return 0
    delay: int = prob.latency[src, dst] + ((prob.nbytes[edge] * prob.per_mib[src, dst] + 1048575) >> 20)
    return delay


@kernel
def inputs_ready(prob: Problem, task: int, device: int, placed: I64, finish: I64) -> int:
    """When all inputs of a task are on a device; every producer must be placed."""
    ready = 0
    for k in range(prob.links.in_start[task], prob.links.in_start[task + 1]):
        edge = prob.links.in_edge[k]
        src = prob.links.src[edge]
        ready = max(ready, finish[src] + transfer_ns(prob, edge, placed[src], device))
    return ready


def arrivals(prob: Problem, task: int, placed: I64, finish: I64) -> I64:
    """[devices] when all inputs of a task are there; every producer must be placed."""
    edges = prob.links.in_edge[prob.links.in_start[task] : prob.links.in_start[task + 1]]
    if not len(edges):
        return np.zeros(prob.compute.shape[1], np.int64)
    src = prob.links.src[edges]
    where = placed[src]
    delay = prob.latency[where] + ((prob.nbytes[edges][:, None] * prob.per_mib[where] + 1048575) >> 20)
    return np.asarray((finish[src][:, None] + delay).max(axis=0), np.int64)


@kernel
def new_timelines(num_devices: int, num_tasks: int) -> Timelines:
    """Idle devices."""
    shape = (num_devices, num_tasks)
    return Timelines(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(num_devices, np.int64),
        np.zeros(num_devices, np.int64),
    )


@kernel
def earliest_slot(lines: Timelines, device: int, ready: int, duration: int) -> int:
    """Earliest start on a device, not before ``ready``: the first idle slot that is long enough, else the end."""
    begin, end, count = lines.begin[device], lines.end[device], lines.used[device]
    low, high = 0, count
    if duration > 0:
        low = min(lines.packed[device], high)
        if low > 0 and end[low - 1] > ready:
            high = low
    while low < high:  # the first interval that ends after `ready`
        middle = (low + high) >> 1
        if end[middle] <= ready:
            low = middle + 1
        else:
            high = middle
    start = ready if low == 0 else max(ready, end[low - 1])
    for k in range(low, count):
        if start + duration <= begin[k]:
            return start
        start = max(start, end[k])
    return start


@kernel
def occupy(lines: Timelines, device: int, start: int, duration: int) -> None:
    """Mark a free interval as busy."""
    begin, end, count = lines.begin[device], lines.end[device], lines.used[device]
    place = count
    # A task of no length goes before the interval that starts with it.
    while place > 0 and begin[place - 1] >= start + duration and end[place - 1] > start:
        begin[place], end[place] = begin[place - 1], end[place - 1]
        place -= 1
    begin[place], end[place] = start, start + duration
    lines.used[device] = count + 1
    packed = lines.packed[device]
    while packed <= count and begin[packed] == (end[packed - 1] if packed > 0 else 0):
        packed += 1
    lines.packed[device] = packed
