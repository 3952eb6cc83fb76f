"""The least that an operator's shards cost together, however it is split: what bounds over all splits rest on.

With estimated costs (``roofline.py``), operator by operator, since a split may let other operators be fused:

- Arithmetic: shards share out the iterations, so their operations add up to at least the operator's (halos add some),
  and the share of a device that a small product leaves idle only grows when it is cut.
- Bytes: weights are read, by some shard, each of them. Other values count nothing: a fusion may keep them inside.
- One kernel's overhead for an operator that starts one of its own whatever it is fused with: a convolution, a matrix
  product, a recurrent operator.

Measured costs obey no such law: half an operator may take less than half. There the floor scales what was measured,
and no plan may be called worse for it than the best one seen.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from planner.cluster.sheets import DataSheet
from planner.cost.flops import family, is_view
from planner.cost.roofline import compute_ns
from planner.graph.op_graph import OpContext
from planner.units import NS_PER_S

_ANCHORS: Final = ("conv", "depthwise", "matmul", "rnn")


class Floor(NamedTuple):
    """The least time of all shards of an operator together.

    Attributes:
        work_ns: what shards share out.
        launch_ns: what each shard costs on top.
    """

    work_ns: int
    launch_ns: int


def op_floor(op: OpContext, sheet: DataSheet) -> Floor:
    """The floor of one operator on one kind of device; zero for a view."""
    if is_view(op):
        return Floor(0, 0)
    group = family(op)
    launch = sheet.launch_ns if group in _ANCHORS else 0
    if group not in _ANCHORS:
        # Where what is fused with it starts the kernel, and reads what it reads, only its arithmetic is left.
        return Floor(max(compute_ns(op, sheet) - 1, 0), 0)
    weights = sum(info.nbytes for info, own in zip(op.inputs, op.weights, strict=True) if info is not None and own)
    return Floor(max(compute_ns(op, sheet) - 1, weights * NS_PER_S // sheet.bytes_per_s, 0), launch)
