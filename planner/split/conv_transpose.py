"""Split rules: transposed convolution.

Input row ``i`` adds to the rows ``i*stride + k*dilation`` for ``k`` in ``[0, kernel)`` of a full result, of which
``pad_begin`` rows in front and ``pad_end`` rows behind are cut off (and ``output_padding`` rows put behind). A shard of
output rows takes the input rows that reach them, and cuts off what it makes too much: its own pads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from planner.graph.op_graph import Attribute, OpContext
from planner.split.common import Rule, change, input_at, make_axis, output_at, plain_shard, shape_of, size_of
from planner.split.types import Absent, AxisUse, Region, Shard, SplitAxis
from planner.split.window import kernel_of


@dataclass(frozen=True, slots=True)
class _Spread:
    """One spatial dimension: ``size`` input rows, ``out`` output rows, the operator's pads and output_padding."""

    size: int
    out: int
    reach: int
    stride: int
    pad_begin: int
    pad_end: int
    extra: int

    @property
    def splittable(self) -> bool:
        """Whether sizes agree and pads are such that every range of rows is a transposed convolution of its own."""
        full = (self.size - 1) * self.stride + self.reach
        if self.out != full - self.pad_begin - self.pad_end + self.extra:
            return False
        return min(self.pad_begin, self.pad_end, self.extra) >= 0 and self.extra < self.stride

    @property
    def aligned(self) -> bool:
        """Whether every input row makes ``stride`` output rows of its own."""
        return self.reach == self.stride and self.out == self.size * self.stride and self.pad_begin == 0

    def reads(self, start: int, stop: int) -> tuple[int, int, int, int, int]:
        """Input rows of output rows ``[start, stop)``, then pads in front and behind, and output_padding."""
        first = start + self.pad_begin
        low = min(-(-(first - self.reach + 1) // self.stride), first // self.stride)
        low = min(max(low, 0), self.size - 1)
        high = min((stop - 1 + self.pad_begin) // self.stride + 1, self.size)
        surplus = (high - 1) * self.stride + self.reach - (stop + self.pad_begin)
        return low, high, first - low * self.stride, max(surplus, 0), max(-surplus, 0)


@dataclass(frozen=True, slots=True)
class ConvTransposeRule:
    """``X [N, C, ...]``, ``W [C, M/group, ...]``, ``B [M]``."""

    def axes(self, ctx: OpContext) -> tuple[SplitAxis, ...]:
        """See :class:`Rule`."""
        x, weight, out = input_at(ctx, 0), input_at(ctx, 1), output_at(ctx, 0)
        rank = len(shape_of(x))
        if rank < 3 or len(shape_of(out)) != rank or len(shape_of(weight)) != rank:
            return ()
        axes = [make_axis(ctx, "batch", size_of(x, 0), {0: AxisUse(0)}, {0: AxisUse(0)}), *self._channels(ctx)]
        found = _spreads(ctx)
        for i, spread in enumerate(found):
            if spread is None or not spread.splittable or (_derives_pads(ctx) and not all(map(_explicit, found))):
                continue
            dim, name = i + 2, f"spatial{i}"
            if spread.aligned:
                axes.append(
                    make_axis(ctx, name, spread.size, {0: AxisUse(dim)}, {0: AxisUse(dim, Fraction(spread.stride))})
                )
            else:
                use = AxisUse(dim, Fraction(1, spread.stride), exact=False)
                axes.append(make_axis(ctx, name, spread.out, {0: use}, {0: AxisUse(dim)}))
        return tuple(axes)

    def _channels(self, ctx: OpContext) -> list[SplitAxis]:
        group = ctx.op.attr("group", 1)
        channels, made = size_of(input_at(ctx, 0), 1), size_of(input_at(ctx, 1), 1)
        if group < 1 or channels % group:
            return []
        if group > 1:
            per_group = AxisUse(1, Fraction(channels, group))
            inputs = {0: per_group, 1: AxisUse(0, per_group.scale), 2: AxisUse(0, Fraction(made))}
            return [make_axis(ctx, "out_channel", group, inputs, {0: AxisUse(1, Fraction(made))})]
        return [
            make_axis(ctx, "out_channel", made, {1: AxisUse(1), 2: AxisUse(0)}, {0: AxisUse(1)}),
            make_axis(ctx, "in_channel", channels, {0: AxisUse(1), 1: AxisUse(0)}, {}, "sum"),
        ]

    def shard(self, ctx: OpContext, axis: str, start: int, stop: int) -> Shard:
        """See :class:`Rule`."""
        chosen = next(found for found in self.axes(ctx) if found.name == axis)
        if axis.startswith("spatial"):
            return _rows(ctx, chosen, int(axis.removeprefix("spatial")), start, stop)
        plain = plain_shard(ctx, chosen, start, stop)
        if axis == "out_channel" and ctx.op.attr("group", 1) > 1:
            return change(plain, {"group": Attribute.int(stop - start)})
        if axis == "in_channel" and start > 0:
            return change(plain, inputs={2: Absent()})
        return plain


def _derives_pads(ctx: OpContext) -> bool:
    """Whether pads follow from the output's shape."""
    return bool(ctx.op.attr("output_shape")) or ctx.op.attr("auto_pad", "NOTSET") not in ("NOTSET", "")


def _explicit(spread: _Spread | None) -> bool:
    """Whether explicit pads say the same; an output larger than what there is would take pads of less than nothing.

    A shard states the pads of all dimensions, so this must hold of each of them.
    """
    return spread is not None and spread.splittable


def _spreads(ctx: OpContext) -> tuple[_Spread | None, ...]:
    op, kernel = ctx.op, kernel_of(ctx.op, input_at(ctx, 1))
    rank = len(kernel)
    strides, dilations = op.attr("strides") or (1,) * rank, op.attr("dilations") or (1,) * rank
    pads, extra = op.attr("pads") or (0,) * (2 * rank), op.attr("output_padding") or (0,) * rank
    found: list[_Spread | None] = []
    for i, taps in enumerate(kernel):
        size, out = size_of(input_at(ctx, 0), i + 2), size_of(output_at(ctx, 0), i + 2)
        if not taps or not size or not out:
            found.append(None)
            continue
        reach = (taps - 1) * dilations[i] + 1
        begin, end = pads[i], pads[i + rank]
        if _derives_pads(ctx):
            total = (size - 1) * strides[i] + reach + extra[i] - out
            begin = total // 2 if op.attr("auto_pad", "NOTSET") == "SAME_UPPER" else total - total // 2
            end = total - begin
        found.append(_Spread(size, out, reach, strides[i], begin, end, extra[i]))
    return tuple(found)


def _rows(ctx: OpContext, axis: SplitAxis, i: int, start: int, stop: int) -> Shard:
    known = [spread for spread in _spreads(ctx) if spread is not None]
    spread = _spreads(ctx)[i]
    if spread is None:
        raise ValueError(f"spatial dimension {i} is not known")
    rank = len(_spreads(ctx))
    pads = list(ctx.op.attr("pads") or (0,) * (2 * rank))
    if _derives_pads(ctx):
        pads = [other.pad_begin for other in known] + [other.pad_end for other in known]
    extra = list(ctx.op.attr("output_padding") or (0,) * rank)
    per_unit = spread.stride if spread.aligned else 1
    low, high, pads[i], pads[i + rank], extra[i] = spread.reads(start * per_unit, stop * per_unit)
    # The plain shard of the outputs; the input's rows are no multiples of the units.
    whole = SplitAxis(axis.name, axis.extent, (None,) * len(axis.inputs), axis.outputs)
    plain = plain_shard(ctx, whole, start, stop)
    attributes = {"pads": Attribute.ints(pads)}
    if any(extra):
        attributes["output_padding"] = Attribute.ints(extra)
    dropped = ("auto_pad", "output_shape", "output_padding")
    return change(plain, attributes, {0: Region.one(i + 2, low, high)}, without=dropped)


RULES: Final[Mapping[tuple[str, str], Rule]] = {("", "ConvTranspose"): ConvTransposeRule()}
