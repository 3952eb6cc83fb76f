"""FastT on models: OS-DPOS, splitting operators of the critical path one after the other.

As recalled (see ``fastt.py``): the operators of the critical path by descending time; for each, every splittable
dimension (batch; channel for convolutions; rows or columns for matrix products) and every number of shards is tried
with a new run of DPOS; the best is kept if the finish falls, and the search stops at the first operator that does not
help. It starts from the data-parallel graph if that fits one device (``fastt-dp``), or from the plain one (``fastt``).

Ours, where that is silent: shard counts are 2 and the number of devices; a finish is the simulated step, so that it is
judged as every other plan is here; at most ``MOST_RUNS`` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.errors import InfeasibleError
from planner.graph.op_graph import Op
from planner.schedule.critical_ops import critical_ops
from planner.schedule.drafts import Draft, Setting, batch_splits, finish, list_schedule_of
from planner.schedule.fastt import fastt
from planner.schedule.lists import schedule_fixed
from planner.schedule.memory import device_need
from planner.split.propagate import sizes_for
from planner.split.types import SplitAxis, SplitSpec

MOST_RUNS: Final = {"quick": 8, "normal": 32, "thorough": 128}
_DIMENSIONS: Final = ("batch", "out_channel", "rows", "columns")


def fastt_draft(setting: Setting) -> Draft:
    """FastT from the plain graph."""
    return _search(setting, "fastt", ())


def fastt_dp_draft(setting: Setting) -> Draft:
    """FastT from the data-parallel graph.

    Raises:
        InfeasibleError: if no input has a batch to cut.
    """
    splits = batch_splits(setting)
    whole = setting.workloads.build(()).tasks
    need = device_need(whole, [0] * whole.num_tasks)[0]
    if need > max(setting.memory_limit):
        return _search(setting, "fastt-dp", ())  # what does not fit one device has no data-parallel graph
    if not splits:
        raise InfeasibleError("no input has a batch of two or more that operators can be split along")
    return _search(setting, "fastt-dp", splits)


def _search(setting: Setting, name: str, splits: Sequence[SplitSpec]) -> Draft:
    best = _draft(setting, name, splits)
    order = {op.name: position for position, op in enumerate(setting.model.graph.ops)}
    runs = 0
    if len(setting.cluster.devices) < 2:
        return best
    for op in critical_ops(best, setting):
        helped = False
        for spec in _ways(setting, op):
            if runs >= MOST_RUNS[setting.effort]:
                return best
            changed = {**{each.op: each for each in best.workload.splits}, op.name: spec}
            runs += 1
            tried = _draft(setting, name, sorted(changed.values(), key=lambda each: order[each.op]))
            if tried.cut.times.complete and tried.step_ns < best.step_ns:
                best, helped = tried, True
        if not helped:
            return best
    return best


def _ways(setting: Setting, op: Op) -> list[SplitSpec]:
    """Every dimension and number of shards."""
    devices = len(setting.cluster.devices)
    axes: list[SplitAxis] = [axis for axis in setting.axes.axes(op) if axis.name in _DIMENSIONS]
    found = []
    for axis in axes:
        for count in sorted({2, devices}):
            sizes = sizes_for(axis.extent, [1] * count)
            if len(sizes) > 1:
                found.append(SplitSpec(op.name, axis.name, sizes))
    return found


def _draft(setting: Setting, name: str, splits: Sequence[SplitSpec]) -> Draft:
    """DPOS on a split graph; where shards are numbered, the placement by number is the data-parallel start."""
    workload = setting.workloads.build(splits)
    draft = finish(setting, name, workload, list_schedule_of(setting, workload, fastt))
    if name == "fastt-dp":
        lanes = finish(
            setting,
            name,
            workload,
            schedule_fixed(workload.tasks, setting.comm, workload.lanes(setting.shares())),
        )
        if lanes.cut.times.complete and lanes.step_ns < draft.step_ns:
            return lanes
    return draft
