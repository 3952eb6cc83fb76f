"""The table of split rules: the one place that says what may be split and how.

``split_axes`` answers for every operator; one without a rule, or of whose shapes too little is known, has no axes
and stays whole. What is checked here for all rules: extents are known for certain, and every region lies where
its :class:`AxisUse` says, inside its tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from planner.errors import PlanError
from planner.graph.op_graph import OpContext, TensorInfo
from planner.split import (
    along_axis,
    attention,
    conv,
    conv_transpose,
    elementwise,
    index,
    layout,
    matmul,
    normalization,
    pad_slice,
    pool,
    quantize,
    reduction,
    resize,
    rnn,
    shape,
)
from planner.split.common import Rule
from planner.split.types import AxisUse, Shard, SplitAxis

__all__ = ["RULES", "Rule", "covers", "has_rule", "known_axes", "shard_op", "split_axes"]


def _merge() -> Mapping[tuple[str, str], Rule]:
    merged: dict[tuple[str, str], Rule] = {}
    for module in (
        along_axis,
        attention,
        conv,
        conv_transpose,
        elementwise,
        index,
        layout,
        matmul,
        normalization,
        pad_slice,
        pool,
        quantize,
        reduction,
        resize,
        rnn,
        shape,
    ):
        for key, rule in module.RULES.items():
            if key in merged:
                raise ValueError(f"two split rules for {key}")
            merged[key] = rule
    return MappingProxyType(merged)


RULES: Final = _merge()


# Neither Slice nor Concat takes them.
_UNCUTTABLE: Final = frozenset(
    (
        "int2", "uint2", "int4", "uint4", "float4e2m1", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
        "float8e5m2fnuz", "float8e8m0",
    )
)  # fmt: skip


def _moving(ctx: OpContext) -> list[TensorInfo | None]:
    """Inputs that are no weights: those are cut beforehand, whatever their type."""
    return [info for info, fixed in zip(ctx.inputs, ctx.weights, strict=True) if not fixed]


def has_rule(domain: str, op_type: str) -> bool:
    """Whether there is a rule for the operator type; it may still offer no axis for some operator."""
    return (domain, op_type) in RULES


def split_axes(ctx: OpContext) -> tuple[SplitAxis, ...]:
    """Axes that an operator may be split along.

    Args:
        ctx: the operator with shapes and constants.

    Returns:
        The axes, each with at least two units; empty for operators without a rule, with values that are no
        tensors or have no known rank, and with bodies that capture values.
    """
    if any(info is not None and info.dtype in _UNCUTTABLE for info in (*_moving(ctx), *ctx.outputs)):
        return ()
    return tuple(axis for axis in known_axes(ctx) or () if axis.extent >= 2 and _fits(ctx, axis))


def known_axes(ctx: OpContext) -> tuple[SplitAxis, ...] | None:
    """What the operator's rule says of its axes, whether or not anything can be cut there.

    Returns:
        None if there is no rule, or too little is known of the operator to ask it.
    """
    rule = RULES.get((ctx.op.domain, ctx.op.op_type))
    if rule is None or ctx.op.captures or not all(_has_rank(info) for info in (*ctx.inputs, *ctx.outputs)):
        return None
    return rule.axes(ctx)


def shard_op(ctx: OpContext, axis: str, start: int, stop: int) -> Shard:
    """What the shard of units ``[start, stop)`` of an axis computes.

    Args:
        ctx: the operator with shapes and constants.
        axis: name of one of its :func:`split_axes`.
        start: first unit.
        stop: one past the last unit.

    Raises:
        PlanError: if the operator has no such axis, or the axis no such units.
    """
    offered = split_axes(ctx)
    chosen = next((candidate for candidate in offered if candidate.name == axis), None)
    if chosen is None:
        raise PlanError(
            f"{ctx.op.op_type} cannot be split along '{axis}'",
            where=ctx.op.name,
            expected=f"one of {', '.join(candidate.name for candidate in offered) or 'no axis at all'}",
            next_step="plan the model again",
        )
    if not 0 <= start < stop <= chosen.extent:
        raise PlanError(
            f"units {start} to {stop} of '{axis}' do not exist",
            where=ctx.op.name,
            expected=f"a range within 0 to {chosen.extent}",
            next_step="plan the model again",
        )
    return RULES[ctx.op.domain, ctx.op.op_type].shard(ctx, axis, start, stop)


def _has_rank(info: TensorInfo | None) -> bool:
    return info is None or (info.kind == "tensor" and info.shape is not None)


def _fits(ctx: OpContext, axis: SplitAxis) -> bool:
    """Whether the sizes of all cut dimensions are certain and agree with the axis."""
    values = (*zip(ctx.inputs, axis.inputs, strict=True), *zip(ctx.outputs, axis.outputs, strict=True))
    return all(use is None or covers(info, use, axis.extent) for info, use in values)


def covers(info: TensorInfo | None, use: AxisUse, extent: int) -> bool:
    """Whether the units of an axis make up the dimension that it shows in; with a halo, whether there is one."""
    if info is None or info.shape is None or not 0 <= use.axis < len(info.shape):
        return False
    size = info.shape[use.axis]
    # Fractions are slow, and this runs for every operator of large graphs.
    return size is not None and (not use.exact or size * use.scale.denominator == extent * use.scale.numerator)
