"""Rules of shape operators against ONNX Runtime."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Op, OpContext, TensorInfo
from planner.split.table import shard_op, split_axes
from planner.split.types import Literal, SplitAxis
from tests.split.harness import check_split, floats


def _int64(values: object) -> np.ndarray:
    return np.asarray(values, np.int64)


def _reshape(source: tuple[int | None, ...], target: tuple[int | None, ...]) -> tuple[OpContext, dict[str, SplitAxis]]:
    infos = [
        TensorInfo("x", "float32", source),
        TensorInfo("s", "int64", (len(target),)),
        TensorInfo("y", "float32", target),
    ]
    ctx = OpContext(
        Op("op", "", "Reshape", 13, ("x", "s"), ("y",)), tuple(infos[:2]), (infos[2],), (None, None), (False, False)
    )
    return ctx, {axis.name: axis for axis in split_axes(ctx)}


@pytest.mark.parametrize(
    ("source", "target", "axes"),
    [
        ((4, 3, 5), (12, 5), ["dim0", "dim1"]),
        ((12, 5), (4, 3, 5), ["dim0", "dim2"]),
        ((2, 3, 8), (2, 3, 4, 2), ["dim0", "dim1", "dim2"]),
        ((2, 3, 4, 2), (2, 3, 8), ["dim0", "dim1", "dim2"]),
        ((6, 4), (4, 6), ["dim0"]),
        ((1, 6, 4), (6, 1, 4), ["dim0", "dim2"]),
        ((4, 6), (24,), ["dim0"]),
        ((3, 4), (4, 3), []),
        ((4, 4), (2, 2, 4), ["dim0", "dim2"]),
        ((5,), (1, 5, 1), ["dim1"]),
    ],
)
def test_reshape_keeps_axes_of_matching_runs(source: tuple[int, ...], target: tuple[int, ...], axes: list[str]) -> None:
    values = [floats(source), _int64(target)]
    check_split("Reshape", values, opset=13, constants=(1,), exactly=axes)
    check_split("Reshape", values, opset=13, exactly=axes)


def test_reshape_scales() -> None:
    _, axes = _reshape((4, 3, 5), (12, 5))
    assert axes["dim0"].extent == 4
    assert axes["dim0"].inputs[0] is not None and axes["dim0"].inputs[0].scale == 1
    assert axes["dim0"].outputs[0] is not None and axes["dim0"].outputs[0].scale == 3


@given(data=st.data(), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5))
@settings(max_examples=18, derandomize=True, deadline=None)
def test_any_reshape(data: st.DataObject, sizes: list[int]) -> None:
    def grouped() -> tuple[int, ...]:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(sizes) - 1)))) if len(sizes) > 1 else []
        return tuple(prod(sizes[a:b]) for a, b in zip([0, *cuts], [*cuts, len(sizes)], strict=True))

    source, target = grouped(), grouped()
    expect = ["dim0"] if source[0] == target[0] > 1 else []
    check_split("Reshape", [floats(source), _int64(target)], opset=13, constants=(1,), expect=expect)


@pytest.mark.parametrize(("shape", "allowzero"), [((0, -1), 0), ((-1, 10), 0), ((4, 3, 10), 1), ((0, 0, 2, -1), 0)])
def test_reshape_with_special_sizes(shape: tuple[int, ...], allowzero: int) -> None:
    values = [floats((4, 3, 10)), _int64(shape)]
    check_split("Reshape", values, {"allowzero": allowzero}, opset=14, constants=(1,), expect=["dim0"])


def test_reshape_of_empty_tensors_is_not_split() -> None:
    _, axes = _reshape((0, 4), (4, 0))
    assert not axes


def test_reshape_around_a_size_that_depends_on_data() -> None:
    ctx, axes = _reshape((4, None, 12, 16), (4, None, 192))
    assert list(axes) == ["dim0", "dim2"] and axes["dim2"].extent == 12
    part = shard_op(ctx, "dim2", 3, 8).inputs[1]
    assert isinstance(part, Literal) and part.value.tolist() == [4, -1, 80]
    assert not _reshape((None, None, 12), (None, None, 3, 4))[1]


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4, -1, -4])
def test_flatten(axis: int) -> None:
    shape = (2, 3, 4, 5)
    cut = axis + 4 if axis < 0 else axis
    exactly = [*(["dim0"] if cut else []), *(["dim1"] if cut < 4 else [])]
    check_split("Flatten", [floats(shape)], {"axis": axis}, opset=13, exactly=exactly)
    check_split("Flatten", [floats((1, 3, 4))], opset=11, exactly=["dim1"])


@given(perm=st.integers(1, 4).flatmap(lambda rank: st.permutations(range(rank))))
@settings(max_examples=9, derandomize=True, deadline=None)
def test_transpose(perm: list[int]) -> None:
    data = floats((2, 3, 4, 5)[: len(perm)])
    names = [f"dim{k}" for k in range(len(perm))]
    check_split("Transpose", [data], {"perm": perm}, opset=13, exactly=names)
    check_split("Transpose", [data], opset=13, exactly=names)


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze_and_unsqueeze(opset: int) -> None:
    def check(op_type: str, shape: tuple[int, ...], axes: list[int] | None, exactly: list[str]) -> None:
        if axes is None or opset < 13:
            check_split(op_type, [floats(shape)], {"axes": axes}, opset=opset, exactly=exactly)
        else:
            check_split(op_type, [floats(shape), _int64(axes)], opset=opset, constants=(1,), exactly=exactly)

    check("Squeeze", (2, 1, 3, 1), [1], ["dim0", "dim1"])
    check("Squeeze", (2, 1, 3, 1), [-1, 1], ["dim0", "dim1"])
    check("Unsqueeze", (2, 3), [0, -1], ["dim1", "dim2"])
    check("Unsqueeze", (2, 3), [1], ["dim0", "dim2"])


def test_squeeze_without_axes_keeps_a_shard_of_size_one() -> None:
    check_split("Squeeze", [floats((2, 1, 3, 1))], opset=11, exactly=["dim0", "dim1"])
    check_split("Squeeze", [floats((2, 3))], opset=13, exactly=["dim0", "dim1"])
    # Pairs: three cannot be cut without a shard of size 1, which would be squeezed.
    check_split("Squeeze", [floats((4, 1, 3, 6, 1))], opset=13, exactly=["dim0", "dim2"])


def test_unknown_axes_offer_nothing() -> None:
    data, axes, out = (
        TensorInfo("x", "float32", (2, 1, 3)),
        TensorInfo("a", "int64", (1,)),
        TensorInfo("y", "float32", (2, 3)),
    )
    ctx = OpContext(Op("op", "", "Squeeze", 13, ("x", "a"), ("y",)), (data, axes), (out,), (None, None), (False, False))
    assert split_axes(ctx) == ()


@pytest.mark.parametrize(
    ("source", "target"),
    [((3, 1), (2, 1, 6)), ((3, 4), (3, 1)), ((1,), (2, 3)), ((2, 3, 4), (4,)), ((2, 1, 4), (1, 5, 1)), ((4,), ())],
)
def test_expand(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    full = np.broadcast_shapes(source, target)
    names = [f"dim{k}" for k, size in enumerate(full) if size > 1]
    values = [floats(source), _int64(target)]
    check_split("Expand", values, opset=13, constants=(1,), exactly=names)
    check_split("Expand", values, opset=13, exactly=names, twice=False)


def test_constant_of_shape() -> None:
    value = {"value": np.asarray([3], np.int64)}
    check_split("ConstantOfShape", [_int64([4, 3])], value, opset=9, constants=(0,), exactly=["dim0", "dim1"])
    check_split("ConstantOfShape", [_int64([4, 3])], value, opset=9, exactly=[])


def test_shape_and_size_are_not_split() -> None:
    check_split("Shape", [floats((4, 3))], opset=13, exactly=[])
    check_split("Size", [floats((4, 3))], opset=13, exactly=[])


def test_triangles_of_a_batch() -> None:
    check_split("Trilu", [floats((2, 3, 4, 4)), _int64(1)], {"upper": 0}, opset=14, exactly=["dim0", "dim1"])
