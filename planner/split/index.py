"""Split rules for operators that read or write at positions given by a tensor of indices.

Indices are split like any data, with the table they point into read whole; dimensions that no index points into
are split with the indices read whole. A dimension that an index points into is never split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from planner.graph.op_graph import OpContext
from planner.split.common import (
    AxesRule,
    Rule,
    input_at,
    make_axis,
    output_at,
    positive_axis,
    rank_of,
    size_of,
)
from planner.split.regions import use
from planner.split.types import SplitAxis


def _gather(ctx: OpContext) -> Iterable[SplitAxis]:
    data, indices, output = input_at(ctx, 0), input_at(ctx, 1), output_at(ctx, 0)
    axis = positive_axis(ctx.op.attr("axis", 0), rank_of(data))
    for dim in range(rank_of(output)):
        if dim < axis:
            where = {0: use(dim)}
        elif dim < axis + rank_of(indices):
            where = {1: use(dim - axis)}
        else:
            where = {0: use(dim - rank_of(indices) + 1)}
        yield make_axis(ctx, f"dim{dim}", size_of(output, dim), where, {0: use(dim)})


def _gather_elements(ctx: OpContext) -> Iterable[SplitAxis]:
    axis = positive_axis(ctx.op.attr("axis", 0), rank_of(input_at(ctx, 0)))
    for dim in range(rank_of(output_at(ctx, 0))):
        size = size_of(output_at(ctx, 0), dim)
        # The indices may be smaller than the data: what lies behind them is never read.
        same = size_of(input_at(ctx, 0), dim) == size
        data = {} if dim == axis else {0: use(dim, exact=same)}
        yield make_axis(ctx, f"dim{dim}", size, {**data, 1: use(dim)}, {0: use(dim)})


def _gather_nd(ctx: OpContext) -> Iterable[SplitAxis]:
    indices, output = input_at(ctx, 1), output_at(ctx, 0)
    batch_dims = ctx.op.attr("batch_dims", 0)
    last = rank_of(indices) - 1
    depth = size_of(indices, last)
    if depth == 0:
        return
    for dim in range(rank_of(output)):
        if dim < batch_dims:
            where = {0: use(dim), 1: use(dim)}
        elif dim < last:
            where = {1: use(dim)}
        else:
            where = {0: use(batch_dims + depth + dim - last)}
        yield make_axis(ctx, f"dim{dim}", size_of(output, dim), where, {0: use(dim)})


def _scatter_elements(ctx: OpContext) -> Iterable[SplitAxis]:
    data, indices = input_at(ctx, 0), input_at(ctx, 1)
    axis = positive_axis(ctx.op.attr("axis", 0), rank_of(data))
    for dim in range(rank_of(data)):
        if dim != axis and size_of(indices, dim) == size_of(data, dim):
            yield make_axis(
                ctx, f"dim{dim}", size_of(data, dim), {0: use(dim), 1: use(dim), 2: use(dim)}, {0: use(dim)}
            )


def _scatter_nd(ctx: OpContext) -> Iterable[SplitAxis]:
    data, indices = input_at(ctx, 0), input_at(ctx, 1)
    last = rank_of(indices) - 1
    depth = size_of(indices, last)
    if depth == 0:
        return
    for dim in range(depth, rank_of(data)):
        where = {0: use(dim), 2: use(last + dim - depth)}
        yield make_axis(ctx, f"dim{dim}", size_of(data, dim), where, {0: use(dim)})


def _embed_layer_normalization(ctx: OpContext) -> Iterable[SplitAxis]:
    """Only the batch: without position ids, positions count from the first token on."""
    batch = size_of(input_at(ctx, 0), 0)
    positions = input_at(ctx, 8)
    inputs = {0: use(0), 1: use(0), 7: use(0)}
    if size_of(positions, 0) == batch:
        inputs[8] = use(0)
    elif positions is not None and size_of(positions, 0) != 1:
        return
    yield make_axis(ctx, "batch", batch, inputs, {0: use(0), 1: use(0), 2: use(0)})


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Gather"): AxesRule(_gather),
    ("", "GatherElements"): AxesRule(_gather_elements),
    ("", "GatherND"): AxesRule(_gather_nd),
    ("", "Scatter"): AxesRule(_scatter_elements),
    ("", "ScatterElements"): AxesRule(_scatter_elements),
    ("", "ScatterND"): AxesRule(_scatter_nd),
    ("com.microsoft", "EmbedLayerNormalization"): AxesRule(_embed_layer_normalization),
    ("com.microsoft", "GatherND"): AxesRule(_gather_nd),
}
