"""Split rules for operators that compute each output element from the input elements at the same place.

Any dimension of the output is an axis, named ``dimK``. An input of smaller rank, or of size 1 in that dimension, is
read whole, as numpy broadcasting has it (ONNX since opset 7; before, the ``broadcast`` and ``axis`` attributes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from planner.graph.op_graph import OpContext
from planner.split.common import AxesRule, Rule, input_at, rank_of, shape_of
from planner.split.regions import broadcast_axes, single_element
from planner.split.types import SplitAxis

_UNARY: Final = (
    *(
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitCast",
        "BitwiseNot",
        "Cast",
        "CastLike",
        "Ceil",
        "Celu",
    ),
    *("Clip", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf"),
    *(
        "IsNaN",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Not",
        "Reciprocal",
        "RegexFullMatch",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
    ),
    *("Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
    # Not in the standard any more, still in ONNX Runtime.
    *("Affine", "ParametricSoftplus", "ScaledTanh"),
)

_BINARY: Final = (
    *("Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual"),
    *("Less", "LessOrEqual", "Mod", "Mul", "Or", "Pow", "StringConcat", "Sub", "Xor"),
)

_VARIADIC: Final = ("Max", "Mean", "Min", "Sum")


def _unary(ctx: OpContext) -> Iterable[SplitAxis]:
    # Further inputs (bounds of Clip, the type giver of CastLike) do not take part.
    return broadcast_axes(ctx, (0,))


def _all_inputs(ctx: OpContext) -> Iterable[SplitAxis]:
    return broadcast_axes(ctx, range(len(ctx.inputs)))


def _binary(ctx: OpContext) -> Iterable[SplitAxis]:
    if ctx.op.version >= 7:
        return _all_inputs(ctx)
    left, right = input_at(ctx, 0), input_at(ctx, 1)
    if not ctx.op.attr("broadcast", 0):
        return _all_inputs(ctx) if shape_of(left) == shape_of(right) else ()
    axis = ctx.op.attr("axis")
    if axis is None:
        return _all_inputs(ctx)
    return broadcast_axes(ctx, (0, 1), align={1: axis + rank_of(left) if axis < 0 else axis})


def _variadic(ctx: OpContext) -> Iterable[SplitAxis]:
    same = len({shape_of(info) for info in ctx.inputs}) == 1
    return _all_inputs(ctx) if ctx.op.version >= 8 or same else ()


def _prelu(ctx: OpContext) -> Iterable[SplitAxis]:
    slope = input_at(ctx, 1)
    if ctx.op.version >= 7 or rank_of(slope) != 1 or single_element(slope):
        return _all_inputs(ctx)
    # One slope a channel, and channels are dimension 1.
    return broadcast_axes(ctx, (0, 1), align={1: 1})


def _dropout(ctx: OpContext) -> Iterable[SplitAxis]:
    """Only where it is the identity: a random mask of a shard is not that of the whole."""
    if ctx.op.version < 7:
        inference = ctx.op.attr("is_test", 0) == 1
    elif ctx.op.version < 12 or input_at(ctx, 2) is None:
        inference = True
    else:
        training = ctx.constants[2]
        inference = training is not None and not training.any()
    return broadcast_axes(ctx, (0,), range(len(ctx.outputs))) if inference else ()


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    **{("", op_type): AxesRule(_unary) for op_type in _UNARY},
    **{("", op_type): AxesRule(_binary) for op_type in _BINARY},
    **{("", op_type): AxesRule(_variadic) for op_type in _VARIADIC},
    ("", "Dropout"): AxesRule(_dropout),
    ("", "PRelu"): AxesRule(_prelu),
    ("", "SwiGLU"): AxesRule(_all_inputs),
    ("", "Where"): AxesRule(_all_inputs),
    ("com.microsoft", "BiasGelu"): AxesRule(_all_inputs),
    ("com.microsoft", "FastGelu"): AxesRule(_all_inputs),
    ("com.microsoft", "Gelu"): AxesRule(_unary),
    ("com.microsoft", "QuickGelu"): AxesRule(_unary),
}
