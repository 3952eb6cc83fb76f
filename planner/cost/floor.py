"""The least that an operator's shards cost, however it is split: what bounds over all splits rest on.

With estimated costs (``roofline.py``), operator by operator, since a split may let other operators be fused:

- Arithmetic: shards share out the iterations, so their operations add up to at least the operator's (halos add some).
- Fill: what a small product leaves idle does not become less when its outputs are cut: every shard costs it anew. Where
  the sum over inputs is cut instead, shards of the same outputs share it.
- Weights are read, by some shard, each of them. Other values count nothing: a fusion may keep them inside.
- One kernel's overhead for an operator that starts one of its own whatever it is fused with: a convolution, a matrix
  product, a recurrent operator. Every shard costs it.

Measured costs obey no such law: half an operator may take less than half. There the floor scales what was measured,
and no plan may be called worse for it than the best one seen.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from planner.cluster.sheets import DataSheet
from planner.cost.flops import NORM_FLOPS, family, is_view
from planner.cost.roofline import arithmetic_ns, compute_ns
from planner.graph.op_graph import OpContext, TensorInfo
from planner.units import NS_PER_S

_ANCHORS: Final = ("conv", "depthwise", "matmul", "rnn")


class Floor(NamedTuple):
    """The least time of an operator's shards.

    Attributes:
        arithmetic_ns: what shards share out.
        fill_ns: what each shard of the outputs costs on top of its arithmetic.
        weights_ns: reading the weights, shared out; at the same time as the arithmetic.
        launch_ns: what each shard costs on top of all that.
        adding_ns: reading two partial sums of all outputs, in a kernel that adds them.
    """

    arithmetic_ns: int
    fill_ns: int
    weights_ns: int
    launch_ns: int
    adding_ns: int

    def total_ns(self, outputs: int = 1, sums: int = 1, *, added: bool = False) -> int:
        """Least time of all shards together.

        Args:
            outputs: parts that the outputs are cut into.
            sums: parts that each of these is summed up from.
            added: whether kernels of their own add up; else each part's kernel adds what the one before it made.
        """
        shared = max(self.arithmetic_ns + outputs * self.fill_ns, self.weights_ns)
        adding = self.adding_ns + outputs * self.launch_ns if added else 0
        return shared + outputs * sums * self.launch_ns + adding

    def shard_ns(self, outputs: int, sums: int = 1, *, added: bool = False) -> int:
        """Least mean time from the start of a shard, each counted by its share of the operator, to the whole sum.

        Where each part's kernel adds what the one before it made, half of the others are still to come on the average.
        """
        part = max(self.arithmetic_ns // outputs + self.fill_ns, self.weights_ns // outputs)
        if sums == 1:
            return part + self.launch_ns
        if added:
            return part // sums + self.adding_ns // outputs + 2 * self.launch_ns
        return part * (sums + 1) // (2 * sums) + self.launch_ns

    def any_shard_ns(self, outputs: int, sums: int) -> int:
        """Least time of a shard whose share is the mean."""
        return max(self.arithmetic_ns // outputs + self.fill_ns, self.weights_ns // outputs) // sums + self.launch_ns


def op_floor(op: OpContext, sheet: DataSheet) -> Floor:
    """The floor of one operator on one kind of device; zero for a view."""
    if is_view(op):
        return Floor(0, 0, 0, 0, 0)
    # Shards' times are rounded up, their operations down: a nanosecond is given away to be on the safe side.
    arithmetic = max(arithmetic_ns(op, sheet) - 1, 0)
    if family(op) not in _ANCHORS:
        # Where what is fused with it starts the kernel, and reads what it reads, only its arithmetic is left.
        return Floor(arithmetic, 0, 0, 0, 0)
    fill = max(compute_ns(op, sheet) - arithmetic_ns(op, sheet) - 1, 0)
    weights = sum(info.nbytes for info, own in zip(op.inputs, op.weights, strict=True) if info is not None and own)
    return Floor(
        arithmetic, fill, weights * NS_PER_S // sheet.bytes_per_s, sheet.launch_ns, _adding_ns(op.outputs[0], sheet)
    )


def _adding_ns(output: TensorInfo | None, sheet: DataSheet) -> int:
    """Reading two tensors of that shape, less a normalisation's arithmetic: that may be fused with the addition."""
    if output is None:
        return 0
    reading = 2 * output.nbytes * NS_PER_S // sheet.bytes_per_s
    arithmetic = NORM_FLOPS * output.num_elements * 100 * NS_PER_S
    return max(reading - arithmetic // (sheet.peak_flops["float32"] * sheet.efficiency["normalization"]) - 1, 0)
