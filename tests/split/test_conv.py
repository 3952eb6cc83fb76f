"""Convolutions: every attribute that moves a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Array
from planner.split.table import shard_op, split_axes
from planner.split.types import Region
from tests.split.harness import check_split, floats, ints, make_case
from tests.split.strategies import windows


def spatial(case_out: tuple[int, ...]) -> list[str]:
    return [f"spatial{i}" for i, size in enumerate(case_out[2:]) if size > 1]


@settings(max_examples=40)
@given(data=st.data())
def test_conv(data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from([1, 2, 2, 3]))
    kernel, attributes = data.draw(windows(dims))
    group = data.draw(st.sampled_from([1, 1, 2, 3]))
    per_group, made = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    size = [data.draw(st.integers(7, 11)) for _ in range(dims)]
    attributes["group"] = group if data.draw(st.booleans()) or group > 1 else None
    attributes["kernel_shape"] = kernel if data.draw(st.booleans()) else None
    batch = data.draw(st.integers(1, 3))
    bias = floats((made * group,), 3) if data.draw(st.booleans()) else None
    inputs = [floats((batch, per_group * group, *size), 1), floats((made * group, per_group, *kernel), 2), bias]
    if bias is None and data.draw(st.booleans()):
        inputs.pop()
    case = make_case("Conv", inputs, attributes)
    assert case.expected[0] is not None
    must = spatial(case.expected[0].shape)
    must += ["batch"] * (batch > 1) + ["out_channel"] * ((group if group > 1 else made) > 1)
    must += ["in_channel"] * (group == 1 and per_group > 1)
    weights = (1, 2) if data.draw(st.booleans()) else ()
    check_split("Conv", inputs, attributes, exactly=must, weights=weights[: len(inputs) - 1], seed=batch)


def test_padding_wider_than_the_kernel_is_not_split_along_rows() -> None:
    inputs = [floats((1, 2, 5, 5)), floats((2, 2, 1, 3))]
    check_split("Conv", inputs, {"pads": [2, 1, 2, 1]}, exactly=("in_channel", "out_channel", "spatial1"))


def test_depthwise_moves_input_channels_along() -> None:
    case = make_case("Conv", [floats((1, 6, 5, 5)), floats((12, 1, 3, 3))], {"group": 6})
    shard = shard_op(case.ctx, "out_channel", 1, 3)
    assert shard.inputs == (Region.one(1, 1, 3), Region.one(0, 2, 6))
    assert shard.outputs == (Region.one(1, 2, 6),)
    assert shard.attributes["group"].value == 2


def test_patches_are_read_exactly() -> None:
    case = make_case("Conv", [floats((1, 3, 12, 8)), floats((4, 3, 4, 4))], {"strides": [4, 4]})
    uses = {axis.name: axis.inputs[0] for axis in split_axes(case.ctx)}
    rows = uses["spatial0"]
    assert rows is not None and rows.exact and rows.scale == 4


@pytest.mark.parametrize("activation", [None, "Relu", "LeakyRelu"])
@pytest.mark.parametrize("residual", [False, True])
def test_fused_conv(activation: str | None, residual: bool) -> None:
    attributes: dict[str, Any] = {"activation": activation, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    attributes["activation_params"] = [0.1] if activation == "LeakyRelu" else None
    inputs = [floats((2, 4, 6, 5)), floats((6, 4, 3, 3), 1), floats((6,), 2)]
    if residual:
        inputs.append(floats((2, 6, 6, 5), 3))
    must = ["batch", "out_channel", "spatial0", "spatial1"] + ["in_channel"] * (activation is None)
    check_split("FusedConv", inputs, attributes, domain="com.microsoft", opset=1, exactly=must, weights=(1, 2))


@settings(max_examples=15)
@given(data=st.data())
def test_integer_conv(data: st.DataObject) -> None:
    kernel, attributes = data.draw(windows(2))
    group = data.draw(st.sampled_from([1, 2]))
    attributes["group"] = group
    x = ints((2, 2 * group, 8, 9), 0, 255, 1, "uint8")
    weight = ints((2 * group, 2, *kernel), 0, 255, 2, "uint8")
    # ONNX Runtime has no zero points per channel here.
    weight_zero = data.draw(st.sampled_from([None, np.array(7, np.uint8)]))
    inputs = [x, weight, np.array(data.draw(st.integers(0, 255)), np.uint8), weight_zero]
    expect = ["batch", "out_channel"] + ["in_channel"] * (group == 1)
    check_split("ConvInteger", inputs, attributes, opset=10, expect=expect, weights=(1,))


@settings(max_examples=20)
@given(data=st.data())
def test_quantised_conv(data: st.DataObject) -> None:
    kernel, attributes = data.draw(windows(2))
    group = data.draw(st.sampled_from([1, 2]))
    attributes["group"] = group
    made = 3 * group
    per_channel = data.draw(st.booleans())
    scales: Array = floats((made,), 5) ** 2 * 0.01 + 0.01 if per_channel else np.array(0.02, np.float32)
    zeros = np.zeros((made,), np.int8) if per_channel else np.array(0, np.int8)
    inputs = [
        ints((2, 2 * group, 8, 9), 0, 255, 1, "uint8"),
        np.array(0.03, np.float32),
        np.array(121, np.uint8),
        ints((made, 2, *kernel), -127, 127, 2, "int8"),
        scales.astype(np.float32),
        zeros,
        np.array(0.11, np.float32),
        np.array(117, np.uint8),
        ints((made,), -500, 500, 3, "int32") if data.draw(st.booleans()) else None,
    ]
    inputs = inputs if inputs[8] is not None else inputs[:8]
    case = make_case("QLinearConv", inputs, attributes, opset=10)
    assert case.expected[0] is not None
    must = ["batch", "out_channel", *spatial(case.expected[0].shape)]
    check_split("QLinearConv", inputs, attributes, opset=10, exactly=must, weights=tuple(range(1, len(inputs))))


@pytest.mark.parametrize("group", [1, 2])
def test_deformable_conv(group: int) -> None:
    inputs = [
        floats((3, 4, 6, 6)),
        floats((4, 4 // group, 3, 3), 1),
        floats((3, 18, 4, 4), 2),
        floats((4,), 3),
        floats((3, 9, 4, 4), 4),
    ]
    must = ["batch"] + ["out_channel"] * (group == 1)
    attributes = {"group": group, "kernel_shape": [3, 3]}
    check_split("DeformConv", inputs, attributes, opset=19, exactly=must, weights=(1, 3))
    check_split("DeformConv", inputs[:3], attributes, opset=19, exactly=must, weights=(1,))
