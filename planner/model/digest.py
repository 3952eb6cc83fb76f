"""Digest of a loaded graph: what ties a plan to its model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from planner.errors import ModelError
from planner.graph.op_graph import Op, OpGraph, TensorInfo
from planner.model.protos import node_proto, tensor_proto


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal; of the ``.onnx`` file alone, where weights lie in others.

    Raises:
        ModelError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise ModelError(f"cannot be read: {problem.strerror}", where=str(path), expected="an ONNX file") from None


def graph_digest(graph: OpGraph, opsets: Mapping[str, int]) -> str:
    """``sha256:...`` over structure, attributes, shapes, small constants, names, types and shapes of weights.

    Not over the content of large weights: that would read a whole model.
    """
    digest = hashlib.sha256()
    for part in _parts(graph, opsets):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def _parts(graph: OpGraph, opsets: Mapping[str, int]) -> Iterator[bytes]:
    for domain in sorted({op.domain for op in graph.ops}):
        yield f"opset {domain!r} {opsets.get(domain, 0)}".encode()
    for op in graph.ops:
        yield _op_bytes(op)
    for title, names in (("input", graph.inputs), ("output", graph.outputs), ("weight", sorted(graph.weights))):
        for name in names:
            yield f"{title} {_info_text(graph.tensors[name])}".encode("utf-8", "surrogateescape")
    for name in sorted(graph.constants):
        yield tensor_proto(graph.constants[name], name).SerializeToString(deterministic=True)


def _op_bytes(op: Op) -> bytes:
    body: bytes = node_proto(op).SerializeToString(deterministic=True)
    return str(op.version).encode() + b" " + body


def _info_text(info: TensorInfo) -> str:
    return f"{info.name!r} {info.kind} {info.dtype} {info.shape}"
