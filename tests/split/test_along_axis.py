"""Softmax, TopK, ArgMax, CumSum, LpNormalization: all dimensions but one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.split.harness import check_split, floats
from tests.split.strategies import others, shapes


@settings(max_examples=40)
@given(data=st.data())
def test_softmax(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    opset = data.draw(st.sampled_from([1, 9, 11, 13, 18]))
    op_type = data.draw(st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]))
    low = 0 if opset < 11 else -len(shape)
    axis = data.draw(st.none() | st.integers(low, len(shape) - 1))
    if axis is None and len(shape) == 1 and opset < 13:
        axis = 0
    if opset >= 13:
        must = others(len(shape), -1 if axis is None else axis)
    else:
        must = [f"dim{dim}" for dim in range((1 if axis is None else axis) % len(shape))]
    check_split(op_type, [floats(shape)], {"axis": axis}, opset=opset, exactly=must)


@settings(max_examples=25)
@given(data=st.data())
def test_topk(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    k = np.array([data.draw(st.integers(1, shape[-1 if axis is None else axis]))])
    attributes = {"axis": axis, "largest": data.draw(st.sampled_from([None, 0, 1]))}
    must = others(len(shape), -1 if axis is None else axis)
    known = data.draw(st.booleans())
    check_split("TopK", [floats(shape), k], attributes, outputs=2, exactly=must, constants=(1,) if known else ())


def test_topk_with_an_attribute() -> None:
    check_split("TopK", [floats((3, 5, 2))], {"k": 2, "axis": 1}, opset=9, outputs=2, exactly=("dim0", "dim2"))


@settings(max_examples=25)
@given(data=st.data())
def test_argmax(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    attributes: dict[str, Any] = {"axis": axis, "keepdims": data.draw(st.sampled_from([None, 0, 1]))}
    attributes["select_last_index"] = data.draw(st.sampled_from([None, 1]))
    op_type = data.draw(st.sampled_from(["ArgMax", "ArgMin"]))
    check_split(op_type, [floats(shape)], attributes, exactly=others(len(shape), axis or 0))


@settings(max_examples=15)
@given(data=st.data())
def test_cumsum(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    attributes = {"exclusive": data.draw(st.sampled_from([None, 1])), "reverse": data.draw(st.sampled_from([None, 1]))}
    inputs = [floats(shape), np.array(axis, np.int64)]
    check_split("CumSum", inputs, attributes, exactly=others(len(shape), axis), constants=(1,))
    check_split("CumSum", inputs, attributes, exactly=())


@settings(max_examples=15)
@given(data=st.data())
def test_lp_normalization(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    attributes = {"axis": axis, "p": data.draw(st.sampled_from([1, 2]))}
    check_split(
        "LpNormalization", [floats(shape)], attributes, exactly=others(len(shape), -1 if axis is None else axis)
    )
