"""Splits between none and one shard a device: fewer shards, and shards for the first part of a network only.

A shard costs what its operators' overheads cost, however small it is: late layers of a network, on small maps, are best
left whole, and a network of many branches is best cut into fewer shards than there are devices, each of which has its
branches spread over several. Data parallelism is the one end of this family, the unsplit graph the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from planner.schedule.drafts import Setting, batch_splits
from planner.schedule.split_search import whole_graph_ways
from planner.split.propagate import batch_layouts, spread
from planner.split.types import SplitSpec

# How much of the work lies in the part that is split, in percent.
_PARTS: Final = (50, 75, 90)


def hybrid_ways(setting: Setting) -> Iterator[Sequence[SplitSpec]]:
    """Ways to split the whole graph, then fewer shards, then shards for a first part of it."""
    yield from whole_graph_ways(setting).values()
    devices = len(setting.cluster.devices)
    for count in sorted({2, devices // 2} - {0, 1, devices}):
        if splits := batch_splits(setting, [1] * count):
            yield splits
    shares = setting.shares()
    layouts = batch_layouts(setting.model.graph, shares, setting.batch_axes)
    seen: set[int] = set()
    for percent in _PARTS if layouts else ():
        first = _first_part(setting, percent)
        splits = spread(setting.axes, layouts, shares=shares, within=first)
        if splits and len(splits) not in seen:
            seen.add(len(splits))
            yield splits


def _first_part(setting: Setting, percent: int) -> frozenset[str]:
    """The first operators, with so much of the work of the unsplit graph in them."""
    workload = setting.workloads.build(())
    cost = {
        member.name: int(workload.tasks.compute_ns[task].min()) // len(members)
        for task, members in enumerate(workload.groups.members)
        for member in members
    }
    ops = setting.model.graph.ops
    reached = list(accumulate(cost.get(op.name, 0) for op in ops))
    limit = reached[-1] * percent // 100 if reached else 0
    return frozenset(op.name for op, done in zip(ops, reached, strict=True) if done <= limit)
