"""Split rules: Resize, Upsample, and sampling at given places (GridSample, RoiAlign, MaxRoiPool).

A dimension that Resize leaves alone is free in every mode. One that it scales is free where a unit of ``p`` input
elements makes ``q`` output elements from these ``p`` alone, wherever the unit sits: nearest-neighbour modes whose
coordinates do not depend on the length. Interpolation reads beyond its unit, and no operator makes part of its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor, gcd
from typing import Final

import numpy as np

from planner.graph.op_graph import OpContext
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
    size_of,
)
from planner.split.types import AxisUse, Literal, Shard, SplitAxis

_SIZES: Final = 3  # Resize's input


def _resize_axes(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x, out = input_at(ctx, 0), output_at(ctx, 0)
    rank = rank_of(x)
    if ctx.op.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize" or rank != rank_of(out):
        return ()
    sizes = input_at(ctx, _SIZES) is not None
    if sizes and (const_ints(ctx, _SIZES) is None or ctx.op.attr("keep_aspect_ratio_policy", "stretch") != "stretch"):
        return ()
    found = []
    for dim in range(rank):
        size, made = size_of(x, dim), size_of(out, dim)
        if not size or not made:
            continue
        shared = gcd(size, made)
        p, q = size // shared, made // shared
        if not sizes and not _scales_by(ctx, dim, rank, p, q):
            continue
        if (p, q) == (1, 1) or _nearest_stays_in_unit(ctx, p, q):
            name = ("batch", "channel")[dim] if dim < 2 else f"spatial{dim - 2}"
            found.append(make_axis(ctx, name, shared, {0: AxisUse(dim, Fraction(p))}, {0: AxisUse(dim, Fraction(q))}))
    return tuple(found)


def _resized_dims(ctx: OpContext, rank: int) -> tuple[int, ...]:
    """Dimensions that scales and sizes speak of."""
    stated = ctx.op.attr("axes")
    return tuple(positive_axis(axis, rank) for axis in stated) if stated else tuple(range(rank))


def _scales_by(ctx: OpContext, dim: int, rank: int, p: int, q: int) -> bool:
    """Whether the scale of a dimension is ``q/p`` to the last digit: sizes are rounded down and do not tell."""
    dims = _resized_dims(ctx, rank)
    if dim not in dims:
        return True
    scales = ctx.op.attr("scales")
    if scales is None:
        at = 1 if ctx.op.op_type == "Upsample" or ctx.op.version < 11 else 2
        known = ctx.constants[at] if at < len(ctx.constants) else None
        scales = None if known is None else known.reshape(-1)
    return scales is not None and len(scales) == len(dims) and float(np.float32(scales[dims.index(dim)])) == q / p


def _nearest_stays_in_unit(ctx: OpContext, p: int, q: int) -> bool:
    """Whether output ``r`` of a unit, ``0 <= r < q``, comes from one of the unit's ``p`` inputs.

    Only whole factors up, and powers of two down: others are no exact floating-point numbers.
    """
    if ctx.op.attr("mode", "nearest") != "nearest" or (p > 1 and (q > 1 or p & (p - 1))):
        return False
    modern = ctx.op.op_type == "Resize" and ctx.op.version >= 11
    coordinates = ctx.op.attr("coordinate_transformation_mode", "half_pixel") if modern else "asymmetric"
    rounding = ctx.op.attr("nearest_mode", "round_prefer_floor") if modern else "floor"
    if not modern and p > 1:  # ONNX Runtime rounds up there
        return False
    if coordinates not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric"):
        return False
    if coordinates == "pytorch_half_pixel" and q == 1:  # a single output row is row 0 there
        return False
    half = Fraction(0) if coordinates == "asymmetric" else Fraction(1, 2)
    return all(0 <= _round((r + half) * Fraction(p, q) - half, rounding) < p for r in range(q))


def _round(value: Fraction, mode: str) -> int:
    if mode == "floor":
        return floor(value)
    if mode == "ceil":
        return ceil(value)
    half = Fraction(1, 2)
    return ceil(value - half) if mode == "round_prefer_floor" else floor(value + half)


def _resize_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, plain: Shard) -> Shard:
    sizes, use = const_ints(ctx, _SIZES), axis.outputs[0]
    if sizes is None or use is None:
        return plain
    dims = _resized_dims(ctx, rank_of(input_at(ctx, 0)))
    if use.axis not in dims:
        return plain
    changed = np.asarray(sizes, np.int64)
    changed[dims.index(use.axis)] = int((stop - start) * use.scale)
    return change(plain, inputs={_SIZES: Literal(changed)})


def _grid_sample(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x, out = input_at(ctx, 0), output_at(ctx, 0)
    axes = [
        make_axis(ctx, "batch", size_of(x, 0), {0: AxisUse(0), 1: AxisUse(0)}, {0: AxisUse(0)}),
        make_axis(ctx, "channel", size_of(x, 1), {0: AxisUse(1)}, {0: AxisUse(1)}),
    ]
    for dim in range(2, rank_of(out)):
        axes.append(make_axis(ctx, f"spatial{dim - 2}", size_of(out, dim), {1: AxisUse(dim - 1)}, {0: AxisUse(dim)}))
    return tuple(axes)


def _regions_of_interest(ctx: OpContext) -> tuple[SplitAxis, ...]:
    out = output_at(ctx, 0)
    return (
        make_axis(ctx, "rois", size_of(out, 0), {1: AxisUse(0), 2: AxisUse(0)}, {0: AxisUse(0)}),
        make_axis(ctx, "channel", size_of(out, 1), {0: AxisUse(1)}, {0: AxisUse(1)}),
    )


_RESIZE: Final = AxesRule(_resize_axes, _resize_shard)
_ROI: Final = AxesRule(_regions_of_interest)

RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Resize"): _RESIZE,
    ("", "Upsample"): _RESIZE,
    ("", "GridSample"): AxesRule(_grid_sample),
    ("com.microsoft", "GridSample"): AxesRule(_grid_sample),
    ("", "RoiAlign"): _ROI,
    ("", "MaxRoiPool"): _ROI,
}
