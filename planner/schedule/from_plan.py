"""Planning again from a plan: what still fits of its splits, placement, order and segments, as a candidate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.errors import PlanError
from planner.graph.task_graph import Schedule
from planner.plan.schema import Plan
from planner.schedule.cut import cut_at
from planner.schedule.drafts import Draft, Setting, all_cores_draft, finish
from planner.schedule.lists import obeying, schedule_fixed
from planner.schedule.workload import Workload
from planner.split.types import SplitSpec

NAME = "from"


def draft_from_plan(setting: Setting, plan: Plan) -> Draft:
    """The plan's decisions, as far as model and devices still have what they are about.

    A split stays if the operator still has the axis, of the same extent. A task stays on its device if that is still
    there; new tasks go where their first known neighbour is. If every task is known, order and segments stay too.

    Raises:
        InfeasibleError: if it was one session over all cores, and these devices have none.
    """
    spanning = {device.name for device in plan.cluster.devices if device.members}
    if any(queue.segments for queue in plan.devices if queue.device in spanning):
        return replace(all_cores_draft(setting), planner=NAME)
    workload = _workload(setting, plan)
    number = {device.name: position for position, device in enumerate(setting.cluster.devices)}
    home: dict[str, int] = {}
    rank: dict[str, int] = {}
    begins: set[str] = set()
    for queue in plan.devices:
        for segment in queue.segments:
            begins.update(segment.tasks[:1])
            for name in segment.tasks:
                rank[name] = len(rank)
                if queue.device in number:
                    home[name] = number[queue.device]
    known = [[op.name for op in members if op.name in home] for members in workload.groups.members]
    placement = _complete([home[names[0]] if names else -1 for names in known], workload)
    placement = obeying(workload.tasks, np.array(placement, np.int64)).tolist()
    whole = all(len(names) == len(members) for names, members in zip(known, workload.groups.members, strict=True))
    if whole and placement == [home[names[0]] for names in known]:
        # Ranks count device by device, as segments do.
        place = np.array([min(rank[name] for name in names) for names in known], np.int64)
        first = frozenset(task for task, names in enumerate(known) if any(name in begins for name in names))
        schedule = Schedule(np.array(placement, np.int32), place, place)
        cut = cut_at(workload, setting.cluster, schedule, setting.dispatch_ns, first)
        if cut.times.complete:
            return Draft(NAME, workload, setting.cluster, cut, {}, setting.dispatch_ns)
    return finish(setting, NAME, workload, schedule_fixed(workload.tasks, setting.comm, placement))


def _workload(setting: Setting, plan: Plan) -> Workload:
    """The split graph with the splits that can still be made."""
    axes = {op.name: {axis.name: axis.extent for axis in setting.axes.axes(op)} for op in setting.model.graph.ops}
    splits = [
        SplitSpec(split.op, split.axis, split.sizes)
        for split in plan.splits
        if axes.get(split.op, {}).get(split.axis) == sum(split.sizes)
    ]
    try:
        return setting.workloads.build(splits)
    except PlanError:
        return setting.workloads.build(())


def _complete(home: list[int], workload: Workload) -> list[int]:
    """Devices for tasks that the plan does not know: their producer's, else their consumer's, else the first."""
    edges = list(zip(workload.tasks.edge_src.tolist(), workload.tasks.edge_dst.tolist(), strict=True))
    for src, dst in edges:
        if home[dst] < 0 <= home[src]:
            home[dst] = home[src]
    for src, dst in reversed(edges):
        if home[src] < 0 <= home[dst]:
            home[src] = home[dst]
    return [max(device, 0) for device in home]
