"""Cutting each device's order of tasks into segments.

A segment starts when all its inputs are there and hands its outputs over when it ends, so a long segment delays
what others wait for, and a short one pays its dispatch cost for little work. The first cut follows the schedule: it
ends a segment where a value should leave, and starts one where a value from another device comes in. Then neighbours
on a device are joined as long as the simulated step does not get longer. The launcher's semantics decide, not the
schedule's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.cluster.types import Cluster
from planner.graph.task_graph import Schedule
from planner.schedule.workload import Workload
from planner.simulate.core import ArrayResult, simulate_arrays

I64 = npt.NDArray[np.int64]


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
        transfers: in the order of their makers; where several wait for one channel, the first goes first.
        compute_ns: what each segment takes: measured as a whole where the profile knows it, else its tasks' sum.
        times: the simulated step.
    """

    segments: tuple[CutSegment, ...]
    transfers: tuple[CutTransfer, ...]
    compute_ns: tuple[int, ...]
    times: ArrayResult

    @property
    def step_ns(self) -> int:
        """Simulated step."""
        return self.times.step_ns


Measured = Callable[[CutSegment], int | None]
"""Measured time of a whole segment, None where there is none."""


def cut_schedule(
    workload: Workload,
    cluster: Cluster,
    schedule: Schedule,
    dispatch_ns: int,
    *,
    attempts: int = 2000,
) -> Cut:
    """Cut a schedule into segments.

    Args:
        workload: what was scheduled.
        cluster: its devices and links.
        schedule: placement and order.
        dispatch_ns: cost of one segment on top of its tasks.
        attempts: how many joins to simulate.
    """
    cutter = _Cutter(workload, cluster, schedule, dispatch_ns)
    starts = cutter.first_cut()
    return cutter.result(cutter.join(starts, attempts))


def cut_at(workload: Workload, cluster: Cluster, schedule: Schedule, dispatch_ns: int, first: Collection[int]) -> Cut:
    """Cut a schedule where it is said.

    Args:
        workload: what was scheduled.
        cluster: its devices and links.
        schedule: placement and order.
        dispatch_ns: cost of one segment on top of its tasks.
        first: tasks that begin a segment; the first of each device does so anyway.
    """
    cutter = _Cutter(workload, cluster, schedule, dispatch_ns)
    return cutter.result(cutter.starting_at(first))


def recost(cut: Cut, cluster: Cluster, dispatch_ns: int, measured: Measured) -> Cut:
    """The same segments with the times that are known by now.

    Args:
        cut: segments and transfers.
        cluster: its devices and links.
        dispatch_ns: cost of one segment on top of its tasks.
        measured: knows whole segments.
    """
    compute = [
        ns if (whole := measured(segment)) is None else whole
        for segment, ns in zip(cut.segments, cut.compute_ns, strict=True)
    ]
    return with_compute(cut, cluster, dispatch_ns, compute)


def with_compute(cut: Cut, cluster: Cluster, dispatch_ns: int, compute: Sequence[int]) -> Cut:
    """The same segments with other times, simulated anew.

    Args:
        cut: segments and transfers.
        cluster: its devices and links.
        dispatch_ns: cost of one segment on top of its tasks.
        compute: time of each segment.
    """
    following = [
        number + 1 if number + 1 < len(cut.segments) and cut.segments[number + 1].device == segment.device else -1
        for number, segment in enumerate(cut.segments)
    ]
    ends = [(cut.segments[t.src].device, cut.segments[t.dst].device, t.nbytes) for t in cut.transfers]
    carry, channel = link_costs(cluster, ends)
    times = simulate_arrays(
        [ns + dispatch_ns for ns in compute],
        following,
        [t.src for t in cut.transfers],
        [t.dst for t in cut.transfers],
        carry,
        channel,
    )
    return Cut(cut.segments, cut.transfers, tuple(compute), times)


def link_costs(cluster: Cluster, transfers: Iterable[tuple[int, int, int]]) -> tuple[I64, I64]:
    """Time of each transfer on its link, and the channel it queues on: the simulator's rule.

    Args:
        cluster: devices and links.
        transfers: source device, destination device, bytes.
    """
    links = {(link.src, link.dst): link for link in cluster.links}
    names = [device.name for device in cluster.devices]
    channels: dict[tuple[str, ...], int] = {}
    carry, used = [], []
    for number, (src, dst, nbytes) in enumerate(transfers):
        link = links[names[src], names[dst]]
        carry.append(link.transfer_ns(nbytes))
        used.append(channels.setdefault(link.queue(number), len(channels)))
    return np.array(carry, dtype=np.int64), np.array(used, dtype=np.int64)


class _Cutter:
    """One order of tasks, device by device; a segmentation is a mask of the positions where a segment starts."""

    def __init__(self, workload: Workload, cluster: Cluster, schedule: Schedule, dispatch_ns: int) -> None:
        tasks = workload.tasks
        self._schedule = schedule
        self._dispatch_ns = dispatch_ns
        index = np.arange(tasks.num_tasks)
        self._order = np.lexsort((index, schedule.finish_ns, schedule.start_ns, schedule.device))
        self._device = schedule.device[self._order].astype(np.int64)
        self._cost = tasks.compute_ns[self._order, self._device]
        position = np.empty(tasks.num_tasks, dtype=np.int64)
        position[self._order] = index
        self._first = np.ones(tasks.num_tasks, dtype=bool)
        self._first[1:] = self._device[1:] != self._device[:-1]
        # Only edges between devices matter: on one device the order covers them. A tensor goes once to each device
        # that reads it, to the first reader there; that does not depend on where segments begin.
        src, dst = position[tasks.edge_src], position[tasks.edge_dst]
        remote = self._device[src] != self._device[dst]
        self._edges = src[remote], dst[remote], tasks.edge_tensor[remote].astype(np.int64)
        by_reader = np.lexsort((self._edges[1], self._edges[2], self._edges[0]))
        src, dst, tensor = (column[by_reader] for column in self._edges)
        kept = np.ones(len(src), dtype=bool)
        target = self._device[dst]
        seen: set[tuple[int, int]] = set()
        for number, key in enumerate(zip(tensor.tolist(), target.tolist(), strict=True)):
            kept[number] = key not in seen
            seen.add(key)
        self._src, self._dst, self._tensor = src[kept], dst[kept], tensor[kept]
        self._nbytes = tasks.tensor_bytes[self._tensor]
        ends = zip(
            self._device[self._src].tolist(), self._device[self._dst].tolist(), self._nbytes.tolist(), strict=True
        )
        self._carry, self._channel = link_costs(cluster, ends)

    def first_cut(self) -> npt.NDArray[np.bool_]:
        """Cuts where the schedule hands something over at a time that a longer segment would miss."""
        starts = self._first.copy()
        finish = self._schedule.finish_ns[self._order]
        begin = self._schedule.start_ns[self._order]
        arrival = np.zeros(len(starts), dtype=np.int64)
        np.maximum.at(arrival, self._dst, finish[self._src] + self._carry)
        sends = np.zeros(len(starts), dtype=bool)
        sends[self._src] = True
        opened = 0
        for task in range(len(starts)):
            if starts[task] or sends[task - 1] or arrival[task] > opened:
                starts[task] = True
                opened = int(begin[task])
        return starts

    def starting_at(self, first: Collection[int]) -> npt.NDArray[np.bool_]:
        """The segmentation in which these tasks begin segments."""
        return self._first | np.isin(self._order, np.array(sorted(first), np.int64))

    def simulate(self, starts: npt.NDArray[np.bool_]) -> ArrayResult:
        """The simulated step of a segmentation; incomplete if it deadlocks."""
        segment = np.cumsum(starts) - 1
        begins = np.flatnonzero(starts)
        if not len(begins):
            return simulate_arrays([], [], [], [], [], [])
        duration = np.add.reduceat(self._cost, begins) + self._dispatch_ns
        following = np.arange(1, len(begins) + 1)
        following[-1] = -1
        following[:-1][self._first[begins[1:]]] = -1
        return simulate_arrays(duration, following, segment[self._src], segment[self._dst], self._carry, self._channel)

    def join(self, starts: npt.NDArray[np.bool_], attempts: int) -> npt.NDArray[np.bool_]:
        """Join neighbours wherever the step does not get longer; whole runs of them first where there are very many."""
        if attempts < 1:
            return starts
        best = self.simulate(starts).step_ns
        block = 1
        while starts.sum() > max(attempts, 1) * block // 2 + 1:
            block *= 4
        while block:
            tried = 0
            changed = True
            while changed and tried < attempts:
                changed = False
                borders = np.flatnonzero(starts & ~self._first)
                for low in range(0, len(borders), block):
                    candidate = starts.copy()
                    candidate[borders[low : low + block]] = False
                    times = self.simulate(candidate)
                    tried += 1
                    if times.complete and times.step_ns <= best:
                        starts, best, changed = candidate, times.step_ns, True
            block //= 4
        return starts

    def result(self, starts: npt.NDArray[np.bool_]) -> Cut:
        """The segmentation with names of numbers."""
        number = np.cumsum(starts) - 1
        begins = np.flatnonzero(starts).tolist()
        ends = [*begins[1:], len(starts)]
        order = self._order.tolist()
        segments = tuple(
            CutSegment(int(self._device[low]), tuple(order[low:high])) for low, high in zip(begins, ends, strict=False)
        )
        columns = (self._tensor, number[self._src], number[self._dst], self._nbytes)
        transfers = tuple(CutTransfer(*row) for row in zip(*(column.tolist() for column in columns), strict=True))
        compute = np.add.reduceat(self._cost, begins).tolist() if begins else []
        return Cut(segments, transfers, tuple(compute), self.simulate(starts))
