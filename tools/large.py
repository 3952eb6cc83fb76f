"""A decoder of the size of Llama 7B with random structure-true weights that take no disk: its data file is sparse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS: Final = 32
WIDTH: Final = 4096
HEADS: Final = 32
INNER: Final = 11008
VOCABULARY: Final = 32000
SEQUENCE: Final = 128
DATA: Final = "weights.bin"


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.offset = 0

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        nbytes = 2 * int(np.prod(shape))
        for key, value in (("location", DATA), ("offset", self.offset), ("length", nbytes)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        self.offset += nbytes
        self.weights.append(tensor)
        return name

    def constant(self, name: str, values: list[int]) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    def node(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n:{name}", **attributes))
        return name


def save_decoder(folder: Path, layers: int = LAYERS) -> Path:
    """Write the model and its sparse data file.

    Args:
        folder: where; made if it is not there.
        layers: decoder layers.

    Returns:
        The ONNX file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    b = _Builder()
    shape = b.constant("split_heads", [0, 0, HEADS, WIDTH // HEADS])
    flat = b.constant("join_heads", [0, 0, WIDTH])
    x = b.node("Gather", [b.weight("embedding", (VOCABULARY, WIDTH)), "ids"], "x")
    for layer in range(layers):
        x = _layer(b, x, f"l{layer}", shape, flat)
    x = b.node("LayerNormalization", [x, b.weight("norm", (WIDTH,))], "normed", axis=-1)
    logits = b.node("MatMul", [x, b.weight("head", (WIDTH, VOCABULARY))], "logits")
    graph = helper.make_graph(
        b.nodes,
        "decoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, SEQUENCE])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT16, [1, SEQUENCE, VOCABULARY])],
        b.weights,
    )
    path = folder / "decoder.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    with (folder / DATA).open("wb") as data:
        os.truncate(data.fileno(), b.offset)
    return path


def _layer(b: _Builder, x: str, p: str, shape: str, flat: str) -> str:
    n = b.node("LayerNormalization", [x, b.weight(f"{p}.norm1", (WIDTH,))], f"{p}.n1", axis=-1)
    parts = {}
    for part in "qkv":
        made = b.node("MatMul", [n, b.weight(f"{p}.w{part}", (WIDTH, WIDTH))], f"{p}.{part}")
        split = b.node("Reshape", [made, shape], f"{p}.{part}4")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts[part] = b.node("Transpose", [split], f"{p}.{part}t", perm=order)
    scores = b.node("MatMul", [parts["q"], parts["k"]], f"{p}.scores")
    weights = b.node("Softmax", [scores], f"{p}.weights", axis=-1)
    mixed = b.node("MatMul", [weights, parts["v"]], f"{p}.mixed")
    joined = b.node("Reshape", [b.node("Transpose", [mixed], f"{p}.mt", perm=[0, 2, 1, 3]), flat], f"{p}.joined")
    out = b.node("MatMul", [joined, b.weight(f"{p}.wo", (WIDTH, WIDTH))], f"{p}.o")
    x = b.node("Add", [x, out], f"{p}.x1")
    n = b.node("LayerNormalization", [x, b.weight(f"{p}.norm2", (WIDTH,))], f"{p}.n2", axis=-1)
    gate = b.node("MatMul", [n, b.weight(f"{p}.wg", (WIDTH, INNER))], f"{p}.gate")
    swish = b.node("Mul", [gate, b.node("Sigmoid", [gate], f"{p}.sg")], f"{p}.swish")
    up = b.node("MatMul", [n, b.weight(f"{p}.wu", (WIDTH, INNER))], f"{p}.up")
    down = b.node("MatMul", [b.node("Mul", [swish, up], f"{p}.gu"), b.weight(f"{p}.wd", (INNER, WIDTH))], f"{p}.down")
    return b.node("Add", [x, down], f"{p}.x2")
