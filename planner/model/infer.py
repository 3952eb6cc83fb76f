"""Types and shapes of one operator's outputs, from the types of its inputs and the constants among them.

ONNX's own inference operator by operator, so that a model over 2 GB and a stale ``value_info`` do not matter;
operators of ``com.microsoft`` have no schema there and are in :mod:`planner.model.contrib`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference

from planner.graph.op_graph import Array, Op
from planner.model.contrib import infer_contrib
from planner.model.protos import info_from_type, node_proto, tensor_proto, type_from_info
from planner.model.windows import corrected

Types = Mapping[str, onnx.TypeProto]

_IR_VERSION: Final = 10
# Of shapes that contradict each other, and of types that the operator does not take.
_REFUSALS: Final = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError)


class ShapeConflict(Exception):
    """The shapes or types of an operator's inputs do not go together; the message is ONNX's own first line."""


def has_schema(op: Op) -> bool:
    """Whether ONNX itself knows the operator."""
    return onnx.defs.has(op.op_type, op.version, op.domain)


def infer_op(
    op: Op, types: Types, constants: Mapping[str, Array], opsets: Mapping[str, int]
) -> dict[str, onnx.TypeProto]:
    """Types of the present outputs; an output about which nothing is known is missing.

    Args:
        op: the operator.
        types: types of all values it reads.
        constants: small constants by name.
        opsets: operator sets of the model, for bodies.

    Raises:
        ShapeConflict: if the inputs do not fit each other.
    """
    found = _infer(op, types, constants, opsets)
    return corrected(op, [types[name] for name in op.inputs if name], found)


def _infer(
    op: Op, types: Types, constants: Mapping[str, Array], opsets: Mapping[str, int]
) -> dict[str, onnx.TypeProto]:
    """What ONNX says, and for operators unknown to it our own rules."""
    known = {name: types[name] for name in op.reads if types[name].WhichOneof("value")}
    if not has_schema(op):
        infos = tuple(info_from_type(name, types[name]) if name else None for name in op.inputs)
        values = tuple(constants.get(name) for name in op.inputs)
        return {info.name: type_from_info(info) for info in infer_contrib(op, infos, values)}
    if any(name and name not in known for name in op.inputs):
        return _whole_model(op, known, constants, opsets)
    node = node_proto(op)
    schema = onnx.defs.get_schema(op.op_type, op.version, op.domain)
    data = {name: tensor_proto(constants[name], name) for name in op.inputs if name in constants}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, known, data, None, imports, _IR_VERSION)
    except _REFUSALS as error:
        raise ShapeConflict(_first_line(error)) from None
    found = {name: proto for name, proto in found.items() if name and proto.WhichOneof("value")}
    if all(name in found and _shaped(found[name]) for name in op.writes):
        return found
    return {**found, **_whole_model(op, known, constants, opsets)}


def _whole_model(
    op: Op, known: Types, constants: Mapping[str, Array], opsets: Mapping[str, int]
) -> dict[str, onnx.TypeProto]:
    """The second way: a model of this operator alone. Slower; it also expands operators defined by functions."""
    graph = onnx.GraphProto(name="one", node=[node_proto(op)])
    for name in op.reads:
        if name in constants:
            graph.initializer.append(tensor_proto(constants[name], name))
        elif name in known:
            graph.input.append(onnx.ValueInfoProto(name=name, type=known[name]))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in op.writes)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = onnx.ModelProto(ir_version=_IR_VERSION, graph=graph, opset_import=imports)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    except _REFUSALS as error:
        raise ShapeConflict(_first_line(error)) from None
    return {value.name: value.type for value in inferred.graph.output if value.type.WhichOneof("value")}


def _shaped(proto: onnx.TypeProto) -> bool:
    return proto.WhichOneof("value") != "tensor_type" or bool(proto.tensor_type.HasField("shape"))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else "inference failed"
