"""Cutting each device's order of tasks into segments.

A segment starts when all its inputs are there and hands its outputs over when it ends, so a long segment delays
what others wait for, and a short one pays its dispatch cost for little work. The first cut follows the schedule: it
ends a segment where a value should leave, and starts one where a value from another device comes in. Then neighbours
on a device are joined as long as the simulated step does not get longer. The launcher's semantics decide, not the schedule's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cluster.types import Cluster
from planner.graph.task_graph import Schedule
from planner.schedule.workload import Workload
from planner.simulate.core import ArrayResult, simulate_arrays


@dataclass(frozen=True, slots=True)
class CutSegment:
    """A segment of a candidate: device number and group numbers in order."""

    device: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CutTransfer:
    """A tensor (number in ``Workload.tensors``) from a segment to the first one that reads it on another device."""

    tensor: int
    src: int
    dst: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Segments of a candidate, those of one device in order, with the transfers between them.

    Attributes:
        segments: all segments, device by device.
        transfers: sorted by (source, destination, tensor).
        times: the simulated step.
    """

    segments: tuple[CutSegment, ...]
    transfers: tuple[CutTransfer, ...]
    times: ArrayResult

    @property
    def step_ns(self) -> int:
        """Simulated step."""
        return self.times.step_ns


def cut_schedule(workload: Workload, cluster: Cluster, schedule: Schedule, dispatch_ns: int, *, rounds: int = 2) -> Cut:
    """Cut a schedule into segments.

    Args:
        workload: what was scheduled.
        cluster: its devices and links.
        schedule: placement and order.
        dispatch_ns: cost of one segment on top of its tasks.
        rounds: passes of joining neighbours.
    """
    cutter = _Cutter(workload, cluster, schedule, dispatch_ns)
    queues = cutter.first_cut()
    best = cutter.simulate(queues)
    for _ in range(rounds):
        before = best.step_ns, len(best.segments)
        queues, best = cutter.join(queues, best)
        if (best.step_ns, len(best.segments)) == before:
            break
    return best


Queues = list[list[tuple[int, ...]]]


class _Cutter:
    def __init__(self, workload: Workload, cluster: Cluster, schedule: Schedule, dispatch_ns: int) -> None:
        tasks = workload.tasks
        self._cluster = cluster
        self._dispatch_ns = dispatch_ns
        self._device = schedule.device.tolist()
        self._start = schedule.start_ns.tolist()
        self._finish = schedule.finish_ns.tolist()
        self._compute = tasks.compute_ns.tolist()
        self._bytes = tasks.tensor_bytes.tolist()
        edges = np.stack([tasks.edge_src, tasks.edge_dst, tasks.edge_tensor], axis=1).tolist()
        # Only edges between devices matter: on one device the queue's order covers them.
        self._remote = [(u, v, t) for u, v, t in edges if self._device[u] != self._device[v]]
        self._links = {(link.src, link.dst): link for link in cluster.links}
        self._order: list[list[int]] = [[] for _ in cluster.devices]
        for task in sorted(range(tasks.num_tasks), key=lambda i: (self._start[i], self._finish[i], i)):
            self._order[self._device[task]].append(task)
        self._transfer_cost: dict[tuple[int, int, int], tuple[int, str]] = {}

    def first_cut(self) -> Queues:
        """Cuts where the schedule hands something over at a time that a longer segment would miss."""
        sends = {u for u, _, _ in self._remote}
        arrival: dict[int, int] = {}
        for u, v, tensor in self._remote:
            cost, _ = self._cost(self._device[u], self._device[v], self._bytes[tensor])
            arrival[v] = max(arrival.get(v, 0), self._finish[u] + cost)
        queues: Queues = []
        for order in self._order:
            queue: list[tuple[int, ...]] = []
            current: list[int] = []
            for task in order:
                if current and arrival.get(task, 0) > self._start[current[0]]:
                    queue.append(tuple(current))
                    current = []
                current.append(task)
                if task in sends:
                    queue.append(tuple(current))
                    current = []
            if current:
                queue.append(tuple(current))
            queues.append(queue)
        return queues

    def simulate(self, queues: Queues) -> Cut:
        """The simulated step of a segmentation; incomplete if it deadlocks."""
        segments: list[CutSegment] = []
        home: dict[int, int] = {}
        following: list[int] = []
        duration: list[int] = []
        for device, queue in enumerate(queues):
            for position, tasks in enumerate(queue):
                number = len(segments)
                segments.append(CutSegment(device, tasks))
                following.append(number + 1 if position + 1 < len(queue) else -1)
                duration.append(self._dispatch_ns + sum(self._compute[task][device] for task in tasks))
                for task in tasks:
                    home[task] = number
        transfers = self._transfers(home)
        costs = [self._cost(segments[t.src].device, segments[t.dst].device, t.nbytes) for t in transfers]
        channels: dict[str, int] = {}
        used = [
            channels.setdefault(channel or f"#{position}", len(channels)) for position, (_, channel) in enumerate(costs)
        ]
        times = simulate_arrays(
            duration, following, [t.src for t in transfers], [t.dst for t in transfers], [ns for ns, _ in costs], used
        )
        return Cut(tuple(segments), tuple(transfers), times)

    def _transfers(self, home: dict[int, int]) -> list[CutTransfer]:
        first: dict[tuple[int, int, int], int] = {}
        for u, v, tensor in self._remote:
            key = (home[u], tensor, self._device[v])
            dst = home[v]
            if key not in first or dst < first[key]:
                first[key] = dst
        found = [CutTransfer(tensor, src, dst, self._bytes[tensor]) for (src, tensor, _), dst in first.items()]
        return sorted(found, key=lambda t: (t.src, t.dst, t.tensor))

    def _cost(self, src: int, dst: int, nbytes: int) -> tuple[int, str]:
        """Time on the link and the channel it queues on; an empty channel queues behind nothing."""
        key = (src, dst, nbytes)
        if key not in self._transfer_cost:
            a, b = self._cluster.devices[src].name, self._cluster.devices[dst].name
            link = self._links[a, b]
            own = "" if link.bytes_per_s == 0 else f"{a}->{b}"
            self._transfer_cost[key] = (link.transfer_ns(nbytes), link.channel or own)
        return self._transfer_cost[key]

    def join(self, queues: Queues, best: Cut) -> tuple[Queues, Cut]:
        """Join neighbours wherever the step does not get longer (fewer segments at the same step is better)."""
        for device in range(len(queues)):
            position = 0
            while position + 1 < len(queues[device]):
                tried = [list(queue) for queue in queues]
                queue = tried[device]
                queue[position : position + 2] = [queue[position] + queue[position + 1]]
                cut = self.simulate(tried)
                if cut.times.complete and cut.step_ns <= best.step_ns:
                    queues, best = tried, cut
                else:
                    position += 1
        return queues, best


def one_segment_each(workload: Workload, cluster: Cluster, device_of: Sequence[int], dispatch_ns: int) -> Cut:
    """Every device's tasks in the graph's order, cut as little as a run without deadlock allows."""
    count = workload.tasks.num_tasks
    order = np.arange(count, dtype=np.int64)
    schedule = Schedule(np.array(device_of, dtype=np.int32), order, order)
    return cut_schedule(workload, cluster, schedule, dispatch_ns)
