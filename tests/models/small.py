"""Small purpose-made models, seeded: each is a shape of graph that planning has to get right.

Every builder returns a checked model whose outputs differ clearly between inputs. ``save`` writes one to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.models.interpreter import Array

OPSET: Final = 20
IR_VERSION: Final = 10


class GraphBuilder:
    """Collects nodes and seeded weights; every method returns the name of the value it makes."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Add a node with generated names; the name of its first output."""
        name = f"{op_type.lower()}_{len(self._nodes)}"
        names = [name] + [f"{name}_{k}" for k in range(1, outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, names, name=f"node_{name}", **attributes))
        return name

    def named(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node whose output has a name of the caller's choice (a graph output)."""
        self._nodes.append(helper.make_node(op_type, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def constant(self, array: Any, dtype: str = "int64") -> str:
        """Add a given weight."""
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weight(self, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """Add a random weight that keeps the variance (He et al. 2015; gain 2 before a Relu, else 1)."""
        return self.constant(self._random.standard_normal(shape) * np.sqrt(gain / fan_in), "float32")

    def vector(self, size: int, mean: float = 0.0, spread: float = 0.1) -> str:
        """Add a bias or scale."""
        return self.constant(mean + spread * self._random.standard_normal(size), "float32")

    def conv(self, x: str, channels: tuple[int, int], kernel: int = 3, stride: int = 1, group: int = 1) -> str:
        """Convolution with bias that keeps the size, from ``channels[0]`` to ``channels[1]`` channels."""
        before, after = channels
        weight = self.weight((after, before // group, kernel, kernel), before // group * kernel**2)
        pads = [kernel // 2] * 4
        inputs = [x, weight, self.vector(after)]
        return self.node("Conv", inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group)

    def batch_norm(self, x: str, channels: int) -> str:
        """Inference batch normalisation close to the identity."""
        scale, variance = self.vector(channels, 1.0), self.constant(1 + self._random.random(channels) / 5, "float32")
        return self.node("BatchNormalization", [x, scale, self.vector(channels), self.vector(channels), variance])

    def relu(self, x: str) -> str:
        """Rectified linear unit."""
        return self.node("Relu", [x])

    def linear(self, x: str, sizes: tuple[int, int], gain: float = 1.0) -> str:
        """MatMul over the last axis, then a bias."""
        product = self.node("MatMul", [x, self.weight(sizes, sizes[0], gain)])
        return self.node("Add", [product, self.vector(sizes[1])])

    def model(
        self,
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Mapping[str, Sequence[int | str]],
        ids: Sequence[str] = (),
    ) -> onnx.ModelProto:
        """The checked model.

        Args:
            inputs: shapes by name.
            outputs: shapes by name.
            ids: inputs that are int64, the others being float32.
        """
        typed = [
            helper.make_tensor_value_info(name, TensorProto.INT64 if name in ids else TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self._nodes, "graph", typed, results, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        return model


def tiny_cnn(batch: int = 2, size: int = 16, channels: int = 8, seed: int = 0) -> onnx.ModelProto:
    """Conv, batch norm, pool, one Inception-like block of four branches, then a classifier."""
    g = GraphBuilder(seed)
    c = channels
    x = g.relu(g.batch_norm(g.conv("x", (3, c)), c))
    x = g.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    pooled = g.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    branches = [
        g.relu(g.conv(x, (c, c), 1)),
        g.relu(g.conv(g.relu(g.conv(x, (c, c), 1)), (c, c), 3)),
        g.relu(g.conv(g.relu(g.conv(x, (c, c // 2), 1)), (c // 2, c), 5)),
        g.relu(g.conv(pooled, (c, c), 1)),
    ]
    x = g.node("Concat", branches, axis=1)
    x = g.node("Flatten", [g.node("GlobalAveragePool", [x])], axis=1)
    g.named("Gemm", [x, g.weight((10, 4 * c), c, 1.0), g.vector(10)], "y", transB=1)
    return g.model({"x": (batch, 3, size, size)}, {"y": (batch, 10)})


def tiny_mlp(batch: int | str = 4, hidden: int = 32, layers: int = 3, seed: int = 0) -> onnx.ModelProto:
    """A chain of MatMul, Add, Relu; ``batch`` may be a symbol."""
    g = GraphBuilder(seed)
    x, width = "x", 16
    for _ in range(layers):
        x, width = g.relu(g.linear(x, (width, hidden), 2.0)), hidden
    g.named("Gemm", [x, g.weight((width, 8), width, 1.0), g.vector(8)], "y")
    return g.model({"x": (batch, 16)}, {"y": (batch, 8)})


def tiny_transformer(
    batch: int = 2, length: int = 8, width: int = 32, heads: int = 4, layers: int = 2, seed: int = 0
) -> onnx.ModelProto:
    """Pre-norm encoder layers over token ids, attention written out in MatMul and Softmax."""
    g = GraphBuilder(seed)
    x = g.node("Gather", [g.weight((100, width), 1, 1.0), "ids"])
    x = g.node("Add", [x, g.weight((length, width), 1, 0.1)])
    for _ in range(layers):
        x = g.node("Add", [x, _attention(g, _layer_norm(g, x, width), (batch, length, width, heads))])
        inner = g.node("Gelu", [g.linear(_layer_norm(g, x, width), (width, 4 * width), 2.0)])
        x = g.node("Add", [x, g.linear(inner, (4 * width, width))])
    g.named("MatMul", [_layer_norm(g, x, width), g.weight((width, 50), width, 1.0)], "logits")
    return g.model({"ids": (batch, length)}, {"logits": (batch, length, 50)}, ids=["ids"])


def _layer_norm(g: GraphBuilder, x: str, width: int) -> str:
    return g.node("LayerNormalization", [x, g.vector(width, 1.0), g.vector(width)], axis=-1)


def _attention(g: GraphBuilder, x: str, sizes: tuple[int, int, int, int]) -> str:
    """Self-attention; the batch is baked into the Reshape constants, as exporters do."""
    batch, length, width, heads = sizes
    split, merged = g.constant([batch, length, heads, width // heads]), g.constant([batch, length, width])
    parts = [g.node("Reshape", [g.linear(x, (width, width)), split]) for _ in range(3)]
    query, value = (g.node("Transpose", [part], perm=[0, 2, 1, 3]) for part in (parts[0], parts[2]))
    key = g.node("Transpose", [parts[1]], perm=[0, 2, 3, 1])
    scores = g.node("Mul", [g.node("MatMul", [query, key]), g.constant((width // heads) ** -0.5, "float32")])
    mixed = g.node("MatMul", [g.node("Softmax", [scores], axis=-1), value])
    joined = g.node("Reshape", [g.node("Transpose", [mixed], perm=[0, 2, 1, 3]), merged])
    return g.linear(joined, (width, width))


def tiny_lstm(batch: int = 4, length: int = 6, width: int = 16, seed: int = 0) -> onnx.ModelProto:
    """Two LSTM operators in a row, states from zero, then a classifier for each step."""
    g = GraphBuilder(seed)
    x = "x"
    for _ in range(2):
        weights = [g.weight((1, 4 * width, width), width, 2.0) for _ in range(2)]
        x = g.node("LSTM", [x, *weights, g.constant(np.zeros((1, 8 * width)), "float32")], outputs=3, hidden_size=width)
        x = g.node("Squeeze", [x, g.constant([1])])
    g.named("MatMul", [x, g.weight((width, 10), width, 4.0)], "y")
    return g.model({"x": (length, batch, width)}, {"y": (length, batch, 10)})


def residual_chain(batch: int = 2, size: int = 8, channels: int = 8, blocks: int = 4, seed: int = 0) -> onnx.ModelProto:
    """Residual blocks in a row: nothing runs in parallel unless an operator is split."""
    g = GraphBuilder(seed)
    x = g.relu(g.conv("x", (3, channels)))
    for _ in range(blocks):
        inner = g.conv(g.relu(g.conv(x, (channels, channels))), (channels, channels))
        x = g.relu(g.node("Add", [inner, x]))
    x = g.node("Flatten", [g.node("GlobalAveragePool", [x])], axis=1)
    g.named("Gemm", [x, g.weight((channels, 10), channels, 1.0), g.vector(10)], "y")
    return g.model({"x": (batch, 3, size, size)}, {"y": (batch, 10)})


def nasnet_cell_like(
    batch: int = 1, size: int = 12, channels: int = 8, cells: int = 3, seed: int = 0
) -> onnx.ModelProto:
    """Cells that read the last two cells: five pairs of separable convolutions and pools, added, concatenated."""
    g = GraphBuilder(seed)
    c = channels
    left = right = g.relu(g.conv("x", (3, c)))
    left_channels = right_channels = c
    for _ in range(cells):
        a, b = g.conv(g.relu(left), (left_channels, c), 1), g.conv(g.relu(right), (right_channels, c), 1)
        pairs = [
            (_separable(g, a, c, 5), _pool(g, "MaxPool", a)),
            (_separable(g, b, c, 5), _pool(g, "AveragePool", b)),
            (_separable(g, b, c, 3), a),
            (_separable(g, a, c, 3), b),
            (_pool(g, "MaxPool", b), b),
        ]
        out = g.node("Concat", [g.node("Add", pair) for pair in pairs], axis=1)
        left, left_channels, right, right_channels = right, right_channels, out, 5 * c
    x = g.node("Flatten", [g.node("GlobalAveragePool", [g.relu(right)])], axis=1)
    g.named("Gemm", [x, g.weight((right_channels, 10), right_channels, 1.0), g.vector(10)], "y")
    return g.model({"x": (batch, 3, size, size)}, {"y": (batch, 10)})


def _separable(g: GraphBuilder, x: str, channels: int, kernel: int) -> str:
    """Relu, depthwise, pointwise."""
    return g.conv(g.conv(g.relu(x), (channels, channels), kernel, group=channels), (channels, channels), 1)


def _pool(g: GraphBuilder, op_type: str, x: str) -> str:
    return g.node(op_type, [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


SMALL_MODELS: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = {
    "tiny_cnn": tiny_cnn,
    "tiny_mlp": tiny_mlp,
    "tiny_transformer": tiny_transformer,
    "tiny_lstm": tiny_lstm,
    "residual_chain": residual_chain,
    "nasnet_cell_like": nasnet_cell_like,
}


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Write a model into a folder; its path."""
    path = folder / name
    onnx.save(model, str(path))
    return path


def weight_arrays(model: onnx.ModelProto) -> dict[str, Array]:
    """A model's initializers by name."""
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
