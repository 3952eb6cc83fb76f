"""Split rules for reductions.

A dimension that is kept is an axis ``dimK`` (K counts in the input). A reduced one is an axis ``reduceK`` where the
shards' values can be combined: sums add up, maxima and minima are taken again. Means, norms and products cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    size_of,
)
from planner.split.regions import COMBINABLE, use
from planner.split.types import SplitAxis

_COMBINE: Final = {
    "ReduceL1": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceSum": "sum",
    "ReduceSumSquare": "sum",
}
_OTHERS: Final = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd")


def _reduced(ctx: OpContext) -> frozenset[int] | None:
    """The reduced dimensions; None where the axes are not known."""
    rank = rank_of(input_at(ctx, 0))
    as_input = ctx.op.version >= (13 if ctx.op.op_type == "ReduceSum" else 18)
    if not as_input:
        axes = tuple(ctx.op.attr("axes", ()))
    elif input_at(ctx, 1) is None:
        axes = ()
    else:
        known = const_ints(ctx, 1)
        if known is None:
            return None
        axes = known
    if not axes and not (as_input and ctx.op.attr("noop_with_empty_axes", 0)):
        return frozenset(range(rank))
    return frozenset(positive_axis(axis, rank) for axis in axes)


def _axes(ctx: OpContext) -> Iterable[SplitAxis]:
    data = input_at(ctx, 0)
    reduced = _reduced(ctx)
    if reduced is None or data is None:
        return
    keep = ctx.op.attr("keepdims", 1)
    combine = _COMBINE.get(ctx.op.op_type) if data.dtype in COMBINABLE else None
    out = 0
    for dim in range(rank_of(data)):
        if dim not in reduced:
            # The output's size counts: observed or inferred, it is the one that shards must add up to.
            yield make_axis(ctx, f"dim{dim}", size_of(output_at(ctx, 0), out), {0: use(dim)}, {0: use(out)})
        elif combine is not None:
            yield make_axis(ctx, f"reduce{dim}", size_of(data, dim), {0: use(dim)}, {}, combine)
        out += int(keep or dim not in reduced)


RULES: Final[Mapping[tuple[str, str], Rule]] = {("", op_type): AxesRule(_axes) for op_type in (*_COMBINE, *_OTHERS)}
