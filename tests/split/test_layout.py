"""Concat, Split, Tile, DepthToSpace, SpaceToDepth, ReverseSequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.split.harness import check_split, floats, ints
from tests.split.strategies import others, shapes


@settings(max_examples=25)
@given(data=st.data())
def test_concat(data: st.DataObject) -> None:
    shape = list(data.draw(shapes()))
    opset = data.draw(st.sampled_from([4, 11, 18]))
    axis = data.draw(st.integers(0 if opset < 11 else -len(shape), len(shape) - 1))
    inputs = []
    for k in range(data.draw(st.integers(1, 3))):
        shape[axis] = data.draw(st.integers(1, 3))
        inputs.append(floats(shape, k))
    check_split("Concat", inputs, {"axis": axis}, opset=opset, exactly=others(len(shape), axis), weights=(0,))


@settings(max_examples=25)
@given(data=st.data())
def test_split(data: st.DataObject) -> None:
    shape = list(data.draw(shapes()))
    axis = data.draw(st.none() | st.integers(0, len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    shape[axis or 0] = sum(sizes)
    present = [True] * len(sizes)  # ONNX Runtime crashes on a Split with an unused output
    must = others(len(shape), axis or 0)
    x = floats(shape)
    check_split("Split", [x], {"axis": axis, "split": sizes}, opset=11, outputs=present, exactly=must)
    known = (1,) if data.draw(st.booleans()) else ()
    check_split("Split", [x, np.array(sizes)], {"axis": axis}, opset=13, outputs=present, exactly=must, constants=known)
    attributes = {"axis": axis, "num_outputs": len(sizes)}
    if shape[axis or 0] >= len(sizes) * 2:
        check_split("Split", [x], attributes, opset=18, outputs=present, exactly=must)


@settings(max_examples=15)
@given(data=st.data())
def test_tile(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    repeats = [data.draw(st.integers(1, 3)) for _ in shape]
    must = [f"dim{dim}" for dim, count in enumerate(repeats) if count == 1]
    check_split("Tile", [floats(shape), np.array(repeats)], opset=13, exactly=must)


@pytest.mark.parametrize("mode", [None, "DCR", "CRD"])
def test_depth_to_space(mode: str | None) -> None:
    must = ["batch", "spatial0", "spatial1"] + ["channel"] * (mode == "CRD")
    check_split("DepthToSpace", [floats((2, 12, 3, 4))], {"blocksize": 2, "mode": mode}, opset=13, exactly=must)


def test_space_to_depth() -> None:
    check_split("SpaceToDepth", [floats((2, 3, 6, 9))], {"blocksize": 3}, exactly=("batch", "spatial0", "spatial1"))


@pytest.mark.parametrize(("batch", "time"), [(1, 0), (0, 1)])
def test_reverse_sequence(batch: int, time: int) -> None:
    inputs = [floats((4, 4, 3)), ints((4,), 1, 5, 1)]
    check_split("ReverseSequence", inputs, {"batch_axis": batch, "time_axis": time}, exactly=("batch", "dim2"))


def test_col2im() -> None:
    inputs = [floats((2, 12, 6)), np.array([3, 4]), np.array([2, 2])]
    check_split("Col2Im", inputs, opset=18, exactly=("batch", "channel"), constants=(1, 2))
    check_split("Col2Im", inputs, opset=18, exactly=("batch",))
