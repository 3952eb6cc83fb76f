"""Rules of reductions against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Array, Op, OpContext, TensorInfo
from planner.split.table import split_axes
from tests.split.harness import check_split, floats, ints

_PARTIAL = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
_WHOLE = ("ReduceMean", "ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
_SHAPE = (3, 2, 4)


@pytest.mark.parametrize("op_type", [*_PARTIAL, *_WHOLE])
@given(
    axes=st.sets(st.integers(-3, 2), min_size=1, max_size=3),
    keepdims=st.sampled_from([0, 1, None]),
    opset=st.sampled_from([11, 13, 18]),
)
@settings(max_examples=6, derandomize=True, deadline=None)
def test_kept_and_reduced_dimensions(op_type: str, axes: set[int], keepdims: int | None, opset: int) -> None:
    reduced = sorted({axis % 3 for axis in axes})
    given_axes = reduced if min(axes) >= 0 else [axis - 3 for axis in reduced]
    kept = [f"dim{k}" for k in range(3) if k not in reduced]
    partial = [f"reduce{k}" for k in reduced] if op_type in _PARTIAL else []
    data = np.abs(floats(_SHAPE)) + np.float32(0.1)
    as_input = opset >= (13 if op_type == "ReduceSum" else 18)
    values: list[Array] = [data, np.asarray(given_axes, np.int64)] if as_input else [data]
    attributes = {"keepdims": keepdims, "axes": None if as_input else given_axes}
    check_split(op_type, values, attributes, opset=opset, constants=(1,) if as_input else (), exactly=[*kept, *partial])


@pytest.mark.parametrize("opset", [11, 18])
def test_no_axes_reduce_everything(opset: int) -> None:
    partial = ["reduce0", "reduce1", "reduce2"]
    check_split("ReduceMax", [floats(_SHAPE)], opset=opset, exactly=partial)
    check_split("ReduceMean", [floats(_SHAPE)], {"keepdims": 0}, opset=opset, exactly=[])


def test_empty_axes_may_mean_nothing() -> None:
    empty = np.asarray([], np.int64)
    attributes = {"noop_with_empty_axes": 1}
    names = ["dim0", "dim1", "dim2"]
    check_split("ReduceSum", [floats(_SHAPE), empty], attributes, opset=13, constants=(1,), exactly=names)
    check_split("ReduceSum", [floats(_SHAPE)], attributes, opset=13, exactly=names)
    check_split(
        "ReduceSum", [floats(_SHAPE), empty], opset=13, constants=(1,), exactly=["reduce0", "reduce1", "reduce2"]
    )


def test_types_that_cannot_be_combined_have_no_partial_values() -> None:
    data = ints((3, 4), -9, 9, dtype="int8")
    check_split("ReduceMax", [data], {"axes": [1]}, opset=13, exactly=["dim0"])
    check_split("ReduceMax", [data.astype("int32")], {"axes": [1]}, opset=13, exactly=["dim0", "reduce1"])


def test_unknown_axes_offer_nothing() -> None:
    data, axes, out = (
        TensorInfo("x", "float32", (4, 4)),
        TensorInfo("a", "int64", (1,)),
        TensorInfo("y", "float32", (4, 1)),
    )
    op = Op("op", "", "ReduceSum", 13, ("x", "a"), ("y",))
    assert split_axes(OpContext(op, (data, axes), (out,), (None, None), (False, False))) == ()
