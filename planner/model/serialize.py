"""Operators back to an ONNX model, with large weights left outside.

How to supply the weights left outside, measured on ONNX Runtime 1.32 with a model loaded from bytes:

- ``SessionOptions.add_external_initializers(names, values)`` is needed: no file has to exist, and Conv weights are
  prepacked and laid out (NCHWc) as if they were inside the model.
- ``add_initializer`` alone fails ("External data path does not exist"); with a file of that name in place it gives
  wrong results without a word, as the layout pass reads the file.
- Both, with ``session.disable_prepacking=1``, share MatMul weights between sessions (10 MiB, not 778 MiB, for three
  sessions of 256 MiB); Conv weights are copied whatever one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import onnx

from planner.errors import ModelError
from planner.graph.op_graph import Op, TensorInfo
from planner.model.protos import dtype_number, has_body, node_proto, numpy_dtype, tensor_proto, type_from_info
from planner.model.types import Weight

EXTERNAL_LOCATION: Final = "fddps-weights"

# Types that a numpy array cannot hand to ONNX Runtime: always inside the model.
_NUMPY_TYPES: Final = frozenset(
    f"{kind}{bits}"
    for kind, sizes in (("float", (16, 32, 64)), ("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)))
    for bits in sizes
) | {"bool"}


def build_model(
    ops: Sequence[Op],
    *,
    tensors: Mapping[str, TensorInfo],
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: Mapping[str, Weight],
    opsets: Mapping[str, int],
    ir_version: int,
    functions: Sequence[bytes] = (),
    embed_limit_bytes: int = 65536,
) -> tuple[bytes, dict[str, Weight]]:
    """A serialised model of some operators.

    Args:
        ops: operators in a topological order.
        tensors: types of all values they name; dimensions may be None.
        inputs: graph inputs.
        outputs: graph outputs; each is made by an operator, an input, or a weight.
        weights: handles of the constants; those that no operator and no output reads are left out.
        opsets: operator sets to import; those of the operators at least.
        ir_version: IR version to write.
        functions: serialised local functions.
        embed_limit_bytes: weights up to this size are stored inside.

    Returns:
        The model, and the weights that are only stubs in it: supply them with
        ``SessionOptions.add_external_initializers`` (see the top of this module).

    Raises:
        ModelError: if an operator reads what is neither input, weight nor made before.
    """
    graph = onnx.GraphProto(name="fddps")
    made = dict.fromkeys(inputs)
    external: dict[str, Weight] = {}
    reads = dict.fromkeys(name for op in ops for name in op.reads)
    reads.update(dict.fromkeys(outputs))
    for name in reads:
        if name in weights and name not in made:
            _add_weight(graph, name, weights[name], embed_limit_bytes, external, reads)
            made[name] = None
    for op in ops:
        _check_reads(op, made)
        graph.node.append(node_proto(op))
        made.update(dict.fromkeys(op.writes))
    # Known sizes can make ONNX Runtime reject a body that it runs with open ones (branches of different rank, as in
    # silero-vad): around control flow only ranks are stated.
    described = _ranks_only(tensors) if any(has_body(op) for op in ops) else tensors.__getitem__
    graph.input.extend(_value_info(described(name)) for name in inputs)
    graph.output.extend(_value_info(described(name)) for name in outputs)
    ends = {*inputs, *outputs}
    inner = (name for op in ops for name in op.writes if name not in ends)
    graph.value_info.extend(_inner_infos(described(name) for name in inner))
    model = onnx.ModelProto(ir_version=ir_version, producer_name="fddps", graph=graph)
    for domain in sorted(opsets):
        model.opset_import.add(domain=domain, version=opsets[domain])
    for function in functions:
        model.functions.append(onnx.FunctionProto.FromString(function))
    return model.SerializeToString(deterministic=True), external


def _check_reads(op: Op, made: Mapping[str, None]) -> None:
    for name in op.reads:
        if name not in made:
            raise ModelError(
                f"it reads '{name}', which is neither an input, a weight nor made before",
                where=f"operator '{op.name}'",
                expected="operators in a topological order with all their inputs",
            )


def _add_weight(
    graph: onnx.GraphProto,
    name: str,
    weight: Weight,
    limit: int,
    external: dict[str, Weight],
    taken: Mapping[str, None],
) -> None:
    info = weight.info
    if info.nbytes > limit and weight.fill is not None:
        _add_fill(graph, name, weight, taken)
    elif info.nbytes > limit and info.dtype in _NUMPY_TYPES:
        stub = graph.initializer.add(name=name, data_type=dtype_number(info.dtype), dims=info.dims)
        stub.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", EXTERNAL_LOCATION), ("offset", "0"), ("length", str(info.nbytes))):
            stub.external_data.add(key=key, value=value)
        external[name] = weight
    else:
        graph.initializer.append(tensor_proto(np.asarray(weight.load()), name))


def _add_fill(graph: onnx.GraphProto, name: str, weight: Weight, taken: Mapping[str, None]) -> None:
    """A ConstantOfShape: ONNX Runtime makes the tensor when it loads the model."""
    shape_name = f"{name}/shape"
    while shape_name in taken:
        shape_name += "_"
    graph.initializer.append(tensor_proto(np.asarray(weight.info.dims, np.int64), shape_name))
    node = graph.node.add(op_type="ConstantOfShape", input=[shape_name], output=[name])
    value = tensor_proto(np.asarray([weight.fill], numpy_dtype(weight.info.dtype)), "")
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(value)


def _ranks_only(tensors: Mapping[str, TensorInfo]) -> Callable[[str], TensorInfo]:
    def describe(name: str) -> TensorInfo:
        info = tensors[name]
        return info if info.shape is None else replace(info, shape=(None,) * len(info.shape))

    return describe


def _value_info(info: TensorInfo) -> onnx.ValueInfoProto:
    proto = onnx.ValueInfoProto(name=info.name)
    if dtype_number(info.dtype) and info.kind in ("tensor", "sequence"):
        proto.type.CopyFrom(type_from_info(info))
    return proto


def _inner_infos(infos: Iterable[TensorInfo]) -> Iterable[onnx.ValueInfoProto]:
    """Types of inner values; ONNX Runtime finds those that are not plain tensors itself."""
    return (_value_info(info) for info in infos if info.kind == "tensor" and dtype_number(info.dtype))
