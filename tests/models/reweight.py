"""Gives any ONNX model weights with which different inputs give clearly different outputs.

Models for tests ship with constant weights or are exported with untrained ones: their outputs hardly depend on the
input, or overflow, and comparing such outputs proves nothing. ``reweight`` walks the graph once with a few random
inputs and scales each layer by what it sees, after layer-sequential unit-variance initialisation (Mishkin and Matas
2015, arXiv 1511.06422) and data-dependent initialisation (Salimans and Kingma 2016, arXiv 1602.07868, section 3).

Means are taken out only in part (``CENTRE``). With none taken out, a deep ReLU network maps all inputs to nearly one
output; with all, it is chaotic and multiplies rounding errors by about 1.2 a layer (Yang et al. 2019, arXiv
1902.08129).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.models.interpreter import Array, NodeRunner, captured_names, random_inputs

CENTRE: Final = 0.5
CENTRE_DENSE: Final = 0.7
SAMPLES: Final = 4
# A layer whose output hardly varies is not blown up: that would blow up its rounding errors too.
MIN_SPREAD: Final = 0.02
# Below this an output is taken for zero (the first step of a recurrent network), and fits nothing.
MIN_SCALE: Final = 1e-12

_LINEAR: Final = ("Conv", "ConvTranspose", "FusedConv", "Gemm", "MatMul")
_NORMS: Final = ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization")
# Ops through which a weight may pass before it is used as one.
_VIEWS: Final = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast")


def reweight(model_path: Path | str, out_path: Path | str, seed: int, *, centre: float = CENTRE) -> None:
    """Write a copy of a model in which every constant or badly scaled weight is replaced or rescaled.

    Operators, names and shapes stay, but weights made by ConstantOfShape and Constant nodes become initializers, and
    a weight of one value that several operators share becomes one each.

    Args:
        model_path: any ONNX file that ONNX Runtime can run with random inputs.
        out_path: file to write, weights inside; may be the same.
        seed: of the weights and of the inputs they are fitted to.
        centre: part of each channel's mean that biases and batch norms take out, 0 to 1.
    """
    model = onnx.load(str(model_path))
    weights = _materialise(model.graph)
    _untie_constants(model.graph, weights)
    _Calibration(model, weights, seed, centre).run()
    if model.ir_version < 4:
        # Such files list every initializer among the inputs, and ONNX Runtime then takes them for constants.
        _list_as_inputs(model.graph, weights)
    kept = [i for i in model.graph.initializer if i.name not in weights]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    beside = Path(f"{out_path}.writing")
    onnx.save(model, str(beside))
    os.replace(beside, out_path)


def _materialise(graph: onnx.GraphProto) -> dict[str, Array]:
    """Float constants by name, those made by nodes included; such nodes are removed."""
    arrays = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    weights = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    kept, unused = [], set()
    for node in graph.node:
        array = _constant(node, arrays)
        if array is None or array.dtype.kind != "f":
            kept.append(node)
        else:
            weights[node.output[0]] = array
            unused.update(node.input)
    still_read = {name for node in kept for name in (*node.input, *captured_names(node))}
    unused -= still_read | {o.name for o in graph.output}
    for field in (graph.initializer, graph.input):
        remaining = [item for item in field if item.name not in unused]
        del field[:]
        field.extend(remaining)
    del graph.node[:]
    graph.node.extend(kept)
    return {name: np.array(array) for name, array in weights.items()}


def _untie_constants(graph: onnx.GraphProto, weights: dict[str, Array]) -> None:
    """Give each use of a one-valued weight its own copy: exporters merge all biases of zeros and all scales of ones."""
    uses = Counter(name for node in graph.node for name in node.input)
    taken = {*uses, *weights, *(name for node in graph.node for name in node.output)}
    for node in graph.node:
        for position, name in enumerate(node.input):
            if uses[name] < 2 or name not in weights or np.ptp(weights[name]) > 0:
                continue
            if _draws(node, position, weights[name].shape) is None:
                continue
            copy = next(f"{name}_{k}" for k in count(1) if f"{name}_{k}" not in taken)
            taken.add(copy)
            uses[name] -= 1
            weights[copy] = weights[name].copy()
            node.input[position] = copy


def _list_as_inputs(graph: onnx.GraphProto, weights: Mapping[str, Array]) -> None:
    listed = {value.name for value in graph.input}
    for name, array in weights.items():
        if name not in listed:
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, dtype, array.shape))


def _constant(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> Array | None:
    """Value of a ConstantOfShape node with a known shape or of a Constant node with a tensor."""
    value = next((a.t for a in node.attribute if a.name == "value"), None)
    if node.op_type == "Constant" and value is not None:
        return numpy_helper.to_array(value)
    if node.op_type == "ConstantOfShape" and node.input[0] in arrays:
        fill = numpy_helper.to_array(value) if value is not None else np.zeros(1, np.float32)
        return np.full(arrays[node.input[0]].tolist(), fill.reshape(-1)[0])
    return None


class _Calibration:
    """One walk over the graph in topological order with ``SAMPLES`` random inputs side by side."""

    def __init__(self, model: onnx.ModelProto, weights: dict[str, Array], seed: int, centre: float) -> None:
        self._graph = model.graph
        self._runner = NodeRunner(model)
        self._weights = weights
        self._random = np.random.default_rng(seed)
        self._centre = centre
        others = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer if i.name not in weights}
        feeds = [random_inputs(model, seed + 1 + k) for k in range(SAMPLES)]
        # A value that depends on no input is kept once; the others once a sample.
        self._fixed: dict[str, Array] = {**others, **weights}
        self._values: list[dict[str, Array]] = [
            {name: array for name, array in feed.items() if name not in weights} for feed in feeds
        ]
        self._roots = {name: name for name in weights}
        self._fitted: set[str] = set()
        self._readers = Counter(name for node in model.graph.node for name in node.input)

    def run(self) -> None:
        """Change ``weights`` in place."""
        nodes = _sorted_nodes(self._graph, {*self._fixed, *self._values[0]})
        uses = Counter(name for node in nodes for name in {*node.input, *captured_names(node)})
        uses.update(o.name for o in self._graph.output)
        for node in nodes:
            if node.op_type in _VIEWS and node.input[0] in self._roots:
                self._roots[node.output[0]] = self._roots[node.input[0]]
            self._replace_constant_weights(node)
            self._store(node, self._fit(node) or self._run(node))
            self._forget(node, uses)

    def _forget(self, node: onnx.NodeProto, uses: Counter[str]) -> None:
        """Drop values whose last reader this was."""
        for name in {*node.input, *captured_names(node)}:
            uses[name] -= 1
            if not uses[name]:
                for values in self._values:
                    values.pop(name, None)

    def _run(self, node: onnx.NodeProto) -> list[dict[str, Array]]:
        reads = [name for name in (*node.input, *captured_names(node)) if name]
        samples = self._values if any(name not in self._fixed for name in reads) else [{}]
        return [self._runner.run(node, {n: v[n] if n in v else self._fixed[n] for n in reads}) for v in samples]

    def _store(self, node: onnx.NodeProto, results: Sequence[Mapping[str, Array]]) -> None:
        if len(results) == 1 and len(self._values) > 1:
            self._fixed.update(results[0])
            return
        for values, result in zip(self._values, results, strict=True):
            values.update(result)

    def _root(self, node: onnx.NodeProto, position: int) -> str | None:
        """The weight that an input is, possibly through views."""
        if position >= len(node.input) or not node.input[position]:
            return None
        return self._roots.get(node.input[position])

    def _set(self, name: str, array: Array) -> None:
        """Give a weight a new value, and redo the views on it."""
        array = np.ascontiguousarray(array.reshape(self._weights[name].shape), dtype=self._weights[name].dtype)
        self._weights[name] = self._fixed[name] = array
        stale = {name}
        for node in self._graph.node:
            if node.op_type in _VIEWS and node.input[0] in stale and node.output[0] in self._fixed:
                self._store(node, self._run(node))
                stale.add(node.output[0])

    def _replace_constant_weights(self, node: onnx.NodeProto) -> None:
        for position in range(len(node.input)):
            name = self._root(node, position)
            if name is None or name in self._fitted or node.op_type in _VIEWS:
                continue
            array = self._weights[name]
            draw = _draws(node, position, self._fixed[node.input[position]].shape)
            if draw is not None and array.size > 1 and np.ptp(array) == 0:
                self._set(name, draw(self._random.standard_normal(array.size, dtype=np.float32)))

    def _fit(self, node: onnx.NodeProto) -> list[dict[str, Array]] | None:
        """Scale the node's weights by what it makes; what it made, if that was run or is known."""
        if node.op_type == "BatchNormalization":
            self._fit_batch_norm(node)
        elif node.op_type in _LINEAR:
            position = 1 if self._root(node, 1) else 0
            weight = self._root(node, position)
            if weight is not None and weight not in self._fitted:
                return self._fit_linear(node, weight, position)
        return None

    def _fit_batch_norm(self, node: onnx.NodeProto) -> None:
        mean, variance = self._root(node, 3), self._root(node, 4)
        if mean is None or variance is None or mean in self._fitted or node.input[0] in self._fixed:
            return
        shift, spread = self._moments([v[node.input[0]] for v in self._values], 1, self._centre)
        self._set(mean, shift)
        self._set(variance, np.maximum(spread, np.sqrt(np.mean(spread**2)) * 0.1) ** 2)
        self._fitted |= {mean, variance}

    def _fit_linear(self, node: onnx.NodeProto, weight: str, position: int) -> list[dict[str, Array]] | None:
        results = self._run(node)
        if len(results) == 1:
            return results
        outputs = [result[node.output[0]] for result in results]
        axis = 1 if "Conv" in node.op_type else outputs[0].ndim - (1 if position else 2)
        bias = self._root(node, 2) if node.op_type != "MatMul" else None
        if bias in self._fitted or (bias is not None and self._weights[bias].size != outputs[0].shape[axis]):
            bias = None
        shape = [-1 if k == axis else 1 for k in range(outputs[0].ndim)]
        if bias is not None:
            # Only what the weight makes counts; the bias is drawn anew.
            beta = next((a.f for a in node.attribute if a.name == "beta"), 1.0)
            outputs = [output - beta * self._weights[bias].reshape(shape) for output in outputs]
        # Dense layers are few: taking out more costs little there, and the last one shows the most.
        centre = 0.0 if bias is None else max(self._centre, CENTRE_DENSE) if node.op_type == "Gemm" else self._centre
        shift, spread = self._moments(outputs, axis, centre)
        scale = float(np.sqrt(np.mean(spread**2)))
        if self._readers[weight] > 1:
            # Unrolled recurrence: a gain above the initial one, step after step, is chaos.
            scale = max(scale, 1.0)
        if not np.isfinite(scale) or scale < MIN_SCALE:
            return results
        self._set(weight, self._weights[weight] / scale)
        self._fitted.add(weight)
        if bias is None:
            return None
        self._set(bias, 0.1 * self._random.standard_normal(shift.size) - shift / scale)
        self._fitted.add(bias)
        if beta != 1:
            return None
        offset = self._weights[bias].reshape(shape)
        return [{node.output[0]: (output / scale + offset).astype(offset.dtype)} for output in outputs]

    @staticmethod
    def _moments(samples: Sequence[Array], channel_axis: int, centre: float) -> tuple[Array, Array]:
        """What to take out of each channel, and each channel's root mean square after that."""
        others = tuple(k for k in range(samples[0].ndim) if k != channel_axis)
        mean = np.mean([s.mean(others, dtype=np.float64) for s in samples], axis=0)
        square = np.mean([np.square(s).mean(others, dtype=np.float64) for s in samples], axis=0)
        shift = centre * mean
        # E[(y - shift)^2]
        spread = np.sqrt(np.maximum(square - 2 * shift * mean + shift**2, 0.0))
        return shift, np.maximum(spread, MIN_SPREAD * np.sqrt(square.mean()))


def _draws(node: onnx.NodeProto, position: int, shape: Sequence[int]) -> Callable[[Array], Array] | None:
    """How to make a weight in this place from standard normal numbers; None if it is to be left alone."""
    kind = node.op_type
    if kind in _LINEAR and position < 2:
        if len(shape) < 2:
            return None
        transposed = kind == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute)
        fan_in = int(np.prod(shape[1:])) if "Conv" in kind or transposed else shape[-2]
        return lambda z: np.sqrt(2 / fan_in) * z
    if kind == "BatchNormalization" and position in (3, 4):
        return lambda z: 0.1 * z if position == 3 else 1 + 0.2 * np.abs(z)
    if (kind in (*_NORMS, "BatchNormalization") and position == 1) or (kind == "Mul" and _is_vector(shape)):
        return lambda z: 1 + 0.1 * z
    if (kind in (*_NORMS, "BatchNormalization", *_LINEAR) and position == 2) or (kind == "Add" and _is_vector(shape)):
        return lambda z: 0.1 * z
    return None


def _is_vector(shape: Sequence[int]) -> bool:
    """Whether a constant operand is one value a channel."""
    return sum(size > 1 for size in shape) == 1


def _sorted_nodes(graph: onnx.GraphProto, known: set[str]) -> list[Any]:
    """Nodes in an order in which each comes after those it reads from; files need not keep to one."""
    ready = {*known, ""}
    waiting, ordered = list(graph.node), []
    while waiting:
        rest = []
        for node in waiting:
            if all(name in ready for name in (*node.input, *captured_names(node))):
                ordered.append(node)
                ready.update(node.output)
            else:
                rest.append(node)
        if len(rest) == len(waiting):
            raise ValueError(f"node '{rest[0].name}' reads values that nothing makes")
        waiting = rest
    return ordered
