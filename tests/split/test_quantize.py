"""Rules of quantisation and of 8-bit operators against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Array
from tests.split.harness import check_split, floats, ints

_MS = "com.microsoft"
_NAMES = ("dim0", "dim1", "dim2", "dim3")


def _scale(shape: tuple[int, ...] = (), seed: int = 0) -> Array:
    return np.abs(floats(shape, seed)) * np.float32(0.1) + np.float32(0.01)


def _point(shape: tuple[int, ...] = (), seed: int = 0) -> Array:
    return ints(shape, 0, 20, seed, "uint8")


def _q(shape: tuple[int, ...], seed: int = 0) -> Array:
    return ints(shape, 0, 200, seed, "uint8")


@given(axis=st.integers(-3, 2), per_axis=st.booleans(), points=st.booleans(), opset=st.sampled_from([10, 13, 19, 21]))
@settings(max_examples=15, derandomize=True, deadline=None)
def test_one_scale_or_one_a_slice(axis: int, per_axis: bool, points: bool, opset: int) -> None:
    shape = (3, 4, 5)
    per_axis = per_axis and opset >= 13
    of = (shape[axis],) if per_axis else ()
    attributes = {"axis": axis if per_axis else None}
    more = [_scale(of, 1), *([_point(of, 2)] if points else [])]
    check_split("QuantizeLinear", [floats(shape), *more], attributes, opset=opset, exactly=_NAMES[:3])
    check_split("DequantizeLinear", [_q(shape), *more], attributes, opset=opset, exactly=_NAMES[:3])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_blocks_stay_whole(axis: int) -> None:
    shape, blocks = [6, 8, 4], [6, 8, 4]
    blocks[axis] //= 2
    more = [_scale(tuple(blocks), 1), _point(tuple(blocks), 2)]
    attributes = {"axis": axis, "block_size": 2}
    check_split("DequantizeLinear", [_q(tuple(shape)), *more], attributes, opset=21, exactly=_NAMES[:3])
    check_split("QuantizeLinear", [floats(shape), *more], attributes, opset=21, exactly=_NAMES[:3])


def test_a_short_last_block_is_not_cut() -> None:
    more = [_scale((4, 3), 1), _point((4, 3), 2)]
    check_split("DequantizeLinear", [_q((4, 5)), *more], {"axis": 1, "block_size": 2}, opset=21, exactly=["dim0"])


@pytest.mark.parametrize("per_axis", [False, True])
def test_contributed_quantisation(per_axis: bool) -> None:
    of = (4,) if per_axis else ()
    attributes = {"axis": 1 if per_axis else None}
    more = [_scale(of, 1), _point(of, 2)]
    check_split("QuantizeLinear", [floats((3, 4, 5)), *more], attributes, opset=1, domain=_MS, exactly=_NAMES[:3])
    check_split("DequantizeLinear", [_q((3, 4, 5)), *more], attributes, opset=1, domain=_MS, exactly=_NAMES[:3])


def test_dynamic_quantisation_is_not_split() -> None:
    check_split("DynamicQuantizeLinear", [floats((4, 5))], opset=11, outputs=3, exactly=[])


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("right", [(2, 3, 4), (3, 1), (4,), ()])
def test_binary_operators(op_type: str, right: tuple[int, ...]) -> None:
    values = [_q((2, 3, 4), 1), _scale(), _point(), _q(right, 2), _scale(), _point(), _scale(), _point()]
    check_split(op_type, values, opset=1, domain=_MS, exactly=_NAMES[:3])


@pytest.mark.parametrize(("op_type", "attributes"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})])
def test_unary_operators(op_type: str, attributes: dict[str, float]) -> None:
    values = [_q((2, 3, 4), 1), _scale(), _point(), _scale(), _point()]
    check_split(op_type, values, attributes, opset=1, domain=_MS, exactly=_NAMES[:3])


def test_where() -> None:
    condition = ints((3, 4), 0, 2).astype(bool)
    values = [condition, _q((2, 3, 4), 1), _scale(), _point(), _q((4,), 2), _scale(), _point(), _scale(), _point()]
    check_split("QLinearWhere", values, opset=1, domain=_MS, exactly=_NAMES[:3])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    values = [_scale(), _point(), _q((2, 3, 4), 1), _scale(), _point(), _q((2, 3, 4), 2), _scale((), 3), _point()]
    names = [f"dim{k}" for k in range(3) if k != axis % 3]
    check_split("QLinearConcat", values, {"axis": axis}, opset=1, domain=_MS, exactly=names)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_pools(channels_last: int) -> None:
    shape = (2, 6, 6, 4) if channels_last else (2, 4, 6, 6)
    values = [_q(shape, 1), _scale(), _point(), _scale(), _point()]
    attributes = {"channels_last": channels_last}
    check_split("QLinearGlobalAveragePool", values, attributes, opset=1, domain=_MS, exactly=["batch", "channel"])
    window = {**attributes, "kernel_shape": [2, 2], "strides": [2, 2]}
    check_split("QLinearAveragePool", values, window, opset=1, domain=_MS, exactly=["batch", "channel"])


@pytest.mark.parametrize(
    ("opset", "axis", "names"), [(11, 1, ["dim0"]), (13, 1, ["dim0", "dim2"]), (13, -1, ["dim0", "dim1"])]
)
def test_softmax(opset: int, axis: int, names: list[str]) -> None:
    values = [_q((2, 3, 4), 1), _scale(), _point(), np.asarray(np.float32(1 / 256)), np.asarray(0, "uint8")]
    check_split("QLinearSoftmax", values, {"opset": opset, "axis": axis}, opset=1, domain=_MS, exactly=names)
