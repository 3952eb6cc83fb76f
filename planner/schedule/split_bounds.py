"""Lower bounds on the step that hold for any split, by the plan's own cost function.

However operators are split, the step is at least

- the work of all shards, shared out: for any shares ``x`` of the devices, non-negative and adding up to 1, the sum over
  shards of the least over devices of ``x[d] * cost[shard, d]`` (the dual of sharing all work out fractionally; for
  equal devices equal shares are best; for different ones a few between "equal" and "by speed" are tried);
- the time of any chain of shards that wait for each other.

Cutting an operator finer makes chains shorter and the work more: every shard costs its overheads (``cost.floor``). So
no plan reaches both bounds. What it does reach, for any weight ``w``, is no less than ``w * work + (1 - w) * chain``,
of which the least over all splits is found operator by operator: a Lagrangian bound. The best of some weights counts.

Which chains there are depends on the splits. ``element_paths`` follows one element, drawn at random, from an output
back to the inputs, through the shards that hold it: on the average over the elements an operator in ``s`` parts takes
a ``1/s`` of its arithmetic, and all of one shard's overheads.

With measured costs shards may cost less than the floor; who uses these bounds then says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np

from planner.cost.floor import Floor
from planner.graph.op_graph import Op
from planner.graph.task_graph import I64
from planner.schedule.drafts import Setting
from planner.schedule.element_paths import Own, longest_path

_SHARES: Final = 16
# Weights of the work, in so many parts.
_WEIGHTS: Final = 24
# Numbers of parts: the first and the last of each range that is told apart.
_PARTS: Final = (*((n, n) for n in range(1, 9)), (9, 11), (12, 15), (16, 23), (24, 31), (32, 63), (64, 1 << 40))
_SUMS: Final = ((2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 16), (17, 1 << 40))


@dataclass(frozen=True, slots=True)
class _Ways:
    """How an operator may be split, and what that costs at least.

    Attributes:
        work: [ways, devices] time of all shards together, the fewest of the range.
        chain: [ways] mean time of a shard, the most of the range, on the fastest device.
        any_shard: least time of any shard at all, on the fastest device.
    """

    work: I64
    chain: I64
    any_shard: int


def any_split_bound_ns(setting: Setting) -> int:
    """The best of the bounds."""
    graph = setting.model.graph
    ways = {op.name: found for op, found in _all_ways(setting)}
    if not ways:
        return 0
    whole = np.stack([found.work[0] for found in ways.values()])
    work_ns, shares = work_bound(whole)
    work = int((whole * np.array(shares)).min(axis=1).sum())

    @cache
    def bound(weight: int) -> int:
        own = {name: _weighed(found, shares, weight) for name, found in ways.items()}
        return (weight * work + longest_path(graph, own)) // (_WEIGHTS * sum(shares))

    # Nearly concave in the weight: the best is between the two of any three neighbours that enclose it.
    low, high = 0, _WEIGHTS - 1
    while high - low > 2:
        third = (high - low) // 3
        if bound(low + third) < bound(high - third):
            low += third
        else:
            high -= third
    return max(work_ns, *(bound(weight) for weight in range(low, high + 1)))


def work_bound(floor: I64) -> tuple[int, list[int]]:
    """Bound by work, and the shares of the devices that give it.

    Args:
        floor: [operators, devices] least cost of each operator's shards together.
    """
    total = floor.sum(axis=0)
    count = len(total)
    fastest = int(total.min())
    best, best_shares = -1, [1] * count
    for part in range(_SHARES + 1):
        # From equal shares to shares in proportion to speed's inverse: a slow device's hours weigh less.
        shares = [(_SHARES - part) * 1000 + part * (1000 * fastest // max(int(total[d]), 1)) + 1 for d in range(count)]
        bound = -(-int((floor * np.array(shares, np.int64)[None, :]).min(axis=1).sum()) // sum(shares))
        if bound > best:
            best, best_shares = bound, shares
    return best, best_shares


def _weighed(ways: _Ways, shares: Sequence[int], weight: int) -> Own:
    """What an operator adds on a chain to what its work counts anyway, in units of ns * sum(shares) * _WEIGHTS."""
    scale = sum(shares) * (_WEIGHTS - weight)
    work = weight * (ways.work * np.array(shares)).min(axis=1)
    return Own(int((work + scale * ways.chain).min() - work[0]), scale * ways.any_shard)


def _all_ways(setting: Setting) -> Iterator[tuple[Op, _Ways]]:
    """Every operator of the unsplit graph with its ways."""
    workload = setting.workloads.build(())
    graph = workload.split.graph
    by_kind = {device.kind: device for device in setting.cluster.devices}
    kinds = [device.kind for device in setting.cluster.devices]
    for members in workload.groups.members:
        contexts = [graph.context(op) for op in members]
        floors = {kind: setting.costs.floors(contexts, device) for kind, device in by_kind.items()}
        for number, op in enumerate(members):
            yield op, _ways(setting, op, {kind: floors[kind][number] for kind in by_kind}, kinds)


def _ways(setting: Setting, op: Op, floors: Mapping[str, Floor], kinds: Sequence[str]) -> _Ways:
    most, most_sums = _most_parts(setting, op)
    cuts = [(first, min(last, most)) for first, last in _PARTS if first <= most]
    sums = [(first, min(last, most_sums)) for first, last in _SUMS if first <= most_sums]
    work = [[floors[kind].total_ns(first) for kind in kinds] for first, _ in cuts]
    chain = [min(floor.shard_ns(last) for floor in floors.values()) for _, last in cuts]
    for (first, last), (fewest, most_added), added in product(cuts, sums, (False, True)):
        work.append([floors[kind].total_ns(first, fewest, added=added) for kind in kinds])
        chain.append(min(floor.shard_ns(last, most_added, added=added) for floor in floors.values()))
    least = min(floor.any_shard_ns(most, most_sums) for floor in floors.values())
    return _Ways(np.array(work, np.int64), np.array(chain, np.int64), least)


def _most_parts(setting: Setting, op: Op) -> tuple[int, int]:
    """Into how many parts two splits can cut the outputs, and the sums."""
    axes = setting.axes.axes(op)
    outputs = sorted((axis.extent for axis in axes if axis.combine == "concat"), reverse=True)[:2]
    sums = sorted((axis.extent for axis in axes if axis.combine != "concat"), reverse=True)[:2]
    return int(np.prod([max(e, 1) for e in outputs], dtype=object)), int(
        np.prod([max(e, 1) for e in sums], dtype=object)
    )
