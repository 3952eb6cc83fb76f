"""Split rules: operators that work along one dimension and leave the others independent.

Softmax and its kin, cumulative sums, TopK, ArgMax: every dimension but that one is free.
"""

from __future__ import annotations

from collections.abc import Mapping
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

_PER_AXIS_SOFTMAX: Final = 13  # before, the input is flattened to two dimensions at the axis


def _all_but(rank: int, axis: int) -> tuple[int, ...]:
    axis = positive_axis(axis, rank)
    return tuple(dim for dim in range(rank) if dim != axis) if 0 <= axis < rank else ()


def _softmax(ctx: OpContext) -> tuple[SplitAxis, ...]:
    rank = rank_of(input_at(ctx, 0))
    if ctx.op.version >= _PER_AXIS_SOFTMAX:
        return shared_dims(ctx, _all_but(rank, ctx.op.attr("axis", -1)))
    return shared_dims(ctx, range(positive_axis(ctx.op.attr("axis", 1), rank)))


def _lp_normalization(ctx: OpContext) -> tuple[SplitAxis, ...]:
    return shared_dims(ctx, _all_but(rank_of(input_at(ctx, 0)), ctx.op.attr("axis", -1)))


def _cumulative(ctx: OpContext) -> tuple[SplitAxis, ...]:
    axis = const_ints(ctx, 1)
    return () if axis is None else shared_dims(ctx, _all_but(rank_of(input_at(ctx, 0)), axis[0]))


def _topk(ctx: OpContext) -> tuple[SplitAxis, ...]:
    present = [o for o in (0, 1) if output_at(ctx, o) is not None]
    return shared_dims(ctx, _all_but(rank_of(input_at(ctx, 0)), ctx.op.attr("axis", -1)), outputs=present)


def _argmax(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x = input_at(ctx, 0)
    rank = rank_of(x)
    axis, keep = positive_axis(ctx.op.attr("axis", 0), rank), bool(ctx.op.attr("keepdims", 1))
    return tuple(
        make_axis(ctx, f"dim{dim}", size_of(x, dim), {0: AxisUse(dim)}, {0: AxisUse(dim - (dim > axis and not keep))})
        for dim in _all_but(rank, axis)
    )


_SOFTMAX: Final = AxesRule(_softmax)
_ARGMAX: Final = AxesRule(_argmax)

RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Softmax"): _SOFTMAX,
    ("", "LogSoftmax"): _SOFTMAX,
    ("", "Hardmax"): _SOFTMAX,
    ("", "LpNormalization"): AxesRule(_lp_normalization),
    ("", "CumSum"): AxesRule(_cumulative),
    ("", "TopK"): AxesRule(_topk),
    ("", "ArgMax"): _ARGMAX,
    ("", "ArgMin"): _ARGMAX,
}
