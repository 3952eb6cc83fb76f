"""Split rules: Concat, Split, Tile, DepthToSpace, SpaceToDepth, Col2Im, ReverseSequence."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Final

from planner.graph.op_graph import OpContext
from planner.split.common import (
    AxesRule,
    Rule,
    const_ints,
    input_at,
    make_axis,
    output_at,
    positive_axis,
    rank_of,
    shared_dims,
    size_of,
)
from planner.split.types import AxisUse, SplitAxis


def _concat(ctx: OpContext) -> tuple[SplitAxis, ...]:
    rank = rank_of(output_at(ctx, 0))
    axis = positive_axis(ctx.op.attr("axis", 1), rank)  # opset 4 and later always state it
    return shared_dims(ctx, (dim for dim in range(rank) if dim != axis), inputs=range(len(ctx.inputs)))


def _split(ctx: OpContext) -> tuple[SplitAxis, ...]:
    rank = rank_of(input_at(ctx, 0))
    axis = positive_axis(ctx.op.attr("axis", 0), rank)
    outputs = [o for o in range(len(ctx.outputs)) if output_at(ctx, o) is not None]
    return shared_dims(ctx, (dim for dim in range(rank) if dim != axis), outputs=outputs)


def _tile(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x, out = input_at(ctx, 0), output_at(ctx, 0)
    if ctx.op.version < 6:  # another operator of the same name
        return ()
    return shared_dims(ctx, (dim for dim in range(rank_of(x)) if 0 < size_of(x, dim) == size_of(out, dim)))


def _depth_to_space(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x, block = input_at(ctx, 0), ctx.op.attr("blocksize", 1)
    if rank_of(x) != 4:
        return ()
    axes = [*shared_dims(ctx, (0,), names={0: "batch"})]
    if ctx.op.attr("mode", "DCR") == "CRD":
        inputs = {0: AxisUse(1, Fraction(block * block))}
        axes.append(make_axis(ctx, "channel", size_of(output_at(ctx, 0), 1), inputs, {0: AxisUse(1)}))
    for i in (0, 1):
        outputs = {0: AxisUse(i + 2, Fraction(block))}
        axes.append(make_axis(ctx, f"spatial{i}", size_of(x, i + 2), {0: AxisUse(i + 2)}, outputs))
    return tuple(axes)


def _space_to_depth(ctx: OpContext) -> tuple[SplitAxis, ...]:
    out, block = output_at(ctx, 0), ctx.op.attr("blocksize", 1)
    if rank_of(out) != 4:
        return ()
    axes = [*shared_dims(ctx, (0,), names={0: "batch"})]
    for i in (0, 1):
        inputs = {0: AxisUse(i + 2, Fraction(block))}
        axes.append(make_axis(ctx, f"spatial{i}", size_of(out, i + 2), inputs, {0: AxisUse(i + 2)}))
    return tuple(axes)


def _col2im(ctx: OpContext) -> tuple[SplitAxis, ...]:
    batch = shared_dims(ctx, (0,), names={0: "batch"})
    block = const_ints(ctx, 2)
    if block is None:
        return batch
    inputs = {0: AxisUse(1, Fraction(prod(block)))}
    return (*batch, make_axis(ctx, "channel", size_of(output_at(ctx, 0), 1), inputs, {0: AxisUse(1)}))


def _reverse_sequence(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x, batch, time = input_at(ctx, 0), ctx.op.attr("batch_axis", 1), ctx.op.attr("time_axis", 0)
    lengths = make_axis(ctx, "batch", size_of(x, batch), {0: AxisUse(batch), 1: AxisUse(0)}, {0: AxisUse(batch)})
    return (lengths, *shared_dims(ctx, (dim for dim in range(rank_of(x)) if dim not in (batch, time))))


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Concat"): AxesRule(_concat),
    ("", "Split"): AxesRule(_split),
    ("", "Tile"): AxesRule(_tile),
    ("", "DepthToSpace"): AxesRule(_depth_to_space),
    ("", "SpaceToDepth"): AxesRule(_space_to_depth),
    ("", "Col2Im"): AxesRule(_col2im),
    ("", "ReverseSequence"): AxesRule(_reverse_sequence),
}
