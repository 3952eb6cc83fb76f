"""Rules of gathering and scattering operators against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.split.harness import check_split, floats, ints


@given(axis=st.integers(-3, 2), indices=st.lists(st.integers(2, 4), max_size=3))
@settings(max_examples=15, derandomize=True, deadline=None)
def test_gather(axis: int, indices: list[int]) -> None:
    shape = (4, 5, 3)
    rank = len(indices) + 2
    values = [floats(shape), ints(indices, -shape[axis], shape[axis])]
    check_split("Gather", values, {"axis": axis}, opset=13, exactly=[f"dim{k}" for k in range(rank)])


def test_embedding_table_is_read_whole_or_split_along_its_width() -> None:
    check_split(
        "Gather", [floats((20, 6)), ints((2, 5), 0, 20)], opset=13, weights=(0,), exactly=["dim0", "dim1", "dim2"]
    )


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("smaller", [0, 1])
def test_gather_elements(axis: int, smaller: int) -> None:
    shape = (4, 5, 3)
    indices = ints([size - smaller for size in shape], 0, shape[axis])
    names = ["dim0", "dim1", "dim2"]
    check_split("GatherElements", [floats(shape), indices], {"axis": axis}, opset=13, exactly=names)


@given(batch_dims=st.integers(0, 2), depth=st.integers(1, 2), extra=st.integers(0, 2))
@settings(max_examples=12, derandomize=True, deadline=None)
def test_gather_nd(batch_dims: int, depth: int, extra: int) -> None:
    data = floats((2, 3, 4, 5))
    indices = ints((*(2, 3)[:batch_dims], *(4, 2)[:extra], depth), 0, 2)
    rank = batch_dims + extra + (4 - batch_dims - depth)
    names = [f"dim{k}" for k in range(rank)]
    check_split("GatherND", [data, indices], {"batch_dims": batch_dims}, opset=13, exactly=names)


@pytest.mark.parametrize("reduction", [None, "add", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int, reduction: str | None) -> None:
    shape = (4, 5, 3)
    indices = ints(shape, 0, shape[axis]) if reduction else np.argsort(floats(shape, 3), axis=axis)
    values = [floats(shape, 0), indices, floats(shape, 1)]
    names = [f"dim{k}" for k in range(3) if k != axis % 3]
    check_split("ScatterElements", values, {"axis": axis, "reduction": reduction}, opset=18, exactly=names)


def test_scatter_elements_into_a_corner() -> None:
    values = [floats((4, 5, 3)), ints((4, 2, 2), 0, 1), floats((4, 2, 2), 1)]
    check_split("ScatterElements", values, {"axis": 1, "reduction": "add"}, opset=18, exactly=["dim0"])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(depth: int) -> None:
    shape = (4, 5, 3)
    values = [floats(shape), ints((2, 3, depth), 0, 3), floats((2, 3, *shape[depth:]), 1)]
    names = [f"dim{k}" for k in range(depth, 3)]
    check_split("ScatterND", values, {"reduction": "add"}, opset=18, exactly=names)


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("positions", [None, 1, 4])
def test_embed_layer_normalization(with_mask: bool, positions: int | None) -> None:
    batch, length, width = 4, 5, 8
    values = [
        *(ints((batch, length), 0, 10, 0, "int32"), ints((batch, length), 0, 2, 1, "int32")),
        *(
            floats((10, width), 2),
            floats((6, width), 3),
            floats((2, width), 4),
            floats((width,), 5),
            floats((width,), 6),
        ),
        np.tril(np.ones((batch, length), np.int32)) if with_mask else None,
        None if positions is None else ints((positions, length), 0, 6, 7, "int32"),
    ]
    check_split(
        "EmbedLayerNormalization",
        values,
        {"epsilon": 1e-5},
        opset=1,
        domain="com.microsoft",
        outputs=3,
        weights=(2, 3, 4, 5, 6),
        exactly=["batch"],
    )
