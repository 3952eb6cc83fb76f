"""Elementwise rules against ONNX Runtime: every dimension of the broadcast output can be split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Op, OpContext, TensorInfo
from planner.split.table import split_axes
from tests.split.harness import attributes_of, check_split, floats, ints

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def _dims(shape: tuple[int, ...]) -> list[str]:
    return [f"dim{k}" for k, size in enumerate(shape) if size > 1]


@st.composite
def broadcasts(draw: st.DrawFn, operands: int) -> tuple[tuple[int, ...], ...]:
    """Shapes that broadcast to the first one, which may itself have ones."""
    full = draw(shapes)
    found = []
    for _ in range(operands):
        kept = draw(st.integers(0, len(full)))
        found.append(tuple(size if draw(st.booleans()) else 1 for size in full[len(full) - kept :]))
    return (full, *found)


def context(op_type: str, inputs: list[TensorInfo | None], output: TensorInfo, version: int = 18) -> OpContext:
    names = tuple("" if info is None else info.name for info in inputs)
    op = Op("op", "", op_type, version, names, (output.name,))
    return OpContext(op, tuple(inputs), (output,), (None,) * len(inputs), (False,) * len(inputs))


@pytest.mark.parametrize(
    "op_type", ["Add", "Sub", "Mul", "Div", "Greater", "LessOrEqual", "Max", "Sum", "Mean", "Equal"]
)
@given(found=broadcasts(2))
@settings(max_examples=5, derandomize=True, deadline=None)
def test_binary_operators_split_along_every_dimension(op_type: str, found: tuple[tuple[int, ...], ...]) -> None:
    _, left, right = found
    full = np.broadcast_shapes(left, right)
    check_split(op_type, [floats(left, 1), floats(right, 2)], opset=13, exactly=_dims(full))


@pytest.mark.parametrize("op_type", ["Sum", "Min", "Mean"])
@given(found=broadcasts(3))
@settings(max_examples=5, derandomize=True, deadline=None)
def test_variadic_operators(op_type: str, found: tuple[tuple[int, ...], ...]) -> None:
    check_split(op_type, [floats(shape, k) for k, shape in enumerate(found)], opset=13, exactly=_dims(found[0]))


@given(found=broadcasts(3))
@settings(max_examples=9, derandomize=True, deadline=None)
def test_where(found: tuple[tuple[int, ...], ...]) -> None:
    _, condition, left, right = found
    values = [ints(condition, 0, 2).astype(bool), floats(left, 1), floats(right, 2)]
    check_split("Where", values, opset=16, exactly=_dims(np.broadcast_shapes(condition, left, right)))


@pytest.mark.parametrize(
    ("op_type", "attributes", "opset", "domain"),
    [
        ("Relu", {}, 14, ""),
        ("LeakyRelu", {"alpha": 0.2}, 16, ""),
        ("Elu", {"alpha": 0.5}, 6, ""),
        ("HardSwish", {}, 14, ""),
        ("Gelu", {"approximate": "tanh"}, 20, ""),
        ("Mish", {}, 18, ""),
        ("Erf", {}, 13, ""),
        ("Cast", {"to": 7}, 13, ""),
        ("Clip", {"min": -0.5, "max": 0.5}, 6, ""),
        ("Identity", {}, 16, ""),
        ("IsNaN", {}, 13, ""),
        ("Round", {}, 11, ""),
        ("Shrink", {"lambd": 0.3}, 9, ""),
        ("Dropout", {}, 7, ""),
        ("Gelu", {}, 1, "com.microsoft"),
        ("QuickGelu", {"alpha": 1.5}, 1, "com.microsoft"),
        ("FastGelu", {}, 1, "com.microsoft"),
    ],
)
def test_unary_operators(op_type: str, attributes: dict[str, object], opset: int, domain: str) -> None:
    for seed, shape in enumerate([(5,), (2, 3), (3, 1, 4, 2)]):
        check_split(op_type, [floats(shape)], attributes, opset=opset, domain=domain, exactly=_dims(shape), seed=seed)


def test_bounds_of_clip_are_read_whole() -> None:
    low, high = np.float32(-0.5), np.float32(0.25)
    check_split("Clip", [floats((3, 4)), np.asarray(low), np.asarray(high)], opset=13, exactly=["dim0", "dim1"])
    check_split("Clip", [floats((3, 4)), None, np.asarray(high)], opset=13, exactly=["dim0", "dim1"])


@pytest.mark.parametrize("op_type", ["BiasGelu", "FastGelu"])
def test_bias_follows_the_last_dimension(op_type: str) -> None:
    values = [floats((2, 3, 4)), floats((4,), 1)]
    check_split(op_type, values, opset=1, domain="com.microsoft", exactly=["dim0", "dim1", "dim2"])


@pytest.mark.parametrize("slope", [(3, 1, 1), (1,), (5,), (2, 3, 4, 5)])
def test_prelu(slope: tuple[int, ...]) -> None:
    check_split("PRelu", [floats((2, 3, 4, 5)), floats(slope, 1)], opset=9, exactly=["dim0", "dim1", "dim2", "dim3"])


def test_integer_and_logical_operators() -> None:
    left, right = ints((3, 4), 1, 9, 0), ints((4,), 1, 9, 1)
    check_split("Mod", [left, right], opset=13, exactly=["dim0", "dim1"])
    check_split("BitwiseXor", [left, right], opset=18, exactly=["dim0", "dim1"])
    check_split("And", [left > 4, right > 4], opset=7, exactly=["dim0", "dim1"])
    check_split("Pow", [floats((3, 4)) ** 2, right], opset=13, exactly=["dim0", "dim1"])
    shift = {"direction": "LEFT"}
    check_split("BitShift", [left.astype("uint8"), right.astype("uint8")], shift, opset=11, exactly=["dim0", "dim1"])


def test_type_giver_of_cast_like_is_read_whole() -> None:
    check_split("CastLike", [floats((3, 4)), ints((7,), 0, 2)], opset=15, exactly=["dim0", "dim1"])


def test_dropout_in_inference_mode_with_its_mask() -> None:
    values = [floats((3, 4)), np.asarray(np.float32(0.5)), np.asarray(False)]
    check_split("Dropout", values, opset=13, outputs=2, constants=(1, 2), exactly=["dim0", "dim1"])
    check_split("Dropout", values[:2], opset=13, outputs=2, exactly=["dim0", "dim1"])


@pytest.mark.parametrize(
    ("version", "attributes", "training"),
    [(6, {}, None), (12, {}, np.asarray(True)), (13, {}, "unknown")],
)
def test_random_dropout_is_never_split(version: int, attributes: dict[str, object], training: object) -> None:
    data, flag = TensorInfo("x", "float32", (4, 4)), TensorInfo("t", "bool", ())
    inputs = (data, None, flag) if version >= 12 else (data,)
    op = Op("op", "", "Dropout", version, ("x", "", "t")[: len(inputs)], ("y",), attributes_of(attributes))
    known = training if isinstance(training, np.ndarray) else None
    ctx = OpContext(op, inputs, (data,), (None, None, known)[: len(inputs)], (False,) * len(inputs))
    assert split_axes(ctx) == ()


def test_broadcast_by_attribute_before_opset_7() -> None:
    left, right, out = (
        TensorInfo(n, "float32", s) for n, s in (("a", (2, 3, 4, 5)), ("b", (3, 4)), ("y", (2, 3, 4, 5)))
    )
    op = Op("op", "", "Add", 6, ("a", "b"), ("y",), attributes_of({"broadcast": 1, "axis": 1}))
    axes = split_axes(OpContext(op, (left, right), (out,), (None, None), (False, False)))
    shown = {axis.name: None if axis.inputs[1] is None else axis.inputs[1].axis for axis in axes}
    assert shown == {"dim0": None, "dim1": 0, "dim2": 1, "dim3": None}


def test_sizes_that_depend_on_data_are_not_offered() -> None:
    left, right, out = (TensorInfo(n, "float32", s) for n, s in (("a", (None, 3)), ("b", (4, 3)), ("y", (4, 3))))
    assert [axis.name for axis in split_axes(context("Add", [left, right], out))] == ["dim1"]
    free = TensorInfo("y", "float32", (None, 3))
    assert [axis.name for axis in split_axes(context("Relu", [left], free))] == ["dim1"]
    assert split_axes(context("Relu", [TensorInfo("a", "float32", None)], free)) == ()


def test_sequences_are_not_split() -> None:
    several = TensorInfo("a", "float32", (4, 3), kind="sequence")
    assert split_axes(context("Identity", [several], several)) == ()
