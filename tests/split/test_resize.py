"""Resize, Upsample, GridSample, RoiAlign: exact or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Array
from tests.split.harness import check_split, floats, ints

EMPTY = np.zeros(0, np.float32)
COORDINATES = ["half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners"]


@settings(max_examples=30)
@given(data=st.data())
def test_nearest_resize(data: st.DataObject) -> None:
    shape = [2, 3, data.draw(st.sampled_from([4, 6, 8])), data.draw(st.sampled_from([4, 6, 8]))]
    factors = [data.draw(st.sampled_from([0.5, 0.25, 1.0, 2.0, 3.0, 1.5])) for _ in range(2)]
    coordinates = data.draw(st.sampled_from(COORDINATES))
    rounding = data.draw(st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]))
    attributes: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding,
    }
    made = [int(n * f) for n, f in zip(shape[2:], factors, strict=True)]
    opset = 19 if coordinates == "half_pixel_symmetric" else data.draw(st.sampled_from([11, 13, 18]))
    scales = np.array([1, 1, *factors], np.float32)
    if opset >= 18 and data.draw(st.booleans()):
        attributes["axes"], scales = [2, -1], scales[2:]
    by_size = data.draw(st.booleans())
    sizes = np.array(made if "axes" in attributes else [2, 3, *made], np.int64)
    inputs: list[Array | None] = [floats(shape), EMPTY if opset < 13 else None, EMPTY if opset < 13 else None, sizes]
    if not by_size:
        inputs = [floats(shape), EMPTY if opset < 13 else None, scales]
    must = ["batch", "channel"]
    for i, factor in enumerate(factors):
        up = factor in (1.0, 2.0, 3.0)
        good = [("half_pixel", "round_prefer_floor"), ("asymmetric", "floor"), ("half_pixel", "round_prefer_ceil")]
        if factor == 1.0 or (up and (coordinates, rounding) in good):
            must.append(f"spatial{i}")
    check_split("Resize", inputs, attributes, opset=opset, expect=must, constants=tuple(range(1, len(inputs))))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("antialias", [None, 1])
def test_interpolation_is_split_where_it_does_nothing(mode: str, coordinates: str, antialias: int | None) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "antialias": antialias}
    inputs = [floats((2, 3, 4, 5)), None, None, np.array([2, 3, 8, 10])]
    check_split("Resize", inputs, attributes, opset=19, exactly=("batch", "channel"), constants=(3,))


def test_sizes_rounded_down_do_not_hide_a_scale() -> None:
    inputs = [floats((2, 3, 5, 5)), None, np.array([1, 1, 1.1, 1], np.float32)]
    must = ("batch", "channel", "spatial1")
    check_split("Resize", inputs, {"mode": "linear"}, opset=13, exactly=must, constants=(2,))


def test_computed_scales_and_kept_aspect_ratios_stay_whole() -> None:
    inputs = [floats((2, 3, 4, 5)), None, np.array([1, 1, 2, 2], np.float32)]
    check_split("Resize", inputs, {"mode": "nearest"}, opset=18, exactly=())
    inputs = [floats((2, 3, 4, 4)), None, None, np.array([8, 12])]
    attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
    check_split("Resize", inputs, attributes, opset=18, exactly=(), constants=(3,))


@pytest.mark.parametrize(("op_type", "opset"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(op_type: str, opset: int, mode: str) -> None:
    scales = [1.0, 1.0, 2.0, 3.0]
    must = ["batch", "channel"] + ["spatial0", "spatial1"] * (mode == "nearest")
    if opset == 7:
        check_split(op_type, [floats((2, 3, 4, 5))], {"mode": mode, "scales": scales}, opset=7, exactly=must)
        return
    inputs = [floats((2, 3, 4, 5)), np.array(scales, np.float32)]
    check_split(op_type, inputs, {"mode": mode}, opset=opset, exactly=must, constants=(1,))


@pytest.mark.parametrize(("opset", "mode"), [(16, "bilinear"), (16, "nearest"), (20, "cubic")])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(opset: int, mode: str, padding: str) -> None:
    inputs = [floats((2, 3, 6, 5)), np.random.default_rng(1).uniform(-1.2, 1.2, (2, 4, 3, 2)).astype(np.float32)]
    attributes = {"mode": mode, "padding_mode": padding}
    check_split("GridSample", inputs, attributes, opset=opset, exactly=("batch", "channel", "spatial0", "spatial1"))


@pytest.mark.parametrize("opset", [10, 16])
def test_roi_align(opset: int) -> None:
    rois = np.array([[0, 0, 4, 4], [1, 1, 6, 5], [0, 2, 3, 7], [2, 2, 5, 5]], np.float32)
    inputs = [floats((2, 3, 8, 8)), rois, ints((4,), 0, 2, 1)]
    check_split("RoiAlign", inputs, {"output_height": 2, "output_width": 3}, opset=opset, exactly=("rois", "channel"))


def test_max_roi_pool() -> None:
    rois = np.array([[0, 0, 0, 4, 4], [1, 1, 1, 6, 5], [0, 0, 2, 3, 7]], np.float32)
    check_split("MaxRoiPool", [floats((2, 3, 8, 8)), rois], {"pooled_shape": [2, 2]}, exactly=("rois", "channel"))


def test_a_single_row_has_its_own_coordinate() -> None:
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "pytorch_half_pixel"}
    inputs = [floats((2, 3, 16, 8)), None, np.array([1, 1, 0.25, 2], np.float32)]
    check_split("Resize", inputs, attributes, opset=13, exactly=("batch", "channel", "spatial1"), constants=(2,))
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"}
    must = ("batch", "channel", "spatial0", "spatial1")
    check_split("Resize", inputs, attributes, opset=13, exactly=must, constants=(2,))
