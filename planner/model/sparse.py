"""Makes sparse tensors of a file dense: onnx_ir drops sparse initializers and rejects sparse attributes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper


def densify(model: onnx.ModelProto) -> None:
    """Replaces sparse initializers by dense ones and sparse attributes by tensors, in bodies and functions too.

    Works on a message that the caller has just parsed and owns.
    """
    _densify_graph(model.graph)
    for function in model.functions:
        _densify_nodes(function.node)


def _densify_graph(graph: onnx.GraphProto) -> None:
    for sparse in graph.sparse_initializer:
        dense = _dense(sparse)
        dense.name = sparse.values.name
        graph.initializer.append(dense)
    del graph.sparse_initializer[:]
    _densify_nodes(graph.node)


def _densify_nodes(nodes: list[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _densify_graph(attribute.g)
            for graph in attribute.graphs:
                _densify_graph(graph)
            if attribute.HasField("sparse_tensor"):
                attribute.t.CopyFrom(_dense(attribute.sparse_tensor))
                attribute.ClearField("sparse_tensor")
                attribute.type = onnx.AttributeProto.TENSOR
                # Constant carries it as `sparse_value`; a dense one is called `value`.
                if attribute.name == "sparse_value":
                    attribute.name = "value"


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.reshape(-1)[indices] = values
    return numpy_helper.from_array(dense, sparse.values.name)
