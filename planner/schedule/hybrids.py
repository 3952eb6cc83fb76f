"""Splits beside one shard a device by speed: other sizes, fewer shards, and shards for a first part of a network only.

Speeds are those of the whole graph on the whole batch; a few samples take a slow device relatively longer, and whole
samples cannot be shared out exactly. So sizes are corrected by what the shards of the first cut take.

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
    """Ways to split the whole graph, then other sizes, fewer shards, and shards for a first part of it."""
    yield from whole_graph_ways(setting).values()
    if sizes := _balanced(setting):
        yield batch_splits(setting, sizes)
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


def _balanced(setting: Setting) -> list[int]:
    """Shard sizes of the batch with one sample after the other moved from the slowest device to a faster one.

    A shard's time is taken to be proportional to its size, from the time of the first cut.

    Returns:
        Nothing if no move helps, or devices are left without a shard.
    """
    splits = batch_splits(setting)
    shares = setting.shares()
    if not splits or len(splits[0].sizes) != len(shares) or len(set(shares)) == 1:
        return []
    workload = setting.workloads.build(splits)
    busy = [0] * len(shares)
    for task, device in enumerate(workload.lanes(shares)):
        busy[device] += int(workload.tasks.compute_ns[task, device])
    first = list(splits[0].sizes)
    each = [taken / size for taken, size in zip(busy, first, strict=True)]
    sizes = list(first)
    while True:
        times = [cost * size for cost, size in zip(each, sizes, strict=True)]
        slowest = max(range(len(sizes)), key=times.__getitem__)
        taker = min(range(len(sizes)), key=lambda device: times[device] + each[device])
        if sizes[slowest] == 1 or times[taker] + each[taker] >= times[slowest]:
            return sizes if sizes != first else []
        sizes[slowest] -= 1
        sizes[taker] += 1


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
