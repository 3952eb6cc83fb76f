"""Flops, bytes, rooflines, keys and estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cluster.sheets import DataSheet, load_sheets, sheet_for
from planner.cluster.types import Device
from planner.cost.estimate import CostTable
from planner.cost.flops import family, is_view, op_bytes, op_flops
from planner.cost.keys import group_key
from planner.cost.model import CostModel
from planner.cost.profile import DISPATCH_KEY, Measurement, ProfileKey, ProfileTable
from planner.cost.roofline import group_bytes, group_ns
from planner.errors import ClusterError
from planner.graph.op_graph import Attribute, Op, OpContext, TensorInfo
from tests.cost.graphs import Builder

V100 = Device("cuda:0", "v100-sxm2-16gb", "cuda", 1 << 34)
CPU = Device("cpu:0", "cpu-some-model-2c", "cpu", 1 << 33)


def one(b: Builder) -> OpContext:
    return b.contexts()[-1]


def conv(out_channels: int = 64, group: int = 1, dtype: str = "float32") -> OpContext:
    b = Builder(dtype)
    b.conv(b.input("x", 2, 32, 14, 14), out_channels, group=group)
    return one(b)


def flops(op_type: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], **attributes: Any) -> int:
    b = Builder()
    names = [b.input(f"i{n}", *shape) for n, shape in enumerate(inputs)]
    b.op(op_type, names, output, **attributes)
    return op_flops(one(b))


def test_conv_flops_by_groups() -> None:
    assert op_flops(conv()) == 2 * 2 * 64 * 14 * 14 * 32 * 9
    assert op_flops(conv(group=4)) == 2 * 2 * 64 * 14 * 14 * 8 * 9
    assert op_flops(conv(32, group=32)) == 2 * 2 * 32 * 14 * 14 * 9
    assert family(conv()) == "conv"
    assert family(conv(32, group=32)) == "depthwise"


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "attributes", "expected"),
    [
        ("ConvTranspose", [(1, 8, 5, 5), (8, 4, 2, 2)], (1, 4, 10, 10), {}, 2 * 8 * 25 * 4 * 4),
        ("MatMul", [(3, 4, 5), (5, 6)], (3, 4, 6), {}, 2 * 72 * 5),
        ("MatMul", [(5,), (5, 6)], (6,), {}, 2 * 6 * 5),
        ("Gemm", [(5, 4), (5, 6), (6,)], (4, 6), {"transA": 1}, 2 * 24 * 5),
        ("Einsum", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), {"equation": "bij,bjk->bik"}, 2 * 2 * 3 * 4 * 5),
        ("Einsum", [(7, 3, 4), (4, 5)], (7, 3, 5), {"equation": "...ij,jk->...ik"}, 2 * 7 * 3 * 4 * 5),
        ("LSTM", [(10, 2, 8), (1, 64, 8), (1, 64, 16)], (10, 1, 2, 16), {}, 2 * 10 * 2 * 64 * 24),
        ("GRU", [(10, 2, 8), (2, 48, 8), (2, 48, 16)], (10, 2, 2, 16), {}, 2 * 10 * 2 * 2 * 48 * 24),
        ("MaxPool", [(1, 8, 8, 8)], (1, 8, 4, 4), {"kernel_shape": (3, 3)}, 128 * 9),
        ("GlobalAveragePool", [(1, 8, 8, 8)], (1, 8, 1, 1), {}, 512),
        ("ReduceSum", [(4, 100)], (4, 1), {}, 400),
        ("Add", [(4, 100), (100,)], (4, 100), {}, 400),
        ("Erf", [(4, 100)], (4, 100), {}, 3200),
        ("Transpose", [(4, 100)], (100, 4), {}, 0),
        ("Reshape", [(4, 100), (2,)], (400,), {}, 0),
        ("MultiHeadAttention", [(1, 6, 8), (1, 10, 8), (1, 10, 8)], (1, 6, 8), {}, 4 * 48 * 10),
    ],
)
def test_flops(
    op_type: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], attributes: dict[str, Any], expected: int
) -> None:
    assert flops(op_type, inputs, output, **attributes) == expected


def test_bytes_of_what_is_touched() -> None:
    b = Builder()
    b.op("Add", [b.input("x", 10), b.weight("w", 10)], (10,))
    assert op_bytes(one(b)) == 120
    b = Builder("float16")
    b.op("Gather", [b.weight("table", 30000, 100), b.input("ids", 4)], (4, 100))
    assert op_bytes(one(b)) == 2 * 4 * 100 * 2  # not the whole table
    b.op("Reshape", ["gather0"], (400,))
    assert op_bytes(one(b)) == 0


def test_control_flow_counts_bytes_only() -> None:
    b = Builder()
    b.op("If", [b.input("c", 1)], (100,))
    graph = b.graph()
    op = Op("if", "", "If", 17, ("c",), ("if0",), {"then_branch": Attribute("opaque", None)})
    context = graph.context(op)
    assert op_flops(context) == 0
    assert op_bytes(context) == 404
    assert family(context) == "other"


def test_dropout_is_a_view_only_at_inference() -> None:
    b = Builder()
    b.op("Dropout", [b.input("x", 4), b.weight("ratio"), b.weight("mode")], (4,))
    assert is_view(one(b))
    b.op("Dropout", ["x", "ratio", b.input("training")], (4,))
    assert not is_view(one(b))


def test_roofline_is_the_larger_roof_plus_launch() -> None:
    sheet = DataSheet(
        "k", "cuda", 1, {"float32": 10**12}, 10**9, 700, 0, "", dict.fromkeys(("matmul", "elementwise"), 50)
    )
    b = Builder()
    b.op("MatMul", [b.input("x", 100, 1000), b.weight("w", 1000, 100)], (100, 100))
    by_memory = group_ns([one(b)], sheet)
    assert by_memory == 4 * (2 * 100_000 + 10_000) + 700
    fast = DataSheet("k", "cuda", 1, {"float32": 10**12}, 10**13, 700, 0, "", {"matmul": 50})
    assert group_ns([one(b)], fast) == 2 * 100 * 100 * 1000 * 2 // 1000 + 700


def test_halving_a_small_product_on_a_gpu_saves_less_than_half() -> None:
    sheet = sheet_for(V100.kind)
    whole, half = group_ns([conv(64)], sheet), group_ns([conv(32)], sheet)
    assert half < whole < 2 * (half - sheet.launch_ns)
    cpu = sheet_for(CPU.kind)
    assert abs(group_ns([conv(64)], cpu) - cpu.launch_ns - 2 * (group_ns([conv(32)], cpu) - cpu.launch_ns)) <= 2


def test_a_recurrence_fills_a_gpu_step_by_step() -> None:
    def lstm(steps: int, batch: int) -> int:
        b = Builder()
        names = [b.input("x", steps, batch, 64), b.weight("w", 1, 256, 64), b.weight("r", 1, 256, 64)]
        b.op("LSTM", names, (steps, 1, batch, 64))
        return group_ns([one(b)], sheet_for(V100.kind))

    assert lstm(100, 1) > 10 * lstm(1, 100)


def test_fusion_saves_bytes_and_launches() -> None:
    b = Builder()
    b.op("Relu", [b.conv(b.input("x", 1, 8, 32, 32), 8)], (1, 8, 32, 32))
    first, second = b.contexts()
    sheet = sheet_for(V100.kind)
    assert group_bytes([first, second]) == group_bytes([first])
    assert group_ns([first, second], sheet) < group_ns([first], sheet) + group_ns([second], sheet)
    view = b.op("Reshape", ["relu1"], (1, 8192))
    third = b.contexts()[-1]
    assert third.outputs[0] is not None and third.outputs[0].name == view
    assert group_bytes([first, second, third]) == group_bytes([first])


def test_views_cost_nothing() -> None:
    b = Builder()
    b.op("Reshape", [b.input("x", 1000)], (10, 100))
    assert CostTable(None, load_sheets()).group_ns([one(b)], V100).ns == 0


def test_element_types_and_tensor_cores() -> None:
    a100, v100 = sheet_for("a100-sxm4-40gb"), sheet_for("v100-sxm2-16gb")
    big = Builder()
    big.op("MatMul", [big.input("x", 4096, 4096), big.weight("w", 4096, 4096)], (4096, 4096))
    half = Builder("float16")
    half.op("MatMul", [half.input("x", 4096, 4096), half.weight("w", 4096, 4096)], (4096, 4096))
    # V100: float32 is 8 times slower than tensor cores; A100 uses TF32 for float32, half the float16 rate.
    assert 7 < group_ns([one(big)], v100) / group_ns([one(half)], v100) < 9
    assert 1.8 < group_ns([one(big)], a100) / group_ns([one(half)], a100) < 2.2


def test_key_ignores_names_and_versions_and_sees_shapes_and_attributes() -> None:
    def key(x: str = "x", channels: int = 8, version: int = 17, group: int = 1, dtype: str = "float32") -> str:
        b = Builder(dtype)
        b.conv(b.input(x, 1, 8, 4, 4), channels, group=group)
        op = b.ops[0]
        renamed = Op("other" + x, op.domain, op.op_type, version, op.inputs, op.outputs, op.attributes)
        return group_key([b.graph().context(renamed)])

    assert key() == key("y", version=11)
    assert len({key(), key(channels=16), key(group=2), key(dtype="float16")}) == 4


def test_key_does_not_depend_on_whether_defaults_are_written_out() -> None:
    def key(**attributes: Any) -> str:
        b = Builder()
        b.op("Conv", [b.input("x", 1, 8, 4, 4), b.weight("w", 8, 8, 3, 3)], (1, 8, 4, 4), **attributes)
        return group_key([one(b)])

    assert key() == key(group=1, strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), auto_pad="NOTSET")
    assert len({key(), key(strides=(2, 2)), key(dilations=(1, 2)), key(pads=(0, 0, 1, 1))}) == 4


def test_key_names_followers_and_skips_views() -> None:
    b = Builder()
    y = b.op("Relu", [b.conv(b.input("x", 1, 8, 4, 4), 8)], (1, 8, 4, 4))
    b.op("Reshape", [y], (1, 128))
    a, r, v = b.contexts()
    assert group_key([a, r]) != group_key([a])
    assert group_key([a, r, v]) == group_key([a, r])
    assert "\n" not in group_key([a, r])


def test_long_keys_are_bounded_and_distinct() -> None:
    def key(last: int) -> str:
        b = Builder()
        names = [b.input(f"i{n}", 1, 8, n + 1) for n in range(100)]
        b.op("Concat", names, (1, 8, 5050), axis=last)
        return group_key([one(b)])

    assert len(key(1)) <= 240
    assert key(1) != key(2)


def profile(*entries: tuple[Device, str, int]) -> ProfileTable:
    return ProfileTable({ProfileKey(d.kind, d.type, key): Measurement(ns, 9, "1.32.0") for d, key, ns in entries})


def test_measured_before_estimated() -> None:
    op = conv()
    table: CostModel = CostTable(profile((CPU, group_key([op]), 777_000)), load_sheets())
    assert table.group_ns([op], CPU).ns == 777_000
    assert table.group_ns([op], CPU).measured
    assert not table.group_ns([op], V100).measured
    assert not table.group_ns([conv(32)], CPU).measured


def test_half_an_operator_from_the_measured_whole() -> None:
    whole, half = conv(64), conv(32)
    table = CostTable(profile((CPU, group_key([whole]), 3_000_000)), load_sheets())
    cost = table.group_ns([half], CPU, parent=[whole])
    assert not cost.measured
    assert 1_500_000 <= cost.ns <= 1_600_000
    assert table.group_ns([half], CPU, parent=[conv(16)]) == table.group_ns([half], CPU)


def test_a_part_costs_at_least_its_launch_and_at_most_the_whole() -> None:
    whole = conv(64)
    for ns in (1, 100, 10_000, 10**9):
        table = CostTable(profile((V100, group_key([whole]), ns)), load_sheets())
        costs = [table.group_ns([conv(c)], V100, parent=[whole]).ns for c in (1, 8, 32, 64)]
        assert costs == sorted(costs)
        assert costs[-1] == ns
        assert costs[0] >= min(ns, sheet_for(V100.kind).launch_ns)


def test_calibration_scales_what_is_not_measured() -> None:
    sheets = load_sheets()
    known = [[conv(c)] for c in (8, 16, 64)]
    sheet = sheet_for(CPU.kind, sheets)
    ratios = (2, 3, 50)
    entries = [(CPU, group_key(ops), ratio * group_ns(ops, sheet)) for ops, ratio in zip(known, ratios, strict=True)]
    table = CostTable(profile(*entries), sheets)
    calibrated = table.calibrated([*known, [conv(48)]], [CPU, V100])
    unknown = [conv(48)]
    assert calibrated.group_ns(unknown, CPU).ns == 3 * table.group_ns(unknown, CPU).ns
    assert not calibrated.group_ns(unknown, CPU).measured
    # Another family takes the device's median, another device nothing.
    b = Builder()
    b.op("Relu", [b.input("x", 1000)], (1000,))
    assert calibrated.group_ns([one(b)], CPU).ns == 3 * table.group_ns([one(b)], CPU).ns
    assert calibrated.group_ns(unknown, V100) == table.group_ns(unknown, V100)


def test_all_cores_take_over_what_one_core_says_of_the_data_sheet() -> None:
    def cpu(cores: int, name: str = "some") -> Device:
        return Device(f"cpu:{cores}", f"cpu-{name}-{cores}c", "cpu", 1 << 34, cores=tuple(range(cores)))

    sheets = load_sheets()
    groups = [[conv(c)] for c in (8, 16, 64)]
    sheet = sheet_for(cpu(1).kind, sheets)
    table = CostTable(profile(*((cpu(1), group_key(ops), 3 * group_ns(ops, sheet)) for ops in groups)), sheets)
    calibrated = table.calibrated(groups, [cpu(1), cpu(4), cpu(4, "other")])
    assert calibrated.group_ns(groups[0], cpu(4)).ns == 3 * table.group_ns(groups[0], cpu(4)).ns
    assert not calibrated.group_ns(groups[0], cpu(4)).measured
    assert calibrated.group_ns(groups[0], cpu(4, "other")) == table.group_ns(groups[0], cpu(4, "other"))


def test_dispatch_from_profile_or_sheet() -> None:
    assert CostTable(profile((CPU, DISPATCH_KEY, 6_000)), load_sheets()).dispatch_ns(CPU).ns == 6_000
    estimated = CostTable(None, load_sheets()).dispatch_ns(V100)
    assert (estimated.ns, estimated.measured) == (sheet_for(V100.kind).dispatch_ns, False)


def test_unknown_kind_is_an_error_only_if_it_must_be_estimated() -> None:
    device = Device("cuda:0", "nobody-knows", "cuda", 1)
    op = conv()
    assert CostTable(profile((device, group_key([op]), 5)), load_sheets()).group_ns([op], device).ns == 5
    with pytest.raises(ClusterError, match="nobody-knows"):
        CostTable(None, load_sheets()).group_ns([op], device)


def test_operators_with_bodies_are_told_apart_by_body_trips_and_captured_shapes() -> None:
    def key(body: str, trips: int, rows: int) -> str:
        op = Op("l", "", "Loop", 18, ("m", "", "x"), ("y",), {"body": Attribute("opaque", None, body)}, ("w",))
        infos = (TensorInfo("m", "int64", ()), None, TensorInfo("x", "float32", (4,)))
        captured = (TensorInfo("w", "float32", (rows, 4)),)
        constants = (np.array(trips), None, None)
        return group_key([OpContext(op, infos, (infos[2],), constants, (False,) * 3, captured)])

    assert key("a", 4, 4) == key("a", 4, 4)
    assert len({key("a", 4, 4), key("b", 4, 4), key("a", 160, 4), key("a", 4, 8)}) == 4
