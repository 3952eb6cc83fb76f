"""Evaluates operators on small constants: the shape arithmetic that exporters leave in a graph.

Only operators whose result is exact and so the same on every machine: no matrix products, no transcendental
functions. Integer division and remainder follow ONNX Runtime (C++: toward zero), not Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from planner.graph.op_graph import Array, Op
from planner.model.protos import dtype_name, numpy_dtype

Inputs = Sequence[Array | None]

# Types whose arithmetic numpy does natively; the others are left to ONNX Runtime.
_KINDS: Final = "biuf"


def fold(op: Op, inputs: Inputs, limit_bytes: int) -> Array | None:
    """The operator's value.

    Args:
        op: an operator of the default domain with one output.
        inputs: its inputs' values; None where absent.
        limit_bytes: a larger result is not folded.

    Returns:
        The value, or None if the operator is not one that is folded, or its inputs do not fit it.
    """
    function = _FOLDERS.get(op.op_type)
    if function is None or any(value is not None and value.dtype.kind not in _KINDS for value in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            result = function(op, inputs)
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError):
        # The inputs do not fit: inference says so with a better message.
        return None
    if result is None or result.nbytes > limit_bytes:
        return None
    return np.ascontiguousarray(result).reshape(result.shape)


def _need(inputs: Inputs, index: int) -> Array:
    value = inputs[index]
    if value is None:
        raise ValueError("missing input")
    return value


def _ints(op: Op, inputs: Inputs, index: int, name: str) -> list[int] | None:
    """A list that newer operator sets take as an input and older ones as an attribute."""
    value = inputs[index] if len(inputs) > index else None
    if value is not None:
        return [int(v) for v in value.reshape(-1)]
    listed = op.attr(name)
    return None if listed is None else [int(v) for v in listed]


def _unary(function: Callable[[Array], Any]) -> Callable[[Op, Inputs], Array]:
    def apply(op: Op, inputs: Inputs) -> Array:
        value = _need(inputs, 0)
        return np.asarray(function(value), value.dtype)

    return apply


def _binary(function: Callable[[Array, Array], Any], *, logical: bool = False) -> Callable[[Op, Inputs], Array | None]:
    def apply(op: Op, inputs: Inputs) -> Array | None:
        # Before opset 7, broadcasting had rules of its own.
        if op.version < 7 or len(inputs) != 2:
            return None
        left, right = _need(inputs, 0), _need(inputs, 1)
        if left.dtype != right.dtype:
            return None
        return np.asarray(function(left, right), np.bool_ if logical else left.dtype)

    return apply


def _divide(left: Array, right: Array) -> Array:
    if left.dtype.kind == "f":
        return np.asarray(left / right)
    if (right == 0).any():
        raise ZeroDivisionError
    quotient = left // right
    return np.asarray(np.where((left % right != 0) & ((left < 0) != (right < 0)), quotient + 1, quotient))


def _mod(op: Op, inputs: Inputs) -> Array | None:
    left, right = _need(inputs, 0), _need(inputs, 1)
    if left.dtype != right.dtype or (left.dtype.kind != "f" and (right == 0).any()):
        return None
    return np.asarray(np.fmod(left, right) if op.attr("fmod", 0) else np.mod(left, right), left.dtype)


def _variadic(function: Callable[[Array, Array], Any]) -> Callable[[Op, Inputs], Array | None]:
    def apply(op: Op, inputs: Inputs) -> Array | None:
        if op.version < 8:
            return None
        result = _need(inputs, 0)
        for index in range(1, len(inputs)):
            result = np.asarray(function(result, _need(inputs, index)), result.dtype)
        return result

    return apply


def _cast(op: Op, inputs: Inputs) -> Array | None:
    value, target = _need(inputs, 0), numpy_dtype(dtype_name(op.attr("to", 0)))
    if target.kind not in _KINDS:
        return None
    if value.dtype.kind == "f" and target.kind in "iu" and not np.isfinite(value).all():
        return None
    return value.astype(target)


def _concat(op: Op, inputs: Inputs) -> Array:
    return np.concatenate([_need(inputs, i) for i in range(len(inputs))], axis=op.attr("axis", 1))


def _unsqueeze(op: Op, inputs: Inputs) -> Array | None:
    axes = _ints(op, inputs, 1, "axes")
    return None if axes is None else np.expand_dims(_need(inputs, 0), tuple(axes))


def _squeeze(op: Op, inputs: Inputs) -> Array:
    axes = _ints(op, inputs, 1, "axes")
    return np.squeeze(_need(inputs, 0), None if axes is None else tuple(axes))


def _gather(op: Op, inputs: Inputs) -> Array:
    return np.take(_need(inputs, 0), _need(inputs, 1), axis=op.attr("axis", 0))


def _slice(op: Op, inputs: Inputs) -> Array | None:
    value = _need(inputs, 0)
    starts, ends = _ints(op, inputs, 1, "starts"), _ints(op, inputs, 2, "ends")
    if starts is None or ends is None:
        return None
    axes = _ints(op, inputs, 3, "axes") or list(range(len(starts)))
    steps = _ints(op, inputs, 4, "steps") or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = value.shape[axis]
        if step > 0:
            low, high = (min(max(v + size if v < 0 else v, 0), size) for v in (start, end))
        else:
            low = min(max(start + size if start < 0 else start, 0), size - 1)
            high = min(max(end + size if end < 0 else end, -1), size - 1)
        value = np.take(value, np.arange(low, high, step), axis=axis)
    return value


def _reshape(op: Op, inputs: Inputs) -> Array | None:
    value, target = _need(inputs, 0), _ints(op, inputs, 1, "shape")
    if target is None:
        return None
    if not op.attr("allowzero", 0):
        target = [value.shape[i] if size == 0 else size for i, size in enumerate(target)]
    return value.reshape(target)


def _transpose(op: Op, inputs: Inputs) -> Array:
    return np.transpose(_need(inputs, 0), op.attr("perm"))


def _expand(op: Op, inputs: Inputs) -> Array:
    value, target = _need(inputs, 0), tuple(_ints(op, inputs, 1, "shape") or ())
    return np.broadcast_to(value, np.broadcast_shapes(value.shape, target))


def _where(op: Op, inputs: Inputs) -> Array:
    return np.where(_need(inputs, 0), _need(inputs, 1), _need(inputs, 2))


def _range(op: Op, inputs: Inputs) -> Array | None:
    start, limit, delta = (_need(inputs, i).reshape(()) for i in range(3))
    # Float ranges accumulate rounding differently in every implementation.
    if start.dtype.kind not in "iu":
        return None
    return np.arange(int(start), int(limit), int(delta), dtype=start.dtype)


def _reduce(function: Callable[..., Any]) -> Callable[[Op, Inputs], Array | None]:
    def apply(op: Op, inputs: Inputs) -> Array | None:
        value, axes = _need(inputs, 0), _ints(op, inputs, 1, "axes")
        # Sums of floats depend on their order; integers do not.
        if value.dtype.kind not in "iu":
            return None
        if not axes and op.attr("noop_with_empty_axes", 0):
            return value
        keep = bool(op.attr("keepdims", 1))
        return np.asarray(function(value, axis=tuple(axes) if axes else None, keepdims=keep), value.dtype)

    return apply


def _tile(op: Op, inputs: Inputs) -> Array | None:
    return np.tile(_need(inputs, 0), _need(inputs, 1)) if op.version >= 6 else None


_FOLDERS: Final[dict[str, Callable[[Op, Inputs], Array | None]]] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and, logical=True),
    "Cast": _cast,
    "Ceil": _unary(np.ceil),
    "Concat": _concat,
    "Div": _binary(_divide),
    "Equal": _binary(np.equal, logical=True),
    "Expand": _expand,
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "Greater": _binary(np.greater, logical=True),
    "GreaterOrEqual": _binary(np.greater_equal, logical=True),
    "Identity": lambda op, inputs: _need(inputs, 0),
    "Less": _binary(np.less, logical=True),
    "LessOrEqual": _binary(np.less_equal, logical=True),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _mod,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Or": _binary(np.logical_or, logical=True),
    "Range": _range,
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
