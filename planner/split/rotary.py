"""Split rules for rotary position embeddings (Su et al. 2021): batch, sequence and heads are all independent.

The input is ``(batch, heads, sequence, size)``, or of rank 3 with the heads side by side in the last dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planner.graph.op_graph import Attribute, OpContext, TensorInfo
from planner.split.common import AxesRule, Rule, change, input_at, make_axis, rank_of, size_of
from planner.split.regions import MaybeUse, known_axis, use
from planner.split.types import Shard, SplitAxis


def _at(info: TensorInfo | None, axis: int, size: int) -> MaybeUse:
    if info is None:
        return None
    return use(axis) if size_of(info, axis) == size else False


def _heads_axis(ctx: OpContext, heads: int) -> Iterable[SplitAxis]:
    data = input_at(ctx, 0)
    axis = 1 if rank_of(data) == 4 else 2
    size = size_of(data, axis)
    if heads > 0 and size % heads == 0:
        where = {0: use(axis, size // heads)}
        yield make_axis(ctx, "heads", heads, where, where)


def _shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if axis.name != "heads" or not ctx.op.attr("num_heads", 0):
        return shard
    return change(shard, {"num_heads": Attribute.int(stop - start)})


def _onnx_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """X cos_cache sin_cache position_ids: without positions, the caches have one row for each token."""
    data, positions = input_at(ctx, 0), input_at(ctx, 3)
    for name, axis, dim in (("batch", 0, 0), ("sequence", 2 if rank_of(data) == 4 else 1, 1)):
        size = size_of(data, axis)
        inputs: dict[int, MaybeUse] = {i: _at(input_at(ctx, i), dim, size) for i in (1, 2)} if positions is None else {}
        inputs.update({0: use(axis), 3: _at(positions, dim, size)})
        yield from known_axis(ctx, name, size, inputs, {0: use(axis)})
    yield from _heads_axis(ctx, size_of(data, 1) if rank_of(data) == 4 else ctx.op.attr("num_heads", 0))


def _microsoft_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Input position_ids cos_cache sin_cache: the positions are one for each token, or the first token's alone."""
    data, positions = input_at(ctx, 0), input_at(ctx, 1)
    if ctx.op.attr("is_packed_batching", 0):
        return
    sequence = 2 if rank_of(data) == 4 else 1
    first_only = rank_of(positions) == 1
    size = size_of(data, 0)
    rows = None if first_only else _at(positions, 0, size)
    yield from known_axis(ctx, "batch", size, {0: use(0), 1: rows}, {0: use(0)})
    size = size_of(data, sequence)
    tokens = False if first_only else _at(positions, 1, size)
    yield from known_axis(ctx, "sequence", size, {0: use(sequence), 1: tokens}, {0: use(sequence)})
    if rank_of(data) == 4:
        heads = size_of(data, 1)
    elif ctx.op.attr("rotary_embedding_dim", 0):
        heads = ctx.op.attr("num_heads", 0)
    else:
        # The caches are as wide as half a head.
        heads = size_of(data, 2) // max(2 * size_of(input_at(ctx, 2), 1), 1)
    yield from _heads_axis(ctx, heads)


ONNX_ROTARY: Final[Rule] = AxesRule(_onnx_axes, _shard)
MICROSOFT_ROTARY: Final[Rule] = AxesRule(_microsoft_axes, _shard)
