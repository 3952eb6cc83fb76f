"""Transposed convolution: pads, output padding, output shape."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.split.table import split_axes
from tests.split.harness import check_axis, check_split, floats, make_case


@settings(max_examples=50)
@given(data=st.data())
def test_conv_transpose(data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from([1, 2]))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(dims)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(dims)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(dims)]
    size = [data.draw(st.integers(2, 6)) for _ in range(dims)]
    group = data.draw(st.sampled_from([1, 1, 2]))
    made, per_group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    kind = data.draw(st.sampled_from(["pads", "pads", "output_shape", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if kind == "pads":
        attributes["pads"] = [data.draw(st.integers(0, max(r // 2, 0))) for r in reach * 2]
        # ONNX Runtime refuses an output_padding that is not smaller than the stride.
        attributes["output_padding"] = [data.draw(st.integers(0, s - 1)) for s in strides]
    elif kind == "output_shape":
        full = [(n - 1) * s + r for n, s, r in zip(size, strides, reach, strict=True)]
        attributes["output_shape"] = [
            max(f - data.draw(st.integers(1 - s, 3)), 1) for f, s in zip(full, strides, strict=True)
        ]
        attributes["auto_pad"] = data.draw(st.sampled_from([None, "SAME_UPPER", "SAME_LOWER"]))
    else:
        attributes["auto_pad"] = kind
    if kind != "pads":
        attributes["output_padding"] = data.draw(
            st.none() | st.tuples(*(st.integers(0, s - 1) for s in strides)).map(list)
        )
    bias = [floats((made * group,), 3)] if data.draw(st.booleans()) else []
    inputs = [floats((2, per_group * group, *size), 1), floats((per_group * group, made, *kernel), 2), *bias]
    case = make_case("ConvTranspose", inputs, attributes)
    assert case.expected[0] is not None
    must = ["batch"] + ["out_channel"] * ((group if group > 1 else made) > 1)
    must += ["in_channel"] * (group == 1 and per_group > 1)
    if kind in ("pads", "VALID"):  # else pads may come out as less than nothing, in whatever dimension
        must += [f"spatial{i}" for i, rows in enumerate(case.expected[0].shape[2:]) if rows > 1]
    check_split("ConvTranspose", inputs, attributes, expect=must, weights=tuple(range(1, len(inputs))), seed=made)


def test_upsampling_by_the_kernel_reads_exactly() -> None:
    case = make_case("ConvTranspose", [floats((1, 3, 5, 4)), floats((3, 2, 2, 2))], {"strides": [2, 2]})
    axes = {axis.name: axis for axis in split_axes(case.ctx)}
    rows = axes["spatial0"]
    assert rows.extent == 5
    assert rows.inputs[0] is not None and rows.inputs[0].exact and rows.inputs[0].scale == 1
    assert rows.outputs[0] is not None and rows.outputs[0].scale == 2


def test_same_padding_is_split_along_rows() -> None:
    inputs = [floats((1, 3, 5, 4)), floats((3, 2, 3, 3))]
    check_split("ConvTranspose", inputs, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, expect=("spatial0", "spatial1"))


def test_a_row_behind_all_input() -> None:
    inputs = [floats((1, 2, 4)), floats((2, 2, 3)), floats((2,), 1)]
    case = make_case("ConvTranspose", inputs, {"strides": [2], "output_padding": [1]})
    rows = next(axis for axis in split_axes(case.ctx) if axis.name == "spatial0")
    assert rows.extent == 10
    check_axis(case, rows, [(0, 9), (9, 10)])
    check_axis(case, rows, [(row, row + 1) for row in range(10)])


def test_rows_beyond_all_input_are_not_split_by_pads_of_less_than_nothing() -> None:
    # Of the 12 rows wanted only 11 can be made, with no padding at all; the 23 columns are all there are.
    attributes = {"strides": [3, 3], "output_shape": [12, 23], "output_padding": [1, 1], "group": 4}
    inputs = [floats((2, 4, 4, 7)), floats((4, 3, 1, 4), 1)]
    check_split("ConvTranspose", inputs, attributes, exactly=("batch", "out_channel"))


def test_wanted_rows_are_split_where_pads_say_the_same() -> None:
    attributes = {"strides": [3, 3], "output_shape": [10, 21]}
    inputs = [floats((2, 3, 4, 7)), floats((3, 2, 1, 4), 1)]
    check_split("ConvTranspose", inputs, attributes, expect=("spatial0", "spatial1"))
