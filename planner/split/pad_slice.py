"""Split rules: Pad and Slice, which move the rows of a dimension.

A shard of output rows pads, or cuts off, only what lies at its own edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import numpy as np

from planner.graph.op_graph import Attribute, OpContext
from planner.split.common import (
    AxesRule,
    Rule,
    change,
    const_ints,
    input_at,
    make_axis,
    output_at,
    positive_axis,
    rank_of,
    shape_of,
    size_of,
)
from planner.split.types import AxisUse, InputPart, Literal, Region, Shard, SplitAxis

_PADS_INPUT: Final = 11  # opset; before, pads and value are attributes
_SLICE_INPUT: Final = 10  # opset; before, starts, ends and axes are attributes
_PADS: Final = 1
_PAD_AXES: Final = 3
_STARTS: Final = 1
_ENDS: Final = 2
_SLICE_AXES: Final = 3
_STEPS: Final = 4


def _padding(ctx: OpContext) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Padded dimensions, and pads in front of each, then behind each; None where they are not known."""
    rank = rank_of(input_at(ctx, 0))
    if ctx.op.version < _PADS_INPUT:
        pads: tuple[int, ...] | None = ctx.op.attr("pads") if ctx.op.version >= 2 else None
    else:
        pads = const_ints(ctx, _PADS)
    dims: tuple[int, ...] | None = tuple(range(rank))
    if input_at(ctx, _PAD_AXES) is not None:
        stated = const_ints(ctx, _PAD_AXES)
        dims = None if stated is None else tuple(positive_axis(axis, rank) for axis in stated)
    if pads is None or dims is None or len(pads) != 2 * len(dims):
        return None
    return dims, tuple(pads)


def _pad_axes(ctx: OpContext) -> tuple[SplitAxis, ...]:
    known = _padding(ctx)
    if known is None:
        return ()
    dims, pads = known
    x, out = input_at(ctx, 0), output_at(ctx, 0)
    axes = []
    for dim in range(rank_of(x)):
        at = dims.index(dim) if dim in dims else -1
        before, after = (pads[at], pads[at + len(dims)]) if at >= 0 else (0, 0)
        plain = before == after == 0
        if not plain and (ctx.op.attr("mode", "constant") != "constant" or not size_of(x, dim)):
            continue
        if not plain and before + after + size_of(x, dim) != size_of(out, dim):
            continue
        axes.append(make_axis(ctx, f"dim{dim}", size_of(out, dim), {0: AxisUse(dim, exact=plain)}, {0: AxisUse(dim)}))
    return tuple(axes)


def _pad_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, plain: Shard) -> Shard:
    known, use = _padding(ctx), axis.inputs[0]
    if known is None or use is None or use.exact:
        return plain
    dims, pads = known
    at, size, changed = dims.index(use.axis), size_of(input_at(ctx, 0), use.axis), list(pads)
    first, last = start - pads[at], stop - pads[at]
    # A shard that lies in the padding alone still reads a row, which a negative pad cuts off again.
    low = min(max(first, 0), size - 1)
    high = max(min(last, size), low + 1) if last > 0 else 1
    changed[at], changed[at + len(dims)] = low - first, last - high
    region = Region.one(use.axis, low, high)
    if ctx.op.version < _PADS_INPUT:
        return change(plain, {"pads": Attribute.ints(changed)}, {0: region})
    return change(plain, inputs={0: region, _PADS: Literal(np.asarray(changed, np.int64))})


def _bounds(ctx: OpContext, dim: int) -> tuple[int, int, int] | None:
    """Position of a dimension among the sliced ones, first row and step; None where they are not known."""
    dims, starts, steps = _sliced(ctx), _starts(ctx), _steps(ctx)
    if dims is None or starts is None or steps is None or dims.count(dim) != 1:
        return None
    at, size = dims.index(dim), size_of(input_at(ctx, 0), dim)
    first = starts[at] + size if starts[at] < 0 else starts[at]
    return at, min(max(first, 0), size), steps[at]


def _sliced(ctx: OpContext) -> tuple[int, ...] | None:
    """Sliced dimensions; None where they are not known."""
    rank = rank_of(input_at(ctx, 0))
    if ctx.op.version < _SLICE_INPUT:
        stated = ctx.op.attr("axes") or tuple(range(len(ctx.op.attr("starts", ()))))
    elif input_at(ctx, _SLICE_AXES) is not None:
        stated = const_ints(ctx, _SLICE_AXES)
    else:
        count = shape_of(input_at(ctx, _STARTS))
        stated = tuple(range(count[0])) if count and count[0] is not None else None
    return None if stated is None else tuple(positive_axis(axis, rank) for axis in stated)


def _starts(ctx: OpContext) -> tuple[int, ...] | None:
    if ctx.op.version < _SLICE_INPUT:
        starts: tuple[int, ...] | None = ctx.op.attr("starts")
        return starts
    return const_ints(ctx, _STARTS) if const_ints(ctx, _ENDS) is not None else None


def _steps(ctx: OpContext) -> tuple[int, ...] | None:
    if input_at(ctx, _STEPS) is None:
        return (1,) * len(_sliced(ctx) or ())
    return const_ints(ctx, _STEPS)


def _slice_axes(ctx: OpContext) -> tuple[SplitAxis, ...]:
    sliced = _sliced(ctx)
    if sliced is None:
        return ()
    axes = []
    for dim in range(rank_of(input_at(ctx, 0))):
        made, use = size_of(output_at(ctx, 0), dim), AxisUse(dim)
        if dim in sliced:
            bounds = _bounds(ctx, dim)
            if bounds is None or bounds[2] < 1 or bounds[1] + (made - 1) * bounds[2] >= size_of(input_at(ctx, 0), dim):
                continue
            whole = bounds[2] == 1 and made == size_of(input_at(ctx, 0), dim)
            use = AxisUse(dim, Fraction(bounds[2]), exact=whole)
        axes.append(make_axis(ctx, f"dim{dim}", made, {0: use}, {0: AxisUse(dim)}))
    return tuple(axes)


def _slice_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, plain: Shard) -> Shard:
    """The shard reads its own rows, so that it slices from the first to the last of them."""
    use = axis.inputs[0]
    bounds = None if use is None else _bounds(ctx, use.axis)
    if use is None or bounds is None:
        return plain
    at, first, step = bounds
    low, high = first + start * step, first + (stop - 1) * step + 1
    region = Region.one(use.axis, low, high)
    if ctx.op.version < _SLICE_INPUT:
        starts, ends = list(ctx.op.attr("starts")), list(ctx.op.attr("ends"))
        starts[at], ends[at] = 0, high - low
        return change(plain, {"starts": Attribute.ints(starts), "ends": Attribute.ints(ends)}, {0: region})
    parts: dict[int, InputPart] = {0: region}
    for index, value in ((_STARTS, 0), (_ENDS, high - low)):
        known = ctx.constants[index]
        if known is not None:
            changed = known.copy()
            changed[at] = value
            parts[index] = Literal(changed)
    return change(plain, inputs=parts)


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Pad"): AxesRule(_pad_axes, _pad_shard),
    ("", "Slice"): AxesRule(_slice_axes, _slice_shard),
}
