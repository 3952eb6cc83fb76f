"""Lower bounds on the step that hold for any split, by the plan's own cost function.

Two bounds, the larger counts:

- Work. However operators are split, the shards of each cost at least its floor (``cost.floor``) on each device. For any
  shares ``x`` of the devices, non-negative and adding up to 1, the step is at least the sum over operators of the least
  over devices of ``x[d] * floor[op, d]`` (the dual of sharing all work out fractionally). For equal devices equal
  shares are best; for different ones a few between "equal" and "by speed" are tried: each gives a valid bound.
- Path. On a path each operator contributes its overhead, and its work divided by as many shards as its rule allows: by
  the extents of its two longest axes. Where shards may depend on a part of the inputs only (what joins, picks or pads),
  the path starts anew.

With measured costs shards may cost less than the floor; who uses these bounds then says so.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from planner.cost.floor import Floor
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
    floors = _floors(setting, workload)
    work = [[f.work_ns + f.launch_ns for f in row] for rows in floors for row in rows]
    table = np.array(work, np.int64).reshape(-1, len(setting.cluster.devices))
    return max(work_bound_ns(table), _path_bound_ns(setting, workload, floors))


def work_bound_ns(floor: I64) -> int:
    """Bound by work.

    Args:
        floor: [operators, devices] least cost of each operator's shards together.
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


def _floors(setting: Setting, workload: Workload) -> list[list[list[Floor]]]:
    """[groups][operators][devices] least cost of all shards together."""
    graph = workload.split.graph
    by_kind = {device.kind: device for device in setting.cluster.devices}
    found = []
    for members in workload.groups.members:
        contexts = [graph.context(op) for op in members]
        floors = {kind: setting.costs.floors(contexts, device) for kind, device in by_kind.items()}
        kinds = [device.kind for device in setting.cluster.devices]
        found.append([[floors[kind][number] for kind in kinds] for number in range(len(members))])
    return found


def _path_bound_ns(setting: Setting, workload: Workload, floors: list[list[list[Floor]]]) -> int:
    """Bound by the longest path."""
    tasks = workload.tasks
    head = np.zeros(tasks.num_tasks, np.int64)
    own = np.zeros(tasks.num_tasks, np.int64)
    restart = np.zeros(tasks.num_tasks, bool)
    for task, members in enumerate(workload.groups.members):
        # The operators of a group follow each other or stand side by side: the longest of them counts.
        own[task] = max(
            min(f.launch_ns + f.work_ns // _most_shards(setting, op) for f in row)
            for op, row in zip(members, floors[task], strict=True)
        )
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
