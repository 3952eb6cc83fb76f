"""Output sizes of windowed operators against those of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from planner.model import load_model
from tests.model.support import run_file, save, value

KINDS = [
    ("MaxPool", 12),
    ("MaxPool", 22),
    ("AveragePool", 11),
    ("AveragePool", 19),
    ("LpPool", 18),
    ("Conv", 11),
    ("ConvTranspose", 11),
    ("ConvTranspose", 22),
]
DILATED = frozenset(KINDS) - {("AveragePool", 11)}


@st.composite
def operators(draw: st.DrawFn) -> tuple[str, int, list[int], dict[str, Any]]:
    """Type, opset, kernel and attributes."""
    op_type, opset = draw(st.sampled_from(KINDS))
    dims = draw(st.integers(1, 2))

    def several(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims))

    kernel = several(1, 4)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": several(1, 4)}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if (op_type, opset) in DILATED and draw(st.booleans()):
        attributes["dilations"] = several(1, 3)
    if auto != "NOTSET":
        attributes["auto_pad"] = auto
    else:
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    if op_type.endswith("Pool"):
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    if op_type == "ConvTranspose":
        attributes["output_padding"] = several(0, 2)
        if draw(st.integers(0, 2)) == 0:
            attributes["output_shape"] = several(1, 30)
    return op_type, opset, kernel, attributes


@settings(max_examples=300, deadline=None)
@given(operator=operators(), data=st.data())
def test_sizes_are_those_of_onnx_runtime(
    operator: tuple[str, int, list[int], dict[str, Any]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    op_type, opset, kernel, attributes = operator
    shape = [2, 3, *(data.draw(st.integers(1, 12)) for _ in kernel)]
    weights = {} if op_type.endswith("Pool") else {"w": np.ones((3, 3, *kernel), np.float32)}
    node = helper.make_node(op_type, ["x", *weights], ["y"], **attributes)
    path = tmp_path_factory.mktemp("m") / "m.onnx"
    save(path, [node], [value("x", shape)], [value("y", None)], weights, opset)
    try:
        real = run_file(path, {"x": np.ones(shape, np.float32)})["y"].shape
    except (Fail, InvalidArgument, RuntimeException):  # attributes that do not go together
        return
    assert load_model(path).graph.tensors["y"].shape == real


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_a_window_that_starts_in_the_padding_behind_is_dropped(op_type: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node(op_type, ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
        helper.make_node("Size", ["p"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [4, 4, 7, 7])], [value("y", None, 7)])
    assert load_model(path).graph.constants["y"] == 4 * 4 * 4 * 4
