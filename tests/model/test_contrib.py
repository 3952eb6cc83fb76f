"""Shapes of ``com.microsoft`` operators against what ONNX Runtime makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from planner.graph.op_graph import Array
from planner.model import load_model
from tests.model.support import save, value

RNG = np.random.default_rng(11)


def f32(*shape: int) -> Array:
    return RNG.random(shape, dtype=np.float32)


Q = np.ones((2, 3, 4), np.uint8)
SCALE, ZERO = np.float32(0.1), np.uint8(1)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes"),
    [
        ("FusedConv", (f32(1, 3, 8, 8), f32(4, 3, 3, 3)), 1, {"strides": [2, 2], "activation": "Relu"}),
        ("FusedMatMul", (f32(2, 5, 3), f32(2, 4, 5)), 1, {"transA": 1, "transB": 1}),
        ("FusedMatMul", (f32(2, 1, 3, 5), f32(4, 5, 6)), 1, {}),
        ("FusedGemm", (f32(3, 5), f32(4, 5), f32(4)), 1, {"transB": 1, "activation": "Relu"}),
        ("BiasGelu", (f32(2, 3, 4), f32(4)), 1, {}),
        ("FastGelu", (f32(2, 3, 4), f32(4)), 1, {}),
        ("QuickGelu", (f32(2, 3),), 1, {}),
        ("SkipLayerNormalization", (f32(2, 3, 4), f32(2, 3, 4), f32(4), f32(4), f32(4)), 4, {}),
        ("SkipSimplifiedLayerNormalization", (f32(2, 3, 4), f32(2, 3, 4), f32(4)), 4, {}),
        ("Attention", (f32(2, 3, 8), f32(8, 24), f32(24)), 2, {"num_heads": 2}),
        ("Attention", (f32(2, 3, 8), f32(8, 24), f32(24), None, f32(2, 2, 2, 5, 4)), 2, {"num_heads": 2}),
        ("MultiHeadAttention", (f32(2, 3, 8), f32(2, 5, 8), f32(2, 5, 8)), 1, {"num_heads": 2}),
        (
            "MatMulNBits",
            (f32(3, 32), np.zeros((8, 1, 16), np.uint8), f32(8)),
            1,
            {"K": 32, "N": 8, "bits": 4, "block_size": 32},
        ),
        ("QLinearAdd", (Q, SCALE, ZERO, Q[:, :1], SCALE, ZERO, SCALE, ZERO), 1, {}),
        ("QLinearMul", (Q[0], SCALE, ZERO, Q, SCALE, ZERO, SCALE, ZERO), 1, {}),
        ("QLinearSigmoid", (Q, SCALE, ZERO, SCALE, ZERO), 1, {}),
        ("QLinearLeakyRelu", (Q, SCALE, ZERO, SCALE, ZERO), 1, {"alpha": 0.1}),
        ("QLinearConcat", (SCALE, ZERO, Q, SCALE, ZERO, Q[:, :2], SCALE, ZERO), 1, {"axis": 1}),
        ("QLinearGlobalAveragePool", (Q, SCALE, ZERO, SCALE, ZERO), 1, {"channels_last": 0}),
        ("QuantizeLinear", (f32(2, 3), SCALE, ZERO), 1, {}),
        ("DequantizeLinear", (Q, SCALE, ZERO), 1, {}),
        ("MatMulIntegerToFloat", (Q, np.ones((4, 5), np.uint8), SCALE, SCALE), 1, {}),
        ("DynamicQuantizeMatMul", (f32(3, 4), np.ones((4, 5), np.uint8), SCALE), 1, {}),
    ],
)
def test_shapes_are_those_of_the_run(
    tmp_path: Path, op_type: str, inputs: Sequence[Array | None], outputs: int, attributes: Mapping[str, Any]
) -> None:
    feeds = {f"i{k}": np.asarray(array) for k, array in enumerate(inputs) if array is not None}
    names = [f"i{k}" if array is not None else "" for k, array in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)]
    if op_type.startswith("Skip"):  # the statistics are not made on CPU
        results[1:3] = ["", ""]
    node = helper.make_node(op_type, names, results, domain="com.microsoft", **attributes)
    declared = [value(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in feeds.items()]
    ends = [onnx.ValueInfoProto(name=name) for name in results if name]
    path = save(tmp_path / "m.onnx", [node], declared, ends, domains={"com.microsoft": 1})
    graph = load_model(path).graph
    found = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for end, array in zip(ends, found, strict=True):
        info = graph.tensors[end.name]
        assert info.shape == array.shape and info.dtype == array.dtype.name, end.name
