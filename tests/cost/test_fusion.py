"""Which operators ONNX Runtime runs as one kernel."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.fusion import fused_groups
from planner.graph.op_graph import OpGraph
from tests.cost.graphs import Builder

DeviceType = Literal["cpu", "cuda"]


def named(graph: OpGraph, device_type: DeviceType = "cpu") -> list[str]:
    """Groups as joined operator types; checks what holds for every answer."""
    groups = fused_groups(graph, device_type)
    assert sorted(itertools.chain(*groups)) == list(range(len(graph.ops)))
    assert all(list(group) == sorted(group) for group in groups)
    assert [group[-1] for group in groups] == sorted(group[-1] for group in groups)
    check_convex(graph, groups)
    return ["+".join(graph.ops[i].op_type for i in group) for group in groups]


def check_convex(graph: OpGraph, groups: tuple[tuple[int, ...], ...]) -> None:
    """No path leaves a group and comes back: the graph of groups has no cycle."""
    group_of = {member: number for number, group in enumerate(groups) for member in group}
    maker = {name: i for i, op in enumerate(graph.ops) for name in op.writes}
    before: dict[int, set[int]] = {number: set() for number in range(len(groups))}
    for i, op in enumerate(graph.ops):
        for name in op.reads:
            if name in maker and group_of[maker[name]] != group_of[i]:
                before[group_of[i]].add(group_of[maker[name]])
    done: set[int] = set()
    while len(done) < len(groups):
        ready = {number for number in before if number not in done and before[number] <= done}
        assert ready, "the groups depend on each other in a circle"
        done |= ready


def residual_block(b: Builder, x: str) -> str:
    """Conv, BN, Relu, Conv, Add, Relu."""
    shape = b.tensors[x].dims
    y = b.conv(x, shape[1])
    stats = [b.weight(f"bn{i}", shape[1]) for i in range(4)]
    y = b.op("BatchNormalization", [y, *stats], shape)
    y = b.op("Relu", [y], shape)
    y = b.conv(y, shape[1])
    y = b.op("Add", [y, x], shape)
    return b.op("Relu", [y], shape)


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_residual_block_is_two_kernels(device_type: DeviceType) -> None:
    b = Builder()
    out = residual_block(b, b.input("x", 1, 16, 8, 8))
    assert named(b.graph(out), device_type) == ["Conv+BatchNormalization+Relu", "Conv+Add+Relu"]


def test_cuda_adds_a_residual_only_before_relu() -> None:
    b = Builder()
    x = b.input("x", 1, 16, 8, 8)
    y = b.op("Add", [b.conv(x, 16), x], (1, 16, 8, 8))
    assert named(b.graph(y), "cuda") == ["Conv", "Add"]
    assert named(b.graph(y), "cpu") == ["Conv+Add"]


def test_blocked_layout_decides_the_residual_on_cpu() -> None:
    b = Builder()
    x = b.input("x", 1, 12, 8, 8)
    y = b.op("Add", [b.conv(x, 12, group=3), x], (1, 12, 8, 8))
    assert named(b.graph(y)) == ["Conv", "Add"]


@pytest.mark.parametrize(
    ("op_type", "cpu", "cuda"), [("Relu", True, True), ("Sigmoid", True, False), ("Exp", False, False)]
)
def test_activations_behind_conv(op_type: str, cpu: bool, cuda: bool) -> None:
    b = Builder()
    y = b.op(op_type, [b.conv(b.input("x", 1, 8, 8, 8), 8)], (1, 8, 8, 8))
    assert (len(named(b.graph(y), "cpu")) == 1) is cpu
    assert (len(named(b.graph(y), "cuda")) == 1) is cuda


def test_nothing_fuses_behind_an_activation() -> None:
    b = Builder()
    y = b.op("Relu", [b.conv(b.input("x", 1, 8, 8, 8), 8)], (1, 8, 8, 8))
    y = b.op("Relu", [y], (1, 8, 8, 8))
    assert named(b.graph(y)) == ["Conv+Relu", "Relu"]


def test_two_readers_or_a_graph_output_prevent_fusion() -> None:
    b = Builder()
    c = b.conv(b.input("x", 1, 8, 8, 8), 8)
    r = b.op("Relu", [c], (1, 8, 8, 8))
    assert named(b.graph(r)) == ["Conv+Relu"]
    assert named(b.graph(r, c)) == ["Conv", "Relu"]
    t = b.op("Exp", [c], (1, 8, 8, 8))
    assert named(b.graph(r, t)) == ["Conv", "Relu", "Exp"]


def test_channel_constants_fold_and_others_do_not() -> None:
    b = Builder()
    x = b.input("x", 1, 8, 4, 4)
    y = b.op("Mul", [b.conv(x, 8), b.weight("scale", 8, 1, 1)], (1, 8, 4, 4))
    z = b.op("Mul", [b.conv(x, 8), b.weight("mask", 4, 4)], (1, 8, 4, 4))
    assert named(b.graph(y, z)) == ["Conv+Mul", "Conv", "Mul"]


def test_clip_needs_constant_bounds() -> None:
    b = Builder()
    x, low = b.input("x", 1, 8, 4, 4), b.input("low")
    y = b.op("Clip", [b.conv(x, 8), b.weight("zero"), b.weight("six")], (1, 8, 4, 4))
    z = b.op("Clip", [b.conv(x, 8), low], (1, 8, 4, 4))
    assert named(b.graph(y, z)) == ["Conv+Clip", "Conv", "Clip"]


def test_matmul_and_bias_is_gemm_only_for_matrices() -> None:
    b = Builder()
    flat = b.op("MatMul", [b.input("x", 4, 8), b.weight("w", 8, 16)], (4, 16))
    flat = b.op("Relu", [b.op("Add", [flat, b.weight("c", 16)], (4, 16))], (4, 16))
    deep = b.op("MatMul", [b.input("y", 2, 4, 8), b.weight("v", 8, 16)], (2, 4, 16))
    deep = b.op("Add", [deep, b.weight("d", 16)], (2, 4, 16))
    assert named(b.graph(flat, deep), "cpu") == ["MatMul+Add+Relu", "MatMul", "Add"]
    assert named(b.graph(flat, deep), "cuda") == ["MatMul+Add", "Relu", "MatMul", "Add"]


def test_transposes_of_the_last_two_axes_fold_into_matmul() -> None:
    b = Builder()
    x, y = b.input("x", 2, 4, 8), b.input("y", 2, 16, 8)
    folded = b.op("MatMul", [x, b.op("Transpose", [y], (2, 8, 16), perm=(0, 2, 1))], (2, 4, 16))
    z = b.op("Transpose", [b.input("z", 8, 2, 16)], (2, 8, 16), perm=(1, 0, 2))
    apart = b.op("MatMul", [x, z], (2, 4, 16))
    assert named(b.graph(folded, apart)) == ["Transpose+MatMul", "Transpose", "MatMul"]


@pytest.mark.parametrize("order", ["last", "first"])
@pytest.mark.parametrize("bias", [False, True])
def test_gelu_in_both_spellings(order: str, bias: bool) -> None:
    b = Builder()
    shape = (1, 4, 8)
    x = b.input("x", *shape)
    if bias:
        x = b.op("Add", [x, b.weight("bias", 8)], shape)
    half = b.op("Mul", [x, b.weight("half")], shape) if order == "first" else ""
    erf = b.op("Erf", [b.op("Div", [x, b.weight("root")], shape)], shape)
    one = b.op("Add", [erf, b.weight("one")], shape)
    out = b.op("Mul", [half or x, one], shape)
    if order == "last":
        out = b.op("Mul", [out, b.weight("half")], shape)
    assert len(named(b.graph(out))) == 1


def layer_norm(b: Builder, x: str) -> str:
    shape = b.tensors[x].dims
    small = (*shape[:-1], 1)
    centred = b.op("Sub", [x, b.op("ReduceMean", [x], small)], shape)
    square = b.op("Pow", [centred, b.weight(f"two{len(b.ops)}")], shape)
    variance = b.op("ReduceMean", [square], small)
    root = b.op("Sqrt", [b.op("Add", [variance, b.weight(f"eps{len(b.ops)}")], small)], small)
    y = b.op("Mul", [b.op("Div", [centred, root], shape), b.weight(f"g{len(b.ops)}", shape[-1])], shape)
    return b.op("Add", [y, b.weight(f"b{len(b.ops)}", shape[-1])], shape)


def test_layer_norm_with_the_residual_in_front() -> None:
    b = Builder()
    shape = (1, 4, 8)
    skip = b.op("Add", [b.input("x", *shape), b.input("y", *shape)], shape)
    out = layer_norm(b, skip)
    assert len(named(b.graph(out))) == 1
    # The sum is needed elsewhere: it stays outside.
    assert named(b.graph(out, skip))[0] == "Add"
    assert len(named(b.graph(out, skip))) == 2


def test_skip_layer_normalization_operator() -> None:
    b = Builder()
    shape = (1, 4, 8)
    skip = b.op("Add", [b.input("x", *shape), b.input("y", *shape)], shape)
    out = b.op("LayerNormalization", [skip, b.weight("g", 8)], shape)
    assert named(b.graph(out)) == ["Add+LayerNormalization"]


def test_views_go_with_their_producer_and_end_fusion() -> None:
    b = Builder()
    y = b.op("Reshape", [b.conv(b.input("x", 1, 8, 4, 4), 8), b.weight("target", 2)], (1, 128))
    y = b.op("Relu", [y], (1, 128))
    assert named(b.graph(y)) == ["Conv+Reshape", "Relu"]


def test_identity_is_transparent() -> None:
    b = Builder()
    y = b.op("Identity", [b.conv(b.input("x", 1, 8, 4, 4), 8)], (1, 8, 4, 4))
    y = b.op("Relu", [y], (1, 8, 4, 4))
    assert named(b.graph(y)) == ["Conv+Identity+Relu"]


def test_quantised_conv_is_one_kernel_on_cpu() -> None:
    b = Builder()
    x = b.input("x", 1, 8, 4, 4)
    scale = b.weight("s")
    data = b.op("DequantizeLinear", [x, scale], (1, 8, 4, 4))
    kernel = b.op("DequantizeLinear", [b.weight("k", 8, 8, 1, 1), scale], (8, 8, 1, 1))
    y = b.op("Conv", [data, kernel], (1, 8, 4, 4))
    y = b.op("QuantizeLinear", [y, scale], (1, 8, 4, 4))
    assert named(b.graph(y), "cpu") == ["DequantizeLinear+DequantizeLinear+Conv+QuantizeLinear"]
    assert len(named(b.graph(y), "cuda")) == 4


def test_empty_graph() -> None:
    assert fused_groups(Builder().graph(), "cpu") == ()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_graph_is_partitioned_into_convex_groups(data: st.DataObject) -> None:
    b = Builder()
    shape = (1, 8, 4, 4)
    values = [b.input("x", *shape)]
    kinds = ["Conv", "Relu", "Add", "Mul", "Sigmoid", "Identity", "Erf", "BiasAdd", "Transpose", "MatMul", "Reshape"]
    for step in range(data.draw(st.integers(1, 25))):
        kind = data.draw(st.sampled_from(kinds))
        x, y = (values[-1 - data.draw(st.integers(0, min(4, len(values) - 1)))] for _ in range(2))
        if kind == "Conv":
            values.append(b.conv(x, 8))
        elif kind in ("Add", "Mul", "MatMul"):
            values.append(b.op(kind, [x, y], shape))
        elif kind == "BiasAdd":
            values.append(b.op("Add", [x, b.weight(f"c{step}", 8, 1, 1)], shape))
        elif kind == "Reshape":
            values.append(b.op(kind, [x, b.weight(f"t{step}", 4)], shape))
        elif kind == "Transpose":
            values.append(b.op(kind, [x], shape, perm=(0, 1, 3, 2)))
        else:
            values.append(b.op(kind, [x], shape))
    graph = b.graph(values[-1], *data.draw(st.lists(st.sampled_from(values[1:]), max_size=2)))
    for device_type in ("cpu", "cuda"):
        assert named(graph, device_type) == named(graph, device_type)
