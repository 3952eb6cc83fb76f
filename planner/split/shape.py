"""Split rules for operators that change a tensor's shape and none of its values.

Axes are named ``dimK`` after the output's dimension. A Reshape keeps an axis where a run of input dimensions becomes a
run of output dimensions of the same number of elements: cutting the outermost dimension of both runs at a common
boundary cuts the same elements. ``(B, S, H) -> (B*S, H)`` has B units of 1 input row and S output rows each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd, prod
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
from planner.split.regions import use
from planner.split.types import Literal, Shard, SplitAxis

_Shape = tuple[int | None, ...]


def _runs(source: _Shape, target: _Shape) -> Iterator[tuple[int, int]]:
    """Outermost dimensions of matching runs, ``(input dimension, output dimension)``, while all sizes are known.

    Dimensions of size 1 belong to no run: they may stand anywhere.
    """
    left = [(dim, size) for dim, size in enumerate(source) if size != 1]
    right = [(dim, size) for dim, size in enumerate(target) if size != 1]
    i = j = 0
    while i < len(left) and j < len(right):
        first = left[i][0], right[j][0]
        a, b = left[i][1], right[j][1]
        if not a or not b:
            return
        i, j = i + 1, j + 1
        while a != b:
            line, at = (left, i) if a < b else (right, j)
            size = line[at][1] if at < len(line) else None
            if not size:
                return
            if a < b:
                a, i = a * size, i + 1
            else:
                b, j = b * size, j + 1
        yield first


def _runs_from_end(source: _Shape, target: _Shape) -> Iterator[tuple[int, int]]:
    """Like :func:`_runs`, from the last dimension on; the outermost dimension is the last one that a run takes in."""
    left = [(dim, size) for dim, size in enumerate(source) if size != 1]
    right = [(dim, size) for dim, size in enumerate(target) if size != 1]
    while left and right:
        (x, a), (y, b) = left.pop(), right.pop()
        if not a or not b:
            return
        while a != b:
            line = left if a < b else right
            dim, size = line.pop() if line else (0, None)
            if not size:
                return
            if a < b:
                x, a = dim, a * size
            else:
                y, b = dim, b * size
        yield x, y


def _reshape_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    source, target = shape_of(input_at(ctx, 0)), shape_of(output_at(ctx, 0))
    # A shard's shape can leave one size open, no more.
    if target.count(None) > 1 or 0 in source or 0 in target:
        return
    # Around a size that depends on data, runs are found from both ends.
    pairs = dict.fromkeys((*_runs(source, target), *_runs_from_end(source, target)))
    for x, y in sorted(pairs, key=lambda pair: pair[1]):
        a, b = source[x] or 0, target[y] or 0
        count = gcd(a, b)
        if count > 1:
            yield make_axis(ctx, f"dim{y}", count, {0: use(x, a // count)}, {0: use(y, b // count)})


def _with_size(shape: _Shape, axis: SplitAxis, start: int, stop: int) -> tuple[int, ...]:
    """The shape of a shard's output, -1 for a size that depends on data."""
    where = axis.outputs[0]
    return tuple(
        int((stop - start) * where.scale) if where is not None and dim == where.axis else -1 if size is None else size
        for dim, size in enumerate(shape)
    )


def _reshape_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    shape = _with_size(shape_of(output_at(ctx, 0)), axis, start, stop)
    if ctx.op.version < 5:
        return change(shard, {"shape": Attribute.ints(shape)})
    return change(shard, inputs={1: Literal(np.asarray(shape, np.int64))})


def _flatten_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """The outermost dimension before and after ``axis``; dimensions of size 1 in front of it do not matter."""
    source, target = shape_of(input_at(ctx, 0)), shape_of(output_at(ctx, 0))
    cut = positive_axis(ctx.op.attr("axis", 1), len(source))
    for dim, run in ((0, range(cut)), (1, range(cut, len(source)))):
        outer = next((k for k in run if source[k] != 1), None)
        if outer is None:
            continue
        count, size = source[outer], target[dim]
        if count and size and prod(source[k] or 0 for k in run) == size:
            yield make_axis(ctx, f"dim{dim}", count, {0: use(outer)}, {0: use(dim, size // count)})


def _moved(ctx: OpContext, source_of: Iterable[int | None]) -> Iterable[SplitAxis]:
    """Axes where each output dimension is an input dimension as it is, or (None) a new one."""
    output = output_at(ctx, 0)
    for dim, source in enumerate(source_of):
        if source is not None:
            yield make_axis(ctx, f"dim{dim}", size_of(output, dim), {0: use(source)}, {0: use(dim)})


def _transpose_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    return _moved(ctx, ctx.op.attr("perm") or range(rank_of(input_at(ctx, 0)) - 1, -1, -1))


def _triangle_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Which side of the diagonal an element is on depends on the last two dimensions only."""
    return _moved(ctx, range(rank_of(input_at(ctx, 0)) - 2))


def _axes_attribute(ctx: OpContext, rank: int) -> frozenset[int] | None:
    """The ``axes`` of Squeeze and Unsqueeze, an input since opset 13; None where there are none known."""
    axes = const_ints(ctx, 1) if ctx.op.version >= 13 else ctx.op.attr("axes")
    return None if axes is None else frozenset(positive_axis(axis, rank) for axis in axes)


def _squeezed(ctx: OpContext) -> frozenset[int] | None:
    source = shape_of(input_at(ctx, 0))
    axes = _axes_attribute(ctx, len(source))
    if axes is None and input_at(ctx, 1) is None and None not in source:
        return frozenset(dim for dim, size in enumerate(source) if size == 1)
    return axes


def _squeeze_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Without axes all dimensions of size 1 go, also one that only a shard would have.

    A shard names the axes in the attribute, or squeezes nothing. Since opset 13 neither may be possible; then
    the units are pairs, so that no shard has size 1.
    """
    gone = _squeezed(ctx)
    if gone is None:
        return
    kept = [dim for dim in range(rank_of(input_at(ctx, 0))) if dim not in gone]
    if ctx.op.version < 13 or input_at(ctx, 1) is not None or not gone:
        yield from _moved(ctx, kept)
        return
    for dim, source in enumerate(kept):
        size = size_of(output_at(ctx, 0), dim)
        if size % 2 == 0:
            yield make_axis(ctx, f"dim{dim}", size // 2, {0: use(source, 2)}, {0: use(dim, 2)})


def _squeeze_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if input_at(ctx, 1) is not None:
        return shard
    gone = tuple(sorted(_squeezed(ctx) or ()))
    if not gone:
        return Shard("Identity", "", {}, shard.inputs[:1], shard.outputs)
    return change(shard, {"axes": Attribute.ints(gone)}) if ctx.op.version < 13 else shard


def _unsqueeze_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    rank = rank_of(output_at(ctx, 0))
    new = _axes_attribute(ctx, rank)
    if new is None:
        return ()
    old = iter(range(rank))
    return _moved(ctx, [None if dim in new else next(old) for dim in range(rank)])


def _expand_target(ctx: OpContext) -> tuple[int, ...] | None:
    """The shape to expand to; the output's, which serves as well, where the input is not known."""
    known = const_ints(ctx, 1)
    shape = shape_of(output_at(ctx, 0))
    return known if known is not None else tuple(s or 0 for s in shape) if None not in shape else None


def _expand_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    source, target = shape_of(input_at(ctx, 0)), shape_of(output_at(ctx, 0))
    if _expand_target(ctx) is None:
        return
    for dim, size in enumerate(target):
        own = dim - (len(target) - len(source))
        if not size or (own >= 0 and source[own] is None):
            continue
        expanded = own < 0 or source[own] == 1
        yield make_axis(ctx, f"dim{dim}", size, {} if expanded else {0: use(own)}, {0: use(dim)})


def _expand_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    where, target = axis.outputs[0], _expand_target(ctx)
    if where is None or target is None:
        return shard
    at = where.axis - (rank_of(output_at(ctx, 0)) - len(target))
    sizes = tuple(stop - start if dim == at and size != 1 else size for dim, size in enumerate(target))
    return change(shard, inputs={1: Literal(np.asarray(sizes, np.int64))})


def _constant_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    for dim, size in enumerate(const_ints(ctx, 0) or ()):
        yield make_axis(ctx, f"dim{dim}", size, {}, {0: use(dim)})


def _constant_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    sizes = _with_size(const_ints(ctx, 0) or (), axis, start, stop)
    return change(shard, inputs={0: Literal(np.asarray(sizes, np.int64))})


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "ConstantOfShape"): AxesRule(_constant_axes, _constant_shard),
    ("", "Expand"): AxesRule(_expand_axes, _expand_shard),
    ("", "Flatten"): AxesRule(_flatten_axes),
    ("", "Reshape"): AxesRule(_reshape_axes, _reshape_shard),
    ("", "Squeeze"): AxesRule(_squeeze_axes, _squeeze_shard),
    ("", "Transpose"): AxesRule(_transpose_axes),
    ("", "Trilu"): AxesRule(_triangle_axes),
    ("", "Unsqueeze"): AxesRule(_unsqueeze_axes),
}
