"""Boxes are sets of indices: each operation is held to what it does to an array."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.graph.op_graph import TensorInfo
from planner.partition.boxes import WHOLE, Box, compose, intersect, merge
from planner.partition.weight_parts import take

SHAPE = (5, 7, 4)
ARRAY = np.arange(np.prod(SHAPE)).reshape(SHAPE)
INFO = TensorInfo("t", "int64", SHAPE)


@st.composite
def cuts(draw: st.DrawFn, size: int) -> tuple[tuple[int, int], ...]:
    """One to three disjoint ascending ranges of ``size`` elements, none empty."""
    count = draw(st.integers(1, min(3, max(1, size // 2))))
    bounds = sorted(draw(st.lists(st.integers(0, size), min_size=2 * count, max_size=2 * count, unique=True)))
    return tuple(zip(bounds[::2], bounds[1::2], strict=True))


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    axes = draw(st.lists(st.integers(0, 2), unique=True))
    return Box.of({axis: draw(cuts(SHAPE[axis])) for axis in axes})


@given(boxes())
def test_shape_and_normal_form_fit_what_is_taken(box: Box) -> None:
    taken = take(ARRAY, box)
    assert taken.shape == box.shape(INFO)
    np.testing.assert_array_equal(take(ARRAY, box.normal(INFO)), taken)


@given(boxes(), st.integers(0, 2), st.data())
def test_a_restriction_counts_inside_the_box(box: Box, axis: int, data: st.DataObject) -> None:
    inside = data.draw(cuts(take(ARRAY, box).shape[axis]))
    np.testing.assert_array_equal(
        take(ARRAY, box.restrict(axis, inside)), take(take(ARRAY, box), Box.of({axis: inside}))
    )


@given(cuts(20), st.data())
def test_composing_ranges_is_indexing_twice(outer: tuple[tuple[int, int], ...], data: st.DataObject) -> None:
    line = [i for start, stop in outer for i in range(start, stop)]
    inner = data.draw(cuts(len(line)))
    wanted = [line[i] for start, stop in inner for i in range(start, stop)]
    assert [i for start, stop in compose(outer, inner) for i in range(start, stop)] == wanted


@given(st.tuples(st.integers(0, 9), st.integers(1, 9)), st.tuples(st.integers(0, 9), st.integers(1, 9)))
def test_the_common_part_of_two_ranges(a: tuple[int, int], b: tuple[int, int]) -> None:
    (a0, na), (b0, nb) = a, b
    common = sorted(set(range(a0, a0 + na)) & set(range(b0, b0 + nb)))
    found = intersect((a0, a0 + na), (b0, b0 + nb))
    assert (list(range(*found)) if found else []) == common


def test_what_selects_everything_is_the_whole() -> None:
    assert Box.of({0: ((0, 2), (2, 5)), 2: ((0, 4),)}).normal(INFO) == WHOLE
    assert merge(((0, 2), (2, 5), (6, 7))) == ((0, 5), (6, 7))


def test_order_of_ranges_is_kept() -> None:
    assert take(np.arange(6), Box.of({0: ((4, 6), (0, 1))})).tolist() == [4, 5, 0]
    assert merge(((4, 6), (0, 1))) == ((4, 6), (0, 1))
