"""Runs an ONNX graph one node at a time, so that what flows between nodes can be looked at and changed on the way.

Each node is its own ONNX Runtime session. That costs a millisecond a node and no second pass over the graph, where
asking one session for hundreds of inner values would keep them all in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper

Array = npt.NDArray[Any]


def captured_names(node: onnx.NodeProto) -> list[str]:
    """Values of the enclosing graph that the node's bodies read, in first-use order."""
    names: dict[str, None] = {}
    for attribute in node.attribute:
        bodies = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
        for body in bodies:
            own = {v.name for v in body.input} | {i.name for i in body.initializer}
            own |= {name for inner in body.node for name in inner.output}
            reads = [name for inner in body.node for name in (*inner.input, *captured_names(inner))]
            names |= dict.fromkeys(
                name for name in (*reads, *(o.name for o in body.output)) if name and name not in own
            )
    return list(names)


class NodeRunner:
    """Runs single nodes of one model on given values; equal nodes share a session."""

    def __init__(self, model: onnx.ModelProto, threads: int = 1) -> None:
        self._opsets = list(model.opset_import)
        self._functions = list(model.functions)
        self._ir_version = min(model.ir_version, 10) if model.ir_version >= 4 else 4
        self._options = ort.SessionOptions()
        self._options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._options.intra_op_num_threads = threads
        self._options.log_severity_level = 3
        self._sessions: dict[bytes, Any] = {}

    def run(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs of a node by name.

        Args:
            node: any node of the model.
            values: at least what the node reads.
        """
        local, feeds = self._localised(node, values)
        outputs = [name for name in local.output if name]
        key = (
            local.SerializeToString(deterministic=True)
            + repr([(n, a.dtype.str, a.ndim) for n, a in feeds.items()]).encode()
        )
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = self._session(local, feeds, outputs)
        results = session.run(outputs, feeds)
        return dict(zip((name for name in node.output if name), results, strict=True))

    def _localised(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> tuple[onnx.NodeProto, dict[str, Array]]:
        """The node with names that say nothing of where it stands, and its feeds."""
        local = onnx.NodeProto()
        local.CopyFrom(node)
        local.name = ""
        captures = captured_names(node)
        # Bodies keep the names they read; only the node's own inputs can be renamed.
        renamed = {name: f"i{k}" for k, name in enumerate(dict.fromkeys(node.input)) if name and name not in captures}
        for k, name in enumerate(node.input):
            local.input[k] = renamed.get(name, name)
        for k, name in enumerate(node.output):
            local.output[k] = f"o{k}" if name else ""
        reads = dict.fromkeys(name for name in (*node.input, *captures) if name)
        return local, {renamed.get(name, name): values[name] for name in reads}

    def _session(self, node: onnx.NodeProto, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Any:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
            for name, array in feeds.items()
        ]
        graph = helper.make_graph([node], "node", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
        model = helper.make_model(
            graph, opset_imports=self._opsets, functions=self._functions, ir_version=self._ir_version
        )
        return ort.InferenceSession(model.SerializeToString(), self._options, providers=["CPUExecutionProvider"])


def random_inputs(
    model: onnx.ModelProto, seed: int, sizes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Array]:
    """Seeded feeds: normal floats, small non-negative integers, fair booleans.

    Args:
        model: whose inputs are fed; initializers listed as inputs are not.
        seed: of the generator.
        sizes: shapes for inputs that have symbolic dimensions; else the first becomes 1, the others 16.
    """
    generator = np.random.default_rng(seed)
    weights = {i.name for i in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else (16 if k else 1) for k, d in enumerate(tensor.shape.dim)]
        shape = list((sizes or {}).get(value.name, shape))
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind in "iu":
            feeds[value.name] = generator.integers(0, 100, shape).astype(dtype)
        elif dtype.kind == "b":
            feeds[value.name] = generator.random(shape) < 0.5
        else:
            feeds[value.name] = generator.standard_normal(shape, dtype=np.float32).astype(dtype)
    return feeds
