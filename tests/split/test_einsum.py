"""The Einsum rule against ONNX Runtime: one axis a letter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.split.harness import check_split, floats

_SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "i": 2, "j": 3, "k": 4}


@pytest.mark.parametrize(
    ("equation", "shapes", "axes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], ["dim0", "dim1", "reduce_j"]),
        ("bik , bjk -> bij", [(2, 3, 4), (2, 5, 4)], ["dim0", "dim1", "dim2", "reduce_k"]),
        ("ij,jk", [(2, 3), (3, 4)], ["dim0", "dim1", "reduce_j"]),
        ("ba", [(3, 2)], ["dim0", "dim1"]),
        ("ij->", [(2, 3)], ["reduce_i", "reduce_j"]),
        ("i,j->ij", [(2,), (3,)], ["dim0", "dim1"]),
        ("ii->i", [(3, 3)], []),
        ("iij->ij", [(3, 3, 4)], ["dim1"]),
        ("...ij,...jk->...ik", [(1, 2, 3, 4), (5, 2, 4, 3)], ["dim0", "dim1", "dim2", "dim3", "reduce_j"]),
        ("...ij,jk", [(2, 3, 4), (4, 5)], ["dim0", "dim1", "dim2", "reduce_j"]),
        ("i...,i...->...", [(3, 2), (3, 1)], ["dim0", "reduce_i"]),
        (
            "bhqd,bhkd,bhkv->bhqv",
            [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)],
            ["dim0", "dim1", "dim2", "dim3", "reduce_d", "reduce_k"],
        ),
    ],
)
def test_letters(equation: str, shapes: list[tuple[int, ...]], axes: list[str]) -> None:
    values = [floats(shape, k) for k, shape in enumerate(shapes)]
    check_split("Einsum", values, {"equation": equation}, opset=12, exactly=axes)


@given(
    left=st.permutations("abcd").flatmap(lambda p: st.integers(1, 4).map(lambda n: "".join(p[:n]))),
    right=st.permutations("abcd").flatmap(lambda p: st.integers(1, 3).map(lambda n: "".join(p[:n]))),
    kept=st.sets(st.sampled_from("abcd")),
)
@settings(max_examples=15, derandomize=True, deadline=None)
def test_any_product_of_two(left: str, right: str, kept: set[str]) -> None:
    letters = sorted({*left, *right})
    result = "".join(letter for letter in letters if letter in kept)
    axes = [f"dim{k}" for k in range(len(result))] + [f"reduce_{x}" for x in letters if x not in result]
    values = [floats([_SIZES[x] for x in term], k) for k, term in enumerate((left, right))]
    check_split("Einsum", values, {"equation": f"{left},{right}->{result}"}, opset=12, exactly=axes)
