"""Candidates on their way to a plan, and the simple ones among them.

A draft is a workload with a placement and order, cut into segments and simulated. This module makes the simple choices
that are always in the race (one device, all cores in one session, plain data parallelism), and drafts by any scheduler
of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from planner.cluster.types import Cluster, Device
from planner.cost.estimate import CostTable
from planner.cost.keys import segment_digest
from planner.cost.profile import ProfileKey, segment_key
from planner.errors import InfeasibleError
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.model.types import LoadedModel
from planner.schedule.coarsen import coarsen
from planner.schedule.cut import Cut, CutSegment, cut_schedule, recost
from planner.schedule.lists import one_device, schedule_fixed
from planner.schedule.ready_dcp import ready_dcp
from planner.schedule.workload import Workload, Workloads, comm_costs
from planner.split.propagate import AxisCache, batch_layouts, spread
from planner.split.types import SplitSpec

ONE_DEVICE: Final = "one-device"
SIMPLE: Final = (ONE_DEVICE, "all-cores", "data-parallel")
"""What a user would do without a planner."""
SHORT_NS: Final = 20_000_000
"""Steps that take less differ by more than others from one process to the next, and take several times as long when
they begin on idle cores as in the loop of profiling (``tests/bench/RESULTS.md``)."""

ALL_CORES = "cpu:all"


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A candidate.

    Attributes:
        planner: who made it.
        workload: the split graph with costs.
        cluster: the devices it was scheduled on.
        cut: its segments, transfers and simulated times.
        members: for a device that spans others: name -> their names.
        dispatch_ns: cost of a segment on top of its tasks.
        gain: the split that gained most on the way, in words; empty if none was searched.
    """

    planner: str
    workload: Workload
    cluster: Cluster
    cut: Cut
    members: Mapping[str, tuple[str, ...]]
    dispatch_ns: int = 0
    gain: str = ""

    @property
    def step_ns(self) -> int:
        """Simulated step."""
        return self.cut.step_ns


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What all planners of one run share.

    Attributes:
        model: the simplified model.
        cluster: devices and links.
        costs: measured and estimated costs.
        workloads: split graphs with costs.
        axes: split axes of the unsplit graph.
        batch_axes: batch dimension of an input where it is not 0.
        dispatch_ns: cost of a segment on top of its tasks.
        effort: how much work the search may do: ``quick``, ``normal`` or ``thorough``.
        seed: of what is drawn at random: local search, with thorough effort.
    """

    model: LoadedModel
    cluster: Cluster
    costs: CostTable
    workloads: Workloads
    axes: AxisCache
    batch_axes: Mapping[str, int]
    dispatch_ns: int
    effort: str
    seed: int = 0

    @property
    def comm(self) -> CommCosts:
        """Transfer costs as a scheduler should see them: what crosses devices also costs a segment."""
        costs = comm_costs(self.cluster)
        count = len(self.cluster.devices)
        return CommCosts(costs.latency_ns + self.dispatch_ns * (1 - np.eye(count, dtype=np.int64)), costs.ns_per_mib)

    def shares(self) -> list[int]:
        """Relative speeds of the devices: inverse time of the whole unsplit graph, in thousandths of the fastest."""
        totals = [max(int(total), 1) for total in self.workloads.build(()).tasks.compute_ns.sum(axis=0)]
        return [max(1, round(1000 * min(totals) / total)) for total in totals]

    @property
    def memory_limit(self) -> list[int]:
        """Bytes of each device that a plan may use."""
        return [device.memory_bytes for device in self.cluster.devices]


Scheduler = Callable[[TaskGraph, CommCosts], Schedule]


def schedule_coarse(setting: Setting, workload: Workload, scheduler: Scheduler) -> Schedule:
    """Contract, schedule, expand.

    Contracted tasks may be too large for a device's memory where their parts are not: then the parts are scheduled.

    Raises:
        InfeasibleError: if the parts do not fit either.
    """
    coarse = coarsen(workload.tasks, setting.comm)
    try:
        schedule = scheduler(coarse.tasks, setting.comm)
    except InfeasibleError:
        return scheduler(workload.tasks, setting.comm)
    return coarse.expand(schedule, workload.tasks)


def dcp_schedule(setting: Setting, workload: Workload) -> Schedule:
    """Dynamic critical path scheduling.

    Raises:
        InfeasibleError: if the tasks do not fit the devices' memory.
    """
    return list_schedule_of(setting, workload, ready_dcp)


def finish(setting: Setting, planner: str, workload: Workload, schedule: Schedule) -> Draft:
    """Cut and simulate."""
    cut = cut_schedule(workload, setting.cluster, schedule, setting.dispatch_ns)
    return Draft(planner, workload, setting.cluster, cut, {}, setting.dispatch_ns)


def remeasured(draft: Draft, costs: CostTable) -> Draft:
    """The draft with its segments' times as the profile has them.

    Searching rests on the costs of operators alone, so that it finds the same drafts however many segments have been
    measured since; only the choice among them rests on measured segments.

    Args:
        draft: a candidate.
        costs: with a profile that may know whole segments.
    """

    def measured(segment: CutSegment) -> int | None:
        return costs.segment_ns(draft.workload.segment_keys(segment.tasks), draft.cluster.devices[segment.device])

    if not costs.knows_segments:
        return draft
    return replace(draft, cut=recost(draft.cut, draft.cluster, draft.dispatch_ns, measured))


def segment_keys(draft: Draft) -> list[ProfileKey]:
    """Profile key of each segment of a draft."""
    keys = []
    for segment in draft.cut.segments:
        device = draft.cluster.devices[segment.device]
        digest = segment_digest(draft.workload.segment_keys(segment.tasks))
        keys.append(ProfileKey(device.kind, device.type, segment_key(digest)))
    return keys


def one_device_draft(setting: Setting) -> Draft:
    """The whole model on the device that runs it fastest; of equal ones the first.

    Raises:
        InfeasibleError: if operators are pinned to several.
    """
    draft = next(one_device_drafts(setting), None)
    if draft is None:
        raise InfeasibleError("operators are pinned to several devices")
    return draft


def one_device_drafts(setting: Setting) -> Iterator[Draft]:
    """The whole model on one device of each kind and memory size, fastest first; of equal ones the first."""
    workload = setting.workloads.build(())
    totals = workload.tasks.compute_ns.sum(axis=0).tolist()
    seen: set[tuple[str, int]] = set()
    for number in sorted(range(len(totals)), key=lambda device: (totals[device], device)):
        device = setting.cluster.devices[number]
        if workload.tasks.allowed is not None and not workload.tasks.allowed[:, number].all():
            continue
        if (device.kind, device.memory_bytes) not in seen:
            seen.add((device.kind, device.memory_bytes))
            yield finish(setting, "one-device", workload, one_device(workload.tasks, number))


def all_cores_draft(setting: Setting) -> Draft:
    """One session over the cores of all CPU devices.

    Raises:
        InfeasibleError: if the devices are no CPU devices of one node.
    """
    devices = setting.cluster.devices
    if any(device.type != "cpu" for device in devices) or len(setting.cluster.nodes()) > 1:
        raise InfeasibleError("one session spans the cores of CPU devices of one node only")
    if setting.workloads.wishes.pins:
        raise InfeasibleError("operators are pinned to devices, which one session over all cores is not")
    device = all_cores_device(setting.cluster)
    cluster = Cluster((device,), ())
    workload = Workloads(setting.model, cluster, setting.costs).build(())
    schedule = one_device(workload.tasks, 0)
    cut = cut_schedule(workload, cluster, schedule, setting.dispatch_ns)
    return Draft("all-cores", workload, cluster, cut, {ALL_CORES: tuple(d.name for d in devices)}, setting.dispatch_ns)


def all_cores_device(cluster: Cluster) -> Device:
    """The device that spans all CPU devices of a cluster."""
    first = cluster.devices[0]
    cores = tuple(sorted({core for device in cluster.devices for core in device.cores}))
    return replace(
        first,
        name=ALL_CORES,
        kind=f"{first.kind.rsplit('-', 1)[0]}-{len(cores)}c",
        memory_bytes=sum(device.memory_bytes for device in cluster.devices),
        cores=cores,
        shared=False,
    )


def batch_splits(setting: Setting, shares: Sequence[int] | None = None) -> list[SplitSpec]:
    """The batch cut at every input, as far as that spreads; nothing if there is no batch of two or more.

    Args:
        setting: what is planned.
        shares: relative sizes of the shards; by default the speeds of the devices.
    """
    parts = setting.shares() if shares is None else shares
    layouts = batch_layouts(setting.model.graph, parts, setting.batch_axes)
    return spread(setting.axes, layouts, shares=parts) if layouts else []


def data_parallel_draft(setting: Setting) -> Draft:
    """The batch cut at every input, shard ``i`` on device ``i``.

    Raises:
        InfeasibleError: if no input has a batch to cut.
    """
    splits = batch_splits(setting)
    if not splits:
        raise InfeasibleError("no input has a batch of two or more that operators can be split along")
    workload = setting.workloads.build(splits)
    schedule = schedule_fixed(workload.tasks, setting.comm, workload.lanes(setting.shares()))
    return finish(setting, "data-parallel", workload, schedule)


class LimitedScheduler(Protocol):
    """A scheduler that knows memory limits."""

    def __call__(self, graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
        """Schedule within limits (bytes a device; None for none)."""
        ...


def list_schedule_of(setting: Setting, workload: Workload, scheduler: LimitedScheduler) -> Schedule:
    """A workload's schedule: contracted, scheduled within the devices' memory, expanded.

    Raises:
        InfeasibleError: if the tasks do not fit.
    """
    limit = setting.memory_limit
    return schedule_coarse(setting, workload, lambda tasks, comm: scheduler(tasks, comm, memory_limit=limit))


def list_draft(setting: Setting, name: str, scheduler: LimitedScheduler) -> Draft:
    """The unsplit graph by a scheduler of tasks."""
    workload = setting.workloads.build(())
    return finish(setting, name, workload, list_schedule_of(setting, workload, scheduler))
