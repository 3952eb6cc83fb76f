"""Candidates on their way to a plan, and the simple ones among them.

A draft is a workload with a placement and order, cut into segments and simulated. This module makes the simple choices
that are always in the race (one device, all cores in one session, plain data parallelism, HEFT and DCP on the unsplit
graph); ``fd_dps`` makes the method's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

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
from planner.schedule.dcp import dcp
from planner.schedule.heft import heft
from planner.schedule.improve import improve
from planner.schedule.lists import one_device, schedule_fixed
from planner.schedule.workload import Workload, Workloads, comm_costs
from planner.split.propagate import AxisCache, batch_layouts, spread

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
    """

    planner: str
    workload: Workload
    cluster: Cluster
    cut: Cut
    members: Mapping[str, tuple[str, ...]]
    dispatch_ns: int = 0

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
    """Dynamic critical path scheduling; with thorough effort, improved by local search.

    Raises:
        InfeasibleError: if the tasks do not fit the devices' memory.
    """

    def scheduler(tasks: TaskGraph, comm: CommCosts) -> Schedule:
        limit = setting.memory_limit
        schedule = dcp(tasks, comm, memory_limit=limit)
        if setting.effort != "thorough":
            return schedule
        return improve(tasks, comm, schedule, effort="normal", seed=setting.seed, memory_limit=limit)

    return schedule_coarse(setting, workload, scheduler)


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
    """The whole model on the device that runs it fastest; of equal ones the first."""
    return next(one_device_drafts(setting))


def one_device_drafts(setting: Setting) -> Iterator[Draft]:
    """The whole model on one device of each kind and memory size, fastest first; of equal ones the first."""
    workload = setting.workloads.build(())
    totals = workload.tasks.compute_ns.sum(axis=0).tolist()
    seen: set[tuple[str, int]] = set()
    for number in sorted(range(len(totals)), key=lambda device: (totals[device], device)):
        device = setting.cluster.devices[number]
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


def data_parallel_draft(setting: Setting) -> Draft:
    """The batch cut at every input, shard ``i`` on device ``i``.

    Raises:
        InfeasibleError: if no input has a batch to cut.
    """
    shares = setting.shares()
    layouts = batch_layouts(setting.model.graph, shares, setting.batch_axes)
    splits = spread(setting.axes, layouts, shares=shares) if layouts else []
    if not splits:
        raise InfeasibleError("no input has a batch of two or more that operators can be split along")
    workload = setting.workloads.build(splits)
    placement = workload.lanes(shares)
    schedule = schedule_fixed(workload.tasks, setting.comm, placement)
    return finish(setting, "data-parallel", workload, schedule)


def heft_draft(setting: Setting) -> Draft:
    """HEFT on the unsplit graph."""
    workload = setting.workloads.build(())
    schedule = schedule_coarse(
        setting, workload, lambda tasks, comm: heft(tasks, comm, memory_limit=setting.memory_limit)
    )
    return finish(setting, "heft", workload, schedule)


def dcp_draft(setting: Setting) -> Draft:
    """Dynamic critical path scheduling on the unsplit graph."""
    workload = setting.workloads.build(())
    return finish(setting, "dcp", workload, dcp_schedule(setting, workload))
