"""Split rules for matrix products.

Axes: ``dimK`` for batch dimensions of the output, ``rows`` and ``columns`` of the product, and ``reduce``, the
dimension that is summed over, where shards' products add up (Megatron's row-parallel layer; Shoeybi et al. 2019,
section 3). Products that scale, quantise or activate their result have no ``reduce``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from planner.graph.op_graph import Attribute, OpContext, TensorInfo
from planner.split.common import (
    AxesRule,
    Rule,
    change,
    input_at,
    make_axis,
    output_at,
    rank_of,
    shape_of,
    size_of,
)
from planner.split.einsum import EINSUM
from planner.split.regions import COMBINABLE, MaybeUse, broadcast_use, known_axis, single_element, use
from planner.split.types import Absent, Shard, SplitAxis


@dataclass(frozen=True, slots=True)
class _Operands:
    """Which inputs of a product mean what.

    Attributes:
        left: the left factor.
        right: the right factor.
        of_rows: inputs that are single elements or go with the rows (scale of the left factor).
        of_columns: inputs that are single elements or go with the columns (bias, scale of the right factor).
        single: inputs that must be single elements.
        sums: whether partial products add up.
    """

    left: int = 0
    right: int = 1
    of_rows: tuple[int, ...] = ()
    of_columns: tuple[int, ...] = ()
    single: tuple[int, ...] = ()
    sums: bool = False


@dataclass(frozen=True, slots=True)
class _Layout:
    """Dimensions of one factor: the batch's in order, that of the product's rows or columns, and the summed one."""

    batch: tuple[int, ...]
    outer: int | None
    inner: int


def _layout(rank: int, outer_first: bool, batch_inside: bool = False) -> _Layout:
    if rank == 1:
        return _Layout((), None, 0)
    # transBatch: the first dimension of the matrix lies in front of the batch, not behind it.
    batch = tuple(range(1, rank - 1)) if batch_inside else tuple(range(rank - 2))
    front = 0 if batch_inside else rank - 2
    return _Layout(batch, front, rank - 1) if outer_first else _Layout(batch, rank - 1, front)


def _vector_use(info: TensorInfo | None, size: int) -> MaybeUse:
    """Where rows or columns show in a scale, zero point or bias of one value each."""
    if single_element(info):
        return None
    return use(0) if size_of(info, 0) == size else False


def _scale_use(info: TensorInfo | None, from_end: int, size: int) -> MaybeUse:
    """Where a dimension of the product, counted from its end, shows in a scale, zero point or bias."""
    if rank_of(info) == 1:
        return _vector_use(info, size) if from_end <= 2 else None
    return broadcast_use(info, -from_end, 0, size)


def _product_axes(ctx: OpContext, what: _Operands) -> Iterable[SplitAxis]:
    """Axes of ``A @ B`` as numpy has it, with the ``trans*`` attributes of ``FusedMatMul``."""
    left, right, output = input_at(ctx, what.left), input_at(ctx, what.right), output_at(ctx, 0)
    if not all(single_element(input_at(ctx, i)) for i in what.single):
        return
    attr = ctx.op.attr
    a = _layout(rank_of(left), not attr("transA", 0), bool(attr("transBatchA", 0)))
    b = _layout(rank_of(right), bool(attr("transB", 0)), bool(attr("transBatchB", 0)))
    rank = rank_of(output)
    num_batch = rank - (a.outer is not None) - (b.outer is not None)
    for dim in range(num_batch):
        size = size_of(output, dim)
        inputs: dict[int, MaybeUse] = {
            what.left: _batch_use(left, a, num_batch - dim, size),
            what.right: _batch_use(right, b, num_batch - dim, size),
        }
        for i in (*what.of_rows, *what.of_columns):
            inputs[i] = _scale_use(input_at(ctx, i), num_batch - dim + 2, size)
        yield from known_axis(ctx, f"dim{dim}", size, inputs, {0: use(dim)})
    if a.outer is not None:
        dim, size = num_batch, size_of(output, num_batch)
        inputs = {i: _scale_use(input_at(ctx, i), 2, size) for i in what.of_rows}
        inputs[what.left] = use(a.outer)
        yield from known_axis(ctx, "rows", size, inputs, {0: use(dim)})
    if b.outer is not None:
        size = size_of(output, rank - 1)
        inputs = {i: _scale_use(input_at(ctx, i), 1, size) for i in what.of_columns}
        inputs[what.right] = use(b.outer)
        yield from known_axis(ctx, "columns", size, inputs, {0: use(rank - 1)})
    if what.sums and output is not None and output.dtype in COMBINABLE:
        size = size_of(left, a.inner)
        yield make_axis(ctx, "reduce", size, {what.left: use(a.inner), what.right: use(b.inner)}, {}, "sum")


def _batch_use(info: TensorInfo | None, layout: _Layout, from_end: int, size: int) -> MaybeUse:
    if from_end > len(layout.batch):
        return None
    dim = layout.batch[-from_end]
    own = shape_of(info)[dim]
    if own == size:
        return use(dim)
    return None if own == 1 else False


def _gemm_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """``alpha * A' @ B' + beta * C``; C is broadcast, and belongs to one shard of ``reduce`` only."""
    a, b = (_layout(2, not ctx.op.attr("transA", 0)), _layout(2, bool(ctx.op.attr("transB", 0))))
    output, bias = output_at(ctx, 0), input_at(ctx, 2)
    for name, dim, where in (("rows", 0, {0: use(a.outer or 0)}), ("columns", 1, {1: use(b.outer or 0)})):
        size = size_of(output, dim)
        yield from known_axis(ctx, name, size, {**where, 2: broadcast_use(bias, dim, 2, size)}, {0: use(dim)})
    if output is not None and output.dtype in COMBINABLE and not ctx.op.attr("activation", ""):
        size = size_of(input_at(ctx, 0), a.inner)
        yield make_axis(ctx, "reduce", size, {0: use(a.inner), 1: use(b.inner)}, {}, "sum")


def _gemm_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if axis.name != "reduce" or start == 0 or input_at(ctx, 2) is None:
        return shard
    if ctx.op.domain == "" and ctx.op.version < 11:
        # C was not optional then.
        return change(shard, {"beta": Attribute("float", 0.0)})
    return change(shard, inputs={2: Absent()})


def _qgemm_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    a, b = (_layout(2, not ctx.op.attr("transA", 0)), _layout(2, bool(ctx.op.attr("transB", 0))))
    if not all(single_element(input_at(ctx, i)) for i in (1, 2, 7, 8)):
        return
    rows, columns = size_of(output_at(ctx, 0), 0), size_of(output_at(ctx, 0), 1)
    bias = input_at(ctx, 6)
    yield from known_axis(ctx, "rows", rows, {0: use(a.outer or 0), 6: broadcast_use(bias, 0, 2, rows)}, {0: use(0)})
    of_columns = {i: broadcast_use(input_at(ctx, i), 1, 2, columns) for i in (4, 5, 6)}
    yield from known_axis(ctx, "columns", columns, {3: use(b.outer or 0), **of_columns}, {0: use(1)})


def _dynamic_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Only columns: the left factor is quantised with a scale of all its values."""
    found = _product_axes(ctx, _Operands(of_columns=(2, 3, 4)))
    return (axis for axis in found if axis.name == "columns")


def _nbits_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Weights lie as ``(N, blocks, bytes)``: columns of the product are rows of the weights, in whole blobs."""
    output = output_at(ctx, 0)
    rank = rank_of(output)
    for dim in range(rank - 1):
        name = "rows" if dim == rank - 2 else f"dim{dim}"
        yield make_axis(ctx, name, size_of(output, dim), {0: use(dim)}, {0: use(dim)})
    columns = size_of(output, rank - 1)
    if ctx.op.attr("weight_prepacked", 0) or columns == 0 or size_of(input_at(ctx, 1), 0) != columns:
        return
    uses = {1: use(0)}
    for i in (2, 3, 5):
        first = size_of(input_at(ctx, i), 0)
        if input_at(ctx, i) is not None:
            # Scales and zero points may also lie flat.
            if first == 0 or first % columns:
                return
            uses[i] = use(0, first // columns)
    yield make_axis(ctx, "columns", columns, uses, {0: use(rank - 1)})


def _nbits_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    return change(shard, {"N": Attribute.int(stop - start)}) if axis.name == "columns" else shard


def _product(what: _Operands) -> Rule:
    return AxesRule(lambda ctx: _product_axes(ctx, what))


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Einsum"): EINSUM,
    ("", "Gemm"): AxesRule(_gemm_axes, _gemm_shard),
    ("", "MatMul"): _product(_Operands(sums=True)),
    ("", "MatMulInteger"): _product(_Operands(of_rows=(2,), of_columns=(3,), sums=True)),
    ("", "QLinearMatMul"): _product(_Operands(0, 3, of_rows=(1, 2), of_columns=(4, 5), single=(6, 7))),
    ("com.microsoft", "DynamicQuantizeMatMul"): AxesRule(_dynamic_axes),
    ("com.microsoft", "FusedGemm"): AxesRule(_gemm_axes, _gemm_shard),
    ("com.microsoft", "FusedMatMul"): _product(_Operands(sums=True)),
    ("com.microsoft", "MatMulInteger16"): _product(_Operands(sums=True)),
    ("com.microsoft", "MatMulIntegerToFloat"): _product(_Operands(of_rows=(2, 4), of_columns=(3, 5, 6))),
    ("com.microsoft", "MatMulNBits"): AxesRule(_nbits_axes, _nbits_shard),
    ("com.microsoft", "QGemm"): AxesRule(_qgemm_axes),
    ("com.microsoft", "TransposeMatMul"): _product(_Operands(sums=True)),
}
