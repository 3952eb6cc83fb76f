"""Rules of matrix products against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Op, OpContext, TensorInfo
from planner.split.table import shard_op, split_axes
from planner.split.types import Absent, Whole
from tests.split.harness import check_split, floats, ints

sizes = st.integers(2, 5)


def _batch(*batches: tuple[int, ...]) -> list[str]:
    return [f"dim{k}" for k, size in enumerate(np.broadcast_shapes(*batches)) if size > 1]


@st.composite
def batch_pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = draw(st.lists(st.integers(1, 4), max_size=3))
    found = []
    for _ in range(2):
        kept = draw(st.integers(0, len(full)))
        found.append(tuple(size if draw(st.booleans()) else 1 for size in full[len(full) - kept :]))
    return found[0], found[1]


@given(batches=batch_pairs(), m=sizes, k=sizes, n=sizes)
@settings(max_examples=15, derandomize=True, deadline=None)
def test_matmul_with_broadcast_batches(
    batches: tuple[tuple[int, ...], tuple[int, ...]], m: int, k: int, n: int
) -> None:
    left, right = floats((*batches[0], m, k), 1), floats((*batches[1], k, n), 2)
    check_split("MatMul", [left, right], opset=13, exactly=["rows", "columns", "reduce", *_batch(*batches)])


@pytest.mark.parametrize(
    ("left", "right", "axes"),
    [
        ((4,), (4, 3), ["columns", "reduce"]),
        ((4,), (2, 4, 3), ["dim0", "columns", "reduce"]),
        ((3, 4), (4,), ["rows", "reduce"]),
        ((2, 3, 4), (4,), ["dim0", "rows", "reduce"]),
        ((4,), (4,), ["reduce"]),
    ],
)
def test_matmul_of_vectors(left: tuple[int, ...], right: tuple[int, ...], axes: list[str]) -> None:
    check_split("MatMul", [floats(left, 1), floats(right, 2)], opset=13, exactly=axes)


@given(
    m=sizes,
    k=sizes,
    n=sizes,
    trans_a=st.booleans(),
    trans_b=st.booleans(),
    bias=st.sampled_from(["", "()", "(n)", "(1,n)", "(m,1)", "(m,n)"]),
    opset=st.sampled_from([7, 9, 11, 13]),
)
@settings(max_examples=15, derandomize=True, deadline=None)
def test_gemm(m: int, k: int, n: int, trans_a: bool, trans_b: bool, bias: str, opset: int) -> None:
    shapes = {"()": (), "(n)": (n,), "(1,n)": (1, n), "(m,1)": (m, 1), "(m,n)": (m, n)}
    if not bias and opset < 11:
        bias = "(n)"
    values = [floats((k, m) if trans_a else (m, k), 1), floats((n, k) if trans_b else (k, n), 2)]
    if bias:
        values.append(floats(shapes[bias], 3))
    attributes = {"transA": int(trans_a), "transB": int(trans_b), "alpha": 0.5, "beta": 1.5}
    check_split("Gemm", values, attributes, opset=opset, exactly=["rows", "columns", "reduce"])


def test_bias_of_gemm_belongs_to_the_first_shard_only() -> None:
    infos = [TensorInfo(n, "float32", s) for n, s in (("a", (4, 6)), ("b", (6, 8)), ("c", (8,)), ("y", (4, 8)))]
    op = Op("op", "", "Gemm", 13, ("a", "b", "c"), ("y",))
    ctx = OpContext(op, tuple(infos[:3]), (infos[3],), (None,) * 3, (False, True, True))
    parts = [shard_op(ctx, "reduce", start, start + 2).inputs[2] for start in (0, 2, 4)]
    assert parts == [Whole(), Absent(), Absent()]


@given(
    batch=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    flags=st.tuples(*(st.booleans(),) * 4),
    m=sizes,
    k=sizes,
    n=sizes,
)
@settings(max_examples=15, derandomize=True, deadline=None)
def test_fused_matmul(batch: tuple[int, ...], flags: tuple[bool, ...], m: int, k: int, n: int) -> None:
    trans_a, trans_b = flags[:2]
    inside_a, inside_b = (flag and bool(batch) for flag in flags[2:])

    def shape(rows: int, columns: int, transposed: bool, inside: bool) -> tuple[int, ...]:
        first, last = (columns, rows) if transposed else (rows, columns)
        return (first, *batch, last) if inside else (*batch, first, last)

    values = [floats(shape(m, k, trans_a, inside_a), 1), floats(shape(k, n, trans_b, inside_b), 2)]
    names = ("transA", "transB", "transBatchA", "transBatchB")
    attributes = {"alpha": 0.5, **dict(zip(names, map(int, (trans_a, trans_b, inside_a, inside_b)), strict=True))}
    check_split(
        "FusedMatMul",
        values,
        attributes,
        opset=1,
        domain="com.microsoft",
        exactly=["rows", "columns", "reduce", *_batch(batch)],
    )


def test_fused_gemm_with_activation_has_no_partial_sums() -> None:
    values = [floats((4, 6), 1), floats((6, 5), 2), floats((5,), 3)]
    check_split(
        "FusedGemm", values, {"activation": "Relu"}, opset=1, domain="com.microsoft", exactly=["rows", "columns"]
    )


def test_matmul_integer() -> None:
    values = [ints((2, 3, 4), 0, 200, 1, "uint8"), ints((4, 5), 0, 200, 2, "uint8")]
    axes = ["dim0", "rows", "columns", "reduce"]
    check_split("MatMulInteger", values, opset=10, exactly=axes)
    points = [np.asarray(7, "uint8"), ints((5,), 0, 9, 3, "uint8")]
    check_split("MatMulInteger", [*values, *points], opset=10, weights=(1,), exactly=axes)


@pytest.mark.parametrize("per_column", [False, True])
def test_qlinear_matmul(per_column: bool) -> None:
    scale, point = (
        (floats((5,), 4) ** 2 + 0.01, ints((5,), 0, 9, 5, "uint8"))
        if per_column
        else (
            np.asarray(np.float32(0.02)),
            np.asarray(3, "uint8"),
        )
    )
    values = [
        *(ints((2, 3, 4), 0, 200, 1, "uint8"), np.asarray(np.float32(0.01)), np.asarray(2, "uint8")),
        *(ints((4, 5), 0, 200, 2, "uint8"), scale, point),
        *(np.asarray(np.float32(0.1)), np.asarray(100, "uint8")),
    ]
    check_split("QLinearMatMul", values, opset=10, exactly=["dim0", "rows", "columns"])


@pytest.mark.parametrize("per_column", [False, True])
def test_matmul_integer_to_float(per_column: bool) -> None:
    scale, point = (
        (floats((5,), 4), ints((5,), 0, 9, 5, "uint8"))
        if per_column
        else (
            np.asarray([0.02], "float32"),
            np.asarray([3], "uint8"),
        )
    )
    values = [
        *(ints((2, 3, 4), 0, 200, 1, "uint8"), ints((4, 5), 0, 200, 2, "uint8"), np.asarray([0.01], "float32"), scale),
        *(np.asarray([2], "uint8"), point, floats((5,), 6)),
    ]
    domain = "com.microsoft"
    check_split("MatMulIntegerToFloat", values, opset=1, domain=domain, exactly=["dim0", "rows", "columns"])


def test_dynamic_quantisation_leaves_only_columns() -> None:
    values = [floats((3, 4), 1), ints((4, 5), 0, 200, 2, "uint8"), floats((5,), 3), ints((5,), 0, 9, 4, "uint8")]
    check_split(
        "DynamicQuantizeMatMul", [*values, floats((5,), 5)], opset=1, domain="com.microsoft", exactly=["columns"]
    )


@pytest.mark.parametrize("points", ["none", "packed", "flat"])
@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_nbits(points: str, bits: int) -> None:
    n, k, block = 6, 40, 16
    blocks = 3
    values: list[np.ndarray | None] = [
        floats((2, 3, k), 1),
        ints((n, blocks, block * bits // 8), 0, 256, 2, "uint8"),
        floats((n, blocks), 3) if points != "flat" else floats((n * blocks,), 3),
    ]
    packed = (blocks * bits + 7) // 8
    if points == "packed":
        values.append(ints((n, packed), 0, 256, 4, "uint8"))
    elif points == "flat":
        values.append(ints((n * packed,), 0, 256, 4, "uint8"))
    else:
        values.append(None)
    values += [None, floats((n,), 5)]
    check_split(
        "MatMulNBits",
        values,
        {"N": n, "K": k, "bits": bits, "block_size": block},
        opset=1,
        domain="com.microsoft",
        weights=(1, 2, 3, 5),
        exactly=["dim0", "rows", "columns"],
        twice=False,
    )


def test_unknown_sizes_leave_the_other_axes() -> None:
    left, right, out = (TensorInfo(n, "float32", s) for n, s in (("a", (None, 4)), ("b", (4, 6)), ("y", (None, 6))))
    ctx = OpContext(Op("op", "", "MatMul", 13, ("a", "b"), ("y",)), (left, right), (out,), (None, None), (False, True))
    assert [axis.name for axis in split_axes(ctx)] == ["columns", "reduce"]
