"""Pad and Slice: a shard pads and cuts only its own edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Array
from tests.split.harness import check_split, floats, ints
from tests.split.strategies import shapes


@settings(max_examples=40)
@given(data=st.data())
def test_pad(data: st.DataObject) -> None:
    shape = data.draw(shapes(3))
    rank = len(shape)
    opset = data.draw(st.sampled_from([2, 11, 13, 18, 21]))
    axes = (
        data.draw(st.none() | st.permutations(range(-rank, 0)).map(lambda p: p[: len(p) // 2 + 1]))
        if opset >= 18
        else None
    )
    dims = [axis % rank for axis in axes] if axes else list(range(rank))
    pads = [data.draw(st.integers(-1, 4)) for _ in dims * 2]
    for at, dim in enumerate(dims):
        if pads[at] + pads[at + len(dims)] + shape[dim] < 1:
            pads[at] = 1
    attributes: dict[str, Any] = {"mode": data.draw(st.sampled_from([None, "constant"]))}
    inputs: list[Array | None] = [floats(shape)]
    constants: tuple[int, ...] = ()
    if opset < 11:
        attributes |= {"pads": pads, "value": 1.5}
    else:
        inputs += [np.array(pads), np.array(2.5, np.float32) if data.draw(st.booleans()) else None]
        inputs += [np.array(axes)] if axes else []
        constants = (1, 3) if axes else (1,)
    made = [
        n + (pads[dims.index(d)] + pads[dims.index(d) + len(dims)] if d in dims else 0) for d, n in enumerate(shape)
    ]
    must = [f"dim{dim}" for dim, size in enumerate(made) if size > 1]
    check_split("Pad", inputs, attributes, opset=opset, exactly=must, constants=constants, seed=rank)


@pytest.mark.parametrize(("mode", "opset"), [("reflect", 11), ("edge", 13), ("wrap", 19), ("reflect", 2)])
def test_other_modes_are_split_where_nothing_is_padded(mode: str, opset: int) -> None:
    x, pads = floats((2, 3, 5, 6)), [0, 0, 2, 1, 0, 0, 1, 0]
    if opset < 11:
        check_split("Pad", [x], {"mode": mode, "pads": pads}, opset=opset, exactly=("dim0", "dim1"))
    else:
        check_split("Pad", [x, np.array(pads)], {"mode": mode}, opset=opset, exactly=("dim0", "dim1"), constants=(1,))


def test_computed_pads_stay_whole() -> None:
    check_split("Pad", [floats((4, 4)), np.array([0, 1, 0, 1])], opset=13, exactly=())


@settings(max_examples=50)
@given(data=st.data())
def test_slice(data: st.DataObject) -> None:
    shape = tuple(n + 3 for n in data.draw(shapes(3)))
    rank = len(shape)
    axes = data.draw(st.none() | st.permutations(range(-rank, 0)).map(lambda p: p[: len(p) // 2 + 1]))
    dims = [axis % rank for axis in axes] if axes else list(range(rank))
    starts = [data.draw(st.sampled_from([0, 1, 2, -4, -100])) for _ in dims]
    ends = [data.draw(st.sampled_from([shape[d], 4, -1, 2**31 - 1])) for d in dims]
    old = data.draw(st.booleans())
    steps = None if old else data.draw(st.none() | st.lists(st.integers(1, 3), min_size=len(dims), max_size=len(dims)))
    made = list(shape)
    for k, dim in enumerate(dims):
        made[dim] = len(range(shape[dim])[starts[k] : ends[k] : steps[k] if steps else 1])
    must = [f"dim{dim}" for dim, size in enumerate(made) if size > 1] if min(made) else []
    if old:
        attributes = {"starts": starts, "ends": ends, "axes": [d for d in dims] if axes else None}
        check_split("Slice", [floats(shape)], attributes, opset=1, expect=must)
        return
    kind = data.draw(st.sampled_from(["int32", "int64"]))
    inputs = [floats(shape), *(None if v is None else np.array(v, kind) for v in (starts, ends, axes, steps))]
    while inputs[-1] is None:
        inputs.pop()
    constants = tuple(k for k in range(1, len(inputs)))
    check_split("Slice", inputs, opset=data.draw(st.sampled_from([10, 13])), expect=must, constants=constants)


def test_dimensions_that_are_not_sliced_need_no_constants() -> None:
    inputs = [floats((3, 4, 5)), np.array([1]), np.array([3]), np.array([1])]
    check_split("Slice", inputs, opset=13, exactly=("dim0", "dim2"), constants=(3,))
    check_split("Slice", inputs[:3], opset=13, exactly=("dim1", "dim2"))
    check_split("Slice", inputs, opset=13, exactly=())


def test_backwards_is_not_split() -> None:
    inputs = [ints((4, 5), 0, 9), np.array([-1]), np.array([-9]), np.array([1]), np.array([-1])]
    check_split("Slice", inputs, opset=13, exactly=("dim0",), constants=(1, 2, 3, 4))
