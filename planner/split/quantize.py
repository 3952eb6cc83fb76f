"""Split rules for quantisation, and for the 8-bit operators of ONNX Runtime that are no products.

Scales and zero points of one value are read whole; those of one value a channel or a block follow the data where
the axis meets them. DynamicQuantizeLinear has no rule: its scale depends on all values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from planner.graph.op_graph import OpContext, TensorInfo
from planner.split.common import (
    AxesRule,
    Rule,
    input_at,
    make_axis,
    output_at,
    positive_axis,
    rank_of,
    shape_of,
    size_of,
)
from planner.split.regions import broadcast_axes, single_element, use
from planner.split.types import AxisUse, SplitAxis


def _linear_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """QuantizeLinear and DequantizeLinear: one scale, one a slice along ``axis`` (opset 13), or one a block (21)."""
    data, scale = input_at(ctx, 0), input_at(ctx, 1)
    rank = rank_of(data)
    axis = positive_axis(ctx.op.attr("axis", 1), rank)
    block = ctx.op.attr("block_size", 0)
    for dim in range(rank):
        size = size_of(data, dim)
        if block:
            yield from _blocked(ctx, dim, axis, block, scale)
        elif single_element(scale):
            yield make_axis(ctx, f"dim{dim}", size, {0: use(dim)}, {0: use(dim)})
        elif rank_of(scale) == 1:
            scales = {1: use(0), 2: use(0)} if dim == axis else {}
            yield make_axis(ctx, f"dim{dim}", size, {0: use(dim), **scales}, {0: use(dim)})


def _blocked(ctx: OpContext, dim: int, axis: int, block: int, scale: TensorInfo | None) -> Iterable[SplitAxis]:
    """Along the quantisation axis in whole blocks; not at all where the last block is short."""
    if rank_of(scale) != rank_of(input_at(ctx, 0)):
        return
    where = use(dim, block) if dim == axis else use(dim)
    yield make_axis(ctx, f"dim{dim}", size_of(scale, dim), {0: where, 1: use(dim), 2: use(dim)}, {0: where})


def _scalars(ctx: OpContext, inputs: Iterable[int]) -> bool:
    return all(single_element(input_at(ctx, i)) for i in inputs)


def _broadcast(*operands: int) -> Rule:
    """An elementwise operator with those operands; every other input must be a single value."""

    def find(ctx: OpContext) -> Iterable[SplitAxis]:
        others = (i for i in range(len(ctx.inputs)) if i not in operands)
        return broadcast_axes(ctx, operands) if _scalars(ctx, others) else ()

    return AxesRule(find)


def _concat_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """QLinearConcat: scale and zero point of the output, then data, scale and zero point of each input."""
    output = output_at(ctx, 0)
    axis = positive_axis(ctx.op.attr("axis", 0), rank_of(output))
    data = range(2, len(ctx.inputs), 3)
    for dim in range(rank_of(output)):
        if dim != axis:
            yield make_axis(ctx, f"dim{dim}", size_of(output, dim), {i: use(dim) for i in data}, {0: use(dim)})


def _pool_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Batch and channels; pooling mixes positions, never channels."""
    output = output_at(ctx, 0)
    channel = rank_of(output) - 1 if ctx.op.attr("channels_last", 0) else 1
    for name, dim in (("batch", 0), ("channel", channel)):
        yield make_axis(ctx, name, size_of(output, dim), {0: use(dim)}, {0: use(dim)})


def _softmax_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    """Before opset 13 a softmax covers all dimensions from ``axis`` on; the attribute ``opset`` says which it is."""
    rank = rank_of(input_at(ctx, 0))
    axis = positive_axis(ctx.op.attr("axis", -1), rank)
    for dim, size in enumerate(shape_of(output_at(ctx, 0))):
        if dim != axis and (dim < axis or ctx.op.attr("opset", 0) >= 13):
            yield make_axis(ctx, f"dim{dim}", size or 0, {0: use(dim)}, {0: use(dim)})


def _mean_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    rank = rank_of(input_at(ctx, 0))
    axes = ctx.op.attr("axes") or range(rank)
    reduced = frozenset(positive_axis(axis, rank) for axis in axes)
    out = 0
    for dim in range(rank):
        if dim not in reduced:
            where: dict[int, AxisUse | None] = {0: use(dim)}
            yield make_axis(ctx, f"dim{dim}", size_of(output_at(ctx, 0), out), where, {0: use(out)})
        out += int(ctx.op.attr("keepdims", 1) or dim not in reduced)


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "DequantizeLinear"): AxesRule(_linear_axes),
    ("", "QuantizeLinear"): AxesRule(_linear_axes),
    ("com.microsoft", "DequantizeLinear"): AxesRule(_linear_axes),
    ("com.microsoft", "QLinearAdd"): _broadcast(0, 3),
    ("com.microsoft", "QLinearAveragePool"): AxesRule(_pool_axes),
    ("com.microsoft", "QLinearConcat"): AxesRule(_concat_axes),
    ("com.microsoft", "QLinearGlobalAveragePool"): AxesRule(_pool_axes),
    ("com.microsoft", "QLinearLeakyRelu"): _broadcast(0),
    ("com.microsoft", "QLinearMul"): _broadcast(0, 3),
    ("com.microsoft", "QLinearReduceMean"): AxesRule(_mean_axes),
    ("com.microsoft", "QLinearSigmoid"): _broadcast(0),
    ("com.microsoft", "QLinearSoftmax"): AxesRule(_softmax_axes),
    ("com.microsoft", "QLinearWhere"): _broadcast(0, 1, 4),
    ("com.microsoft", "QuantizeLinear"): AxesRule(_linear_axes),
}
