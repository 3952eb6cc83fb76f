"""Split rules: convolutions.

``Y[n, m, o] = sum over c, k of W[m, c, k] * X[n, c, o*stride - pad + k*dilation] + B[m]``. The batch and the output
channels are free; rows are free with a halo (``window.py``); a part of the input channels gives a partial sum, and the
bias then belongs to one shard only. With groups, output channels move with their group's input channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from planner.graph.op_graph import Attribute, OpContext
from planner.split.common import (
    AxesRule,
    Rule,
    change,
    find_axis,
    input_at,
    make_axis,
    output_at,
    plain_shard,
    shape_of,
    size_of,
)
from planner.split.types import Absent, AxisUse, Shard, SplitAxis
from planner.split.window import Window, kernel_of, splittable, window_shard, windows


@dataclass(frozen=True, slots=True)
class ConvRule:
    """A convolution by the places of its inputs.

    Attributes:
        x: input ``[N, C, ...]``.
        weight: ``[M, C/group, ...]``.
        bias: ``[M]``, or -1 for an operator that has none.
        residual: a tensor of the output's shape that is added, or -1.
        vectors: per-tensor or per-output-channel scales and zero points.
        linear: whether partial results of some of the input channels can be added up.
    """

    x: int = 0
    weight: int = 1
    bias: int = -1
    residual: int = -1
    vectors: tuple[int, ...] = ()
    linear: bool = True

    def axes(self, ctx: OpContext) -> tuple[SplitAxis, ...]:
        """See :class:`Rule`."""
        x, out = input_at(ctx, self.x), output_at(ctx, 0)
        rank = len(shape_of(x))
        if rank < 3 or len(shape_of(out)) != rank or len(shape_of(input_at(ctx, self.weight))) != rank:
            return ()
        axes = [
            make_axis(ctx, "batch", size_of(x, 0), {self.x: AxisUse(0), self.residual: AxisUse(0)}, {0: AxisUse(0)}),
            *self._channels(ctx),
        ]
        found = self._windows(ctx)
        for i, window in enumerate(found):
            if window is not None and splittable(ctx.op, found, i):
                inputs = {self.x: window.use(i + 2), self.residual: AxisUse(i + 2)}
                axes.append(make_axis(ctx, f"spatial{i}", window.out, inputs, {0: AxisUse(i + 2)}))
        return tuple(axes)

    def _windows(self, ctx: OpContext) -> tuple[Window | None, ...]:
        kernel = kernel_of(ctx.op, input_at(ctx, self.weight))
        return windows(ctx.op, input_at(ctx, self.x), output_at(ctx, 0), kernel)

    def _channels(self, ctx: OpContext) -> list[SplitAxis]:
        """Output channels (whole groups if there are several), and input channels of an ungrouped convolution."""
        group = ctx.op.attr("group", 1)
        channels, made = size_of(input_at(ctx, self.x), 1), size_of(input_at(ctx, self.weight), 0)
        if group < 1 or not channels or not made or channels % group or made % group:
            return []
        per_unit = Fraction(1) if group == 1 else Fraction(made, group)
        inputs = {
            self.weight: AxisUse(0, per_unit),
            self.bias: AxisUse(0, per_unit),
            self.residual: AxisUse(1, per_unit),
        }
        for vector in self.vectors:
            if size_of(input_at(ctx, vector), 0) == made and made > 1:
                inputs[vector] = AxisUse(0, per_unit)
        if group > 1:
            inputs[self.x] = AxisUse(1, Fraction(channels, group))
            return [make_axis(ctx, "out_channel", group, inputs, {0: AxisUse(1, per_unit)})]
        axes = [make_axis(ctx, "out_channel", made, inputs, {0: AxisUse(1)})]
        if self.linear and not ctx.op.attr("activation"):
            partial = {self.x: AxisUse(1), self.weight: AxisUse(1)}
            axes.append(make_axis(ctx, "in_channel", channels, partial, {}, "sum"))
        return axes

    def shard(self, ctx: OpContext, axis: str, start: int, stop: int) -> Shard:
        """See :class:`Rule`."""
        plain = plain_shard(ctx, find_axis(self.axes(ctx), axis), start, stop)
        if axis.startswith("spatial"):
            return window_shard(plain, self._windows(ctx), int(axis.removeprefix("spatial")), start, stop, self.x)
        if axis == "out_channel" and ctx.op.attr("group", 1) > 1:
            return change(plain, {"group": Attribute.int(stop - start)})
        if axis == "in_channel" and start > 0:
            # The bias and the residual are added once.
            return change(plain, inputs={self.bias: Absent(), self.residual: Absent()})
        return plain


def _deformable(ctx: OpContext) -> tuple[SplitAxis, ...]:
    """Offsets and mask are per output position, the same for all channels; positions count from the input's corner."""
    every = {0: AxisUse(0), 2: AxisUse(0), 4: AxisUse(0)}
    batch = make_axis(ctx, "batch", size_of(input_at(ctx, 0), 0), every, {0: AxisUse(0)})
    if ctx.op.attr("group", 1) != 1:
        return (batch,)
    made = size_of(input_at(ctx, 1), 0)
    return (batch, make_axis(ctx, "out_channel", made, {1: AxisUse(0), 3: AxisUse(0)}, {0: AxisUse(1)}))


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Conv"): ConvRule(bias=2),
    ("com.microsoft", "FusedConv"): ConvRule(bias=2, residual=3),
    ("", "DeformConv"): AxesRule(_deformable),
    ("", "ConvInteger"): ConvRule(vectors=(3,)),
    ("", "QLinearConv"): ConvRule(weight=3, bias=8, vectors=(4, 5), linear=False),
}
