"""``onnx_ir`` graph to our operators: unique names, plain attributes, explicit captures."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from planner.errors import ModelError
from planner.graph.op_graph import Attribute, Op
from planner.model.read import node_bodies
from planner.model.types import Weight
from planner.model.weights import decode_strings, weight_from_tensor


@dataclass(frozen=True, slots=True, eq=False)
class RawGraph:
    """A model as it ships, in our types.

    Attributes:
        ops: in a topological order; no Constant operators.
        input_types: type of every graph input that is no initializer, in the file's order.
        overridable: type of every initializer that is also a graph input, in the file's order.
        outputs: names of the graph outputs.
        weights: initializers and Constant operators.
        hints: what the file says about inner values; may be stale.
        names: every name in the model, bodies included.
        captured: names that some body reads from the main graph.
    """

    ops: tuple[Op, ...]
    input_types: Mapping[str, onnx.TypeProto]
    overridable: Mapping[str, onnx.TypeProto]
    outputs: tuple[str, ...]
    weights: Mapping[str, Weight]
    hints: Mapping[str, onnx.TypeProto]
    names: frozenset[str]
    captured: frozenset[str]


def convert(model: ir.Model) -> RawGraph:
    """Converts the main graph.

    Raises:
        ModelError: if two operators make the same value, or one has a reference attribute outside of a function.
    """
    graph = model.graph
    names = frozenset(_all_names(graph))
    weights = {
        name: weight_from_tensor(value.const_value, name)
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }
    listed = {value.name or "": value_type(value) for value in graph.inputs}
    ops: list[Op] = []
    seen = {*weights, *listed}
    for node, name in zip(graph, _op_names(graph, names), strict=True):
        op = _convert_node(node, name, model.opset_imports)
        for output in op.writes:
            if output in seen:
                raise ModelError(
                    f"value '{output}' is made twice",
                    where=f"operator '{op.name}'",
                    expected="every value name once",
                    next_step="check the file with onnx.checker",
                )
            seen.add(output)
        constant = _constant(node, op)
        if constant is None:
            ops.append(op)
        else:
            weights[op.outputs[0]] = constant
    return RawGraph(
        tuple(ops),
        {name: proto for name, proto in listed.items() if name not in weights},
        {name: proto for name, proto in listed.items() if name in weights},
        tuple(value.name or "" for value in graph.outputs),
        weights,
        {
            output.name: value_type(output)
            for node in graph
            for output in node.outputs
            if output.name and output.type is not None
        },
        names,
        frozenset(name for op in ops for name in op.captures),
    )


def value_type(value: ir.Value) -> onnx.TypeProto:
    """The type that the file gives a value; empty if it gives none."""
    proto = onnx.TypeProto()
    if value.type is not None:
        ir.serde.serialize_type_into(proto, value.type)
        if value.shape is not None:
            ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def normalize_domain(domain: str) -> str:
    """``ai.onnx`` is another name of the default domain."""
    return "" if domain == "ai.onnx" else domain


def _convert_node(node: ir.Node, name: str, opsets: Mapping[str, int]) -> Op:
    domain = normalize_domain(node.domain)
    version = opsets.get(domain, opsets.get("ai.onnx", 1) if not domain else 1)
    is_constant = node.op_type == "Constant" and not domain
    return Op(
        name,
        domain,
        node.op_type,
        version,
        tuple(value.name or "" if value is not None else "" for value in node.inputs),
        tuple(value.name or "" for value in node.outputs),
        {} if is_constant else {key: _convert_attribute(attr, name) for key, attr in node.attributes.items()},
        tuple(dict.fromkeys(_captures(node))),
    )


def _convert_attribute(attr: ir.Attr, where: str) -> Attribute:
    if attr.is_ref():
        raise ModelError(
            f"attribute '{attr.name}' refers to a function's parameter outside of a function",
            where=f"operator '{where}'",
            next_step="check the file with onnx.checker",
        )
    kind, value = attr.type, attr.value
    match kind:
        case ir.AttributeType.INT:
            return Attribute("int", int(value))
        case ir.AttributeType.FLOAT:
            return Attribute("float", float(value))
        case ir.AttributeType.STRING:
            return Attribute("string", _text(value))
        case ir.AttributeType.INTS:
            return Attribute("ints", tuple(int(v) for v in value))
        case ir.AttributeType.FLOATS:
            return Attribute("floats", tuple(float(v) for v in value))
        case ir.AttributeType.STRINGS:
            return Attribute("strings", tuple(_text(v) for v in value))
        case ir.AttributeType.TENSOR:
            array = np.asarray(value.numpy())
            return Attribute("tensor", decode_strings(array) if array.dtype.kind == "O" else array)
        case _:
            content = ir.serde.serialize_attribute(attr).SerializeToString(deterministic=True)
            return Attribute("opaque", attr, hashlib.sha256(content).hexdigest()[:16])


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _constant(node: ir.Node, op: Op) -> Weight | None:
    """The weight that a Constant operator stands for, whichever attribute holds it."""
    if op.op_type != "Constant" or op.domain or not op.writes:
        return None
    for key, attr in node.attributes.items():
        if key == "value":
            return weight_from_tensor(attr.as_tensor(), op.outputs[0])
        if key in _CONSTANT_TYPES:
            array = np.asarray(attr.value, _CONSTANT_TYPES[key])
            return weight_from_tensor(ir.tensor(array, name=op.outputs[0]), op.outputs[0])
        if key in ("value_string", "value_strings"):
            texts: Any = attr.value if key == "value_strings" else [attr.value]
            encoded = [t if isinstance(t, bytes) else str(t).encode() for t in texts]
            shape = ir.Shape([len(encoded)] if key == "value_strings" else [])
            return weight_from_tensor(ir.StringTensor(encoded, shape=shape, name=op.outputs[0]), op.outputs[0])
    return None


_CONSTANT_TYPES = {
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_float": np.float32,
    "value_floats": np.float32,
}


def _captures(node: ir.Node) -> Iterator[str]:
    """Values from outside that the node's bodies read, nested bodies included, in order of first use."""
    for body in node_bodies(node):
        own = {id(value) for value in (*body.inputs, *body.initializers.values())}
        # First all that the body makes: its nodes may be listed in any order.
        own.update(id(output) for inner in body for output in inner.outputs)
        names = {value.name for inner in body for value in inner.outputs}
        names.update(value.name for value in (*body.inputs, *body.initializers.values()))
        for inner in body:
            for value in inner.inputs:
                if value is not None and id(value) not in own:
                    yield value.name or ""
            # A nested body's captures are known by name; what this body defines shadows the outside.
            yield from (name for name in _captures(inner) if name not in names)
        for value in body.outputs:
            if id(value) not in own:
                yield value.name or ""


def _op_names(graph: ir.Graph, taken: frozenset[str]) -> Iterator[str]:
    counts = Counter(node.name for node in graph if node.name)
    counters: Counter[str] = Counter()
    for node in graph:
        if node.name and counts[node.name] == 1:
            yield node.name
            continue
        name = ""
        while not name or name in taken:
            name = f"{node.op_type}_{counters[node.op_type]}"
            counters[node.op_type] += 1
        yield name


def _all_names(graph: ir.Graph) -> Iterable[str]:
    """Names of values and nodes of the graph and of all bodies inside it."""
    for value in (*graph.inputs, *graph.initializers.values()):
        yield value.name or ""
    for node in graph:
        yield node.name or ""
        for output in node.outputs:
            yield output.name or ""
        for body in node_bodies(node):
            yield from _all_names(body)
