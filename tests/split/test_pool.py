"""Pooling: windows, divisors, rounding up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.split.harness import check_split, floats, ints, make_case
from tests.split.strategies import windows

KINDS = [
    ("MaxPool", 8),
    ("MaxPool", 12),
    ("AveragePool", 7),
    ("AveragePool", 11),
    ("AveragePool", 19),
    ("LpPool", 11),
    ("LpPool", 18),
]


@settings(max_examples=40)
@given(data=st.data())
def test_pool(data: st.DataObject) -> None:
    op_type, opset = data.draw(st.sampled_from(KINDS))
    dims = data.draw(st.sampled_from([1, 2, 2, 3])) if op_type != "LpPool" else 2
    kernel, attributes = data.draw(windows(dims))
    attributes["kernel_shape"] = kernel
    if (op_type, opset) not in (("MaxPool", 12), ("AveragePool", 19), ("LpPool", 18)):
        attributes["dilations"] = None
    elif str(attributes["auto_pad"]).startswith("SAME"):
        attributes["dilations"] = [data.draw(st.integers(1, 3)) for _ in range(dims)]
    if str(attributes["auto_pad"]).startswith("SAME"):  # it refuses to pad by less than nothing
        steps = attributes["strides"] or [1] * dims
        attributes["strides"] = [min(step, k) for step, k in zip(steps, kernel, strict=True)]
    if attributes.get("pads") is not None:  # ONNX Runtime wants pads smaller than the kernel
        attributes["pads"] = [min(pad, k - 1) for pad, k in zip(attributes["pads"], kernel * 2, strict=True)]
    if opset >= 10 and (op_type, opset) != ("LpPool", 11):
        attributes["ceil_mode"] = data.draw(st.sampled_from([None, 0, 1]))
    if op_type == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.sampled_from([None, 0, 1]))
    if op_type == "LpPool":
        attributes["p"] = data.draw(st.sampled_from([1, 2]))
    size = [data.draw(st.integers(7, 10)) for _ in range(dims)]
    x = floats((2, 3, *size), 1)
    case = make_case(op_type, [x], attributes, opset=opset)
    assert case.expected[0] is not None
    assume(case.expected[0].size > 0)
    must = ["batch", "channel"]
    if not attributes.get("ceil_mode") and attributes["dilations"] is None:
        must += [f"spatial{i}" for i, rows in enumerate(case.expected[0].shape[2:]) if rows > 1]
    check_split(op_type, [x], attributes, opset=opset, expect=must, seed=dims)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_rounding_up_is_split_unless_the_divisor_depends_on_it(op_type: str, include: int) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 1, 0]}
    if op_type == "AveragePool":
        attributes["count_include_pad"] = include
    rows_pass_the_padding = op_type == "AveragePool" and include == 1
    x = floats((2, 3, 9, 10))
    must = ["batch", "channel", "spatial0"] + ["spatial1"] * (not rows_pass_the_padding)
    check_split(op_type, [x], attributes, opset=19 if op_type == "AveragePool" else 18, exactly=must)


def test_indices_count_through_the_whole_input() -> None:
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check_split("MaxPool", [floats((2, 3, 6, 6))], attributes, outputs=2, exactly=())
    check_split("MaxPool", [floats((2, 3, 6, 6))], attributes, exactly=("batch", "channel", "spatial0", "spatial1"))


def test_integer_max() -> None:
    x = ints((2, 2, 7, 7), -128, 128, dtype="int8")
    check_split("MaxPool", [x], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, opset=12, expect=("spatial0",))


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pool(op_type: str) -> None:
    check_split(op_type, [floats((3, 4, 5, 2))], exactly=("batch", "channel"))


# ONNX Runtime refuses SAME with a kernel that leaves rows out.
@pytest.mark.parametrize(("auto_pad", "kernel"), [("SAME_UPPER", 3), ("SAME_LOWER", 4), ("VALID", 2), ("VALID", 3)])
def test_automatic_padding_with_rounding_up(auto_pad: str, kernel: int) -> None:
    attributes = {"kernel_shape": [kernel, kernel], "strides": [3, 3], "auto_pad": auto_pad, "ceil_mode": 1}
    check_split("MaxPool", [floats((2, 3, 8, 11))], attributes, expect=("batch", "channel", "spatial0", "spatial1"))
