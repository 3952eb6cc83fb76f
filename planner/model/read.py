"""File to ``onnx_ir`` model: checked, functions inlined, nodes sorted; large weights stay where they are."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # its stubs are a package of their own
from onnx_ir.passes.common import InlinePass

from planner.errors import ModelError
from planner.model.sparse import densify
from planner.model.weights import check_external
from planner.model.wire import without_large_weights

# What ONNX Runtime 1.32 accepts.
MAX_IR_VERSION: Final = 14
MAX_OPSET: Final = 26

# Constants of control-flow bodies above this size become weights of the main graph.
LIFT_BYTES: Final = 65536

_ELSEWHERE = "check the path (for a plan's model: --model PATH)"


def read_model(path: Path, *, allow_outside: bool = False) -> ir.Model:
    """Reads a model with functions inlined and nodes in a topological order.

    Raises:
        ModelError: if the file is missing or no ONNX model, is newer than ONNX Runtime takes, has a cycle, or its
            external data is missing or lies outside its folder.
    """
    model = _deserialized(path)
    _place_external(model, path.parent, allow_outside=allow_outside)
    _inline(model)
    _lift_body_weights(model)
    try:
        model.graph.sort()
    except ValueError as error:
        raise _broken(path, f"its nodes form a cycle ({error})") from None
    return model


def external_files(path: Path) -> tuple[Path, ...]:
    """Files beside the model's own that hold weights of it; none for what is no model."""
    try:
        model = _deserialized(path)
    except ModelError:
        return ()
    return tuple(dict.fromkeys(path.parent / os.fspath(tensor.location) for tensor in _external_tensors(model)))


def _deserialized(path: Path) -> ir.Model:
    proto = _parse(path)
    _check_versions(proto, path)
    densify(proto)
    try:
        return ir.serde.deserialize_model(proto)
    except ir.serde.SerdeError as error:
        raise _broken(path, str(error.__cause__ or error)) from None


def _parse(path: Path) -> onnx.ModelProto:
    if "\0" in str(path):
        raise ModelError("the path has a NUL character", where=repr(str(path)), expected="an ONNX file")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            # Such a thing may have no end, and nothing could read it a second time when the plan is run.
            raise _broken(path, "it is a device or a pipe")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise _broken(path, "it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parsed(data, path)
    except OSError as error:
        raise ModelError(
            f"the model cannot be read: {error.strerror}",
            where=str(path),
            expected="an ONNX file",
            next_step=_ELSEWHERE,
        ) from None


def _parsed(data: mmap.mmap, path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        try:
            proto.ParseFromString(without_large_weights(data, path.name))
        except ValueError:
            # Also of a file's name that is no text. Whatever is wrong, the parser says, or who reads the tensor.
            with memoryview(data) as view:
                proto.ParseFromString(view)
    except DecodeError:
        raise _broken(path, "it is truncated or no protobuf") from None
    if not proto.HasField("graph") or not proto.ir_version:
        raise _broken(path, "it has no graph or no IR version")
    return proto


def _broken(path: Path, why: str) -> ModelError:
    return ModelError(
        f"the model is not usable: {why}",
        where=str(path),
        expected="an ONNX model",
        next_step="check the file with onnx.checker or export it again",
    )


def _check_versions(proto: onnx.ModelProto, path: Path) -> None:
    if proto.ir_version > MAX_IR_VERSION:
        raise ModelError(
            f"IR version {proto.ir_version} is too new for ONNX Runtime",
            where=str(path),
            expected=f"at most {MAX_IR_VERSION}",
            next_step="export the model with an older onnx release",
        )
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > MAX_OPSET:
            raise ModelError(
                f"opset {opset.version} is too new for ONNX Runtime",
                where=str(path),
                expected=f"at most {MAX_OPSET}",
                next_step="convert the model with onnx.version_converter",
            )


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """The graph and all graphs inside it."""
    yield graph
    for node in graph:
        for body in node_bodies(node):
            yield from _graphs(body)


def node_bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """Graphs that a node holds as attributes."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _tensors(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value
    for node in graph:
        for attribute in node.attributes.values():
            if not attribute.is_ref() and attribute.type == ir.AttributeType.TENSOR:
                yield attribute.as_tensor()


def _external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for outer in graphs:
        for graph in _graphs(outer):
            for tensor in _tensors(graph):
                if isinstance(tensor, ir.ExternalTensor):
                    yield tensor


def _place_external(model: ir.Model, folder: Path, *, allow_outside: bool) -> None:
    for tensor in _external_tensors(model):
        check_external(tensor, folder, allow_outside=allow_outside)
        tensor.base_dir = folder


def _inline(model: ir.Model) -> None:
    if not model.functions:
        return
    try:
        InlinePass()(model)
    except (ir.passes.PassError, ir.passes.InvariantError, ValueError) as error:
        raise ModelError(
            f"the model's functions cannot be inlined: {error.__cause__ or error}",
            expected="functions without recursion, with the operator sets of the model",
            next_step="inline them with onnx.inliner before planning",
        ) from None


def _lift_body_weights(model: ir.Model) -> None:
    """Moves large or external constants of bodies to the main graph, where they are weights like others."""
    bodies = [graph for graph in _graphs(model.graph) if graph is not model.graph]
    if not bodies:
        return
    uses = Counter(name for graph in (model.graph, *bodies) for name in _value_names(graph))
    for graph in bodies:
        for name, value in list(graph.initializers.items()):
            tensor = value.const_value
            if tensor is None or value.is_graph_output() or value.is_graph_input():
                continue
            if tensor.nbytes <= LIFT_BYTES and not isinstance(tensor, ir.ExternalTensor):
                continue
            graph.initializers.pop(name)
            if uses[name] > 1:
                value.name = _fresh(name, uses)
            model.graph.register_initializer(value)


def _value_names(graph: ir.Graph) -> Iterator[str]:
    for value in (*graph.inputs, *graph.initializers.values()):
        yield value.name or ""
    for node in graph:
        for output in node.outputs:
            yield output.name or ""


def _fresh(stem: str, uses: Counter[str]) -> str:
    number = 1
    while uses[f"{stem}_{number}"]:
        number += 1
    uses[f"{stem}_{number}"] += 1
    return f"{stem}_{number}"
