"""The least that an operator's shards cost together, however it is split: what bounds over all splits rest on.

With estimated costs this is a theorem about the roofline (``roofline.py``). Shards share out the iterations: their
operations add up to at least the operator's (halos add some), and the share of a device that a small product leaves
idle only grows when it is cut. Every output element is written by some shard, and every input element read, except
where an operator skips some: windows, and what moves data; of these only outputs and weights count. So sums over
shards of operations / rate and of bytes / bandwidth are no less than the whole's, hence so is the sum of their maxima;
and there is at least one kernel's overhead.

Measured costs obey no theorem: half an operator may take less than half. There the floor scales what was measured, and
whoever knows measured shards has to take the least of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.cluster.sheets import DataSheet
from planner.cost.flops import family, is_view
from planner.cost.roofline import compute_ns
from planner.graph.op_graph import OpContext
from planner.units import NS_PER_S

# Not windows with strides, not what picks elements.
_READS_ALL: Final = ("elementwise", "matmul", "rnn", "normalization")


def group_floor_ns(ops: Sequence[OpContext], sheet: DataSheet) -> int:
    """Least sum of the times of a group's shards, one kernel's overhead included; 0 if every operator is a view.

    Args:
        ops: a fused group of the unsplit graph, in topological order.
        sheet: the device's data sheet.
    """
    working = [op for op in ops if not is_view(op)]
    if not working:
        return 0
    compute = sum(compute_ns(op, sheet) for op in working)
    return max(compute, _floor_bytes(ops, working) * NS_PER_S // sheet.bytes_per_s) + sheet.launch_ns


def _floor_bytes(ops: Sequence[OpContext], working: Sequence[OpContext]) -> int:
    """Bytes that cross the group's border whatever its shards are: what it surely reads, and what it leaves behind."""
    made = {name for op in ops for name in op.op.writes}
    read = {name for op in ops for name in op.op.reads}
    sizes: dict[str, int] = {}
    for op in working:
        for info in op.outputs:
            if info is not None and info.name not in read:
                sizes[info.name] = info.nbytes
        for info, is_weight in zip(op.inputs, op.weights, strict=True):
            if info is not None and info.name not in made and _surely_reads(op, is_weight):
                sizes[info.name] = info.nbytes
    return sum(sizes.values())


def _surely_reads(op: OpContext, is_weight: bool) -> bool:
    """Whether every element of an input is read, however the operator is split."""
    group = family(op)
    return group in _READS_ALL or (is_weight and group in ("conv", "depthwise"))
