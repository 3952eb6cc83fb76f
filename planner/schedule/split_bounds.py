"""Lower bounds on the step that hold for any split, by the plan's own cost function.

Two bounds, the larger counts:

- Work. However operators are split, the shards of a group of operators cost at least its floor (``cost.floor``) on
  each device. For any shares ``x`` of the devices, non-negative and adding up to 1, the step is at least the sum over
  groups of the least over devices of ``x[d] * floor[g, d]`` (the dual of sharing all work out fractionally). For equal
  devices equal shares are best; for different ones a few shares between "equal" and "by speed" are tried: each gives a
  valid bound.
- Path. On a path of groups each contributes its overhead, and its floor divided by as many shards as its rule allows:
  by the extents of its two longest axes. Where shards may depend on a part of the inputs only (what joins, picks or
  pads), the path starts anew.

With measured costs shards may cost less than the floor: the least seen in any split that was built counts then, and
the bound holds for those splits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.graph.op_graph import Op
from planner.graph.task_graph import I64
from planner.schedule.drafts import Setting
from planner.schedule.workload import Workload

_SHARES: Final = 16
# A shard of these may need a part of the inputs only, so that a path does not lead through every shard.
_PARTIAL: Final = frozenset(
    ("Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Pad", "ScatterND", "ScatterElements", "Where")
)


def any_split_bound_ns(setting: Setting) -> int:
    """The larger of both bounds."""
    workload = setting.workloads.build(())
    floor = _floors(setting, workload)
    return max(work_bound_ns(floor), _path_bound_ns(setting, workload, floor))


def work_bound_ns(floor: I64) -> int:
    """Bound by work.

    Args:
        floor: [groups, devices] least cost of each group's shards together.
    """
    if not floor.size:
        return 0
    total = floor.sum(axis=0)
    count = len(total)
    fastest = int(total.min())
    best = 0
    for part in range(_SHARES + 1):
        # From equal shares to shares in proportion to speed's inverse: a slow device's hours weigh less.
        shares = [(_SHARES - part) * 1000 + part * (1000 * fastest // max(int(total[d]), 1)) + 1 for d in range(count)]
        weighted = floor * np.array(shares, np.int64)[None, :]
        best = max(best, -(-int(weighted.min(axis=1).sum()) // sum(shares)))
    return best


def _floors(setting: Setting, workload: Workload) -> I64:
    """[groups, devices] least cost of all shards of each group together."""
    graph = workload.split.graph
    measured = setting.costs.profile is not None and bool(setting.costs.profile.entries)
    by_kind = {device.kind: device for device in setting.cluster.devices}
    rows = []
    for members in workload.groups.members:
        contexts = [graph.context(op) for op in members]
        floors = {kind: setting.costs.floor_ns(contexts, device) for kind, device in by_kind.items()}
        row = [floors[device.kind] for device in setting.cluster.devices]
        if measured:
            least = [setting.workloads.least[op.name].all_ns for op in members if op.name in setting.workloads.least]
            row = [min(value, *least) if least else value for value in row]
        rows.append(row)
    return np.array(rows, np.int64).reshape(-1, len(setting.cluster.devices))


def _path_bound_ns(setting: Setting, workload: Workload, floor: I64) -> int:
    """Bound by the longest path."""
    least = floor.min(axis=1, initial=np.iinfo(np.int64).max) if floor.size else np.zeros(0, np.int64)
    tasks = workload.tasks
    head = np.zeros(tasks.num_tasks, np.int64)
    own = np.zeros(tasks.num_tasks, np.int64)
    restart = np.zeros(tasks.num_tasks, bool)
    for task, members in enumerate(workload.groups.members):
        own[task] = int(least[task]) // max(_most_shards(setting, op) for op in members)
        restart[task] = any(op.op_type in _PARTIAL for op in members)
    for src, dst in zip(tasks.edge_src.tolist(), tasks.edge_dst.tolist(), strict=True):
        if not restart[dst]:
            head[dst] = max(head[dst], head[src] + own[src])
    return int((head + own).max(initial=0))


def _most_shards(setting: Setting, op: Op) -> int:
    """As many shards as two splits can make."""
    extents = sorted((axis.extent for axis in setting.axes.axes(op)), reverse=True)[:2]
    count = 1
    for extent in extents:
        count *= max(extent, 1)
    return count
