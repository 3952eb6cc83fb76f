"""A model file without the content of its large weights: they stay in the file, as external data would.

Parsing a model whose weights lie inside takes memory of their size, and every session that is given them takes it
again. Where they begin in the file, no protobuf library tells; hence this walk over the wire format
(https://protobuf.dev/programming-guides/encoding). It descends to the main graph's initializers and no further.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from planner.model.protos import dtype_name
from planner.units import tensor_nbytes

# Smaller ones are part of every segment's model anyway.
LARGE_BYTES: Final = 65536
# Field numbers of onnx.proto.
_MODEL_GRAPH: Final = 7
_GRAPH_INITIALIZER: Final = 5
_DIMS, _DATA_TYPE, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 9, 13, 14
_EXTERNAL: Final = 1
_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
# Of these, several elements share a byte, or an element has no fixed size.
_NOT_BYTES: Final = ("string", "undefined", "int2", "uint2", "int4", "uint4", "float4e2m1")


class Bytes(Protocol):
    """A file's content, in memory or mapped."""

    def __getitem__(self, key: slice, /) -> bytes: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: number, wire type, value of a varint, and where it and its content lie."""

    number: int
    kind: int
    value: int
    begin: int
    content: int
    end: int


@dataclass(slots=True)
class _Tensor:
    """What decides whether a weight stays in the file."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    raw: list[_Field] = field(default_factory=list)
    plain: bool = True


def without_large_weights(data: Bytes, location: str) -> bytes:
    """The serialised model with external references to ``location`` in place of large weights.

    Args:
        data: a serialised ModelProto.
        location: name of the file that it is the content of, as seen from its own folder.

    Raises:
        ValueError: if this is no protobuf message, or a tensor's content is not of the size that its shape says.
    """
    return b"".join(_model(data, location.encode("utf-8")))


def _model(data: Bytes, location: bytes) -> Iterator[bytes]:
    for part in _fields(data, 0, len(data)):
        if part.number == _MODEL_GRAPH and part.kind == _LEN:
            yield _message(_MODEL_GRAPH, b"".join(_graph(data, part, location)))
        else:
            yield data[part.begin : part.end]


def _graph(data: Bytes, graph: _Field, location: bytes) -> Iterator[bytes]:
    for part in _fields(data, graph.content, graph.end):
        if part.number == _GRAPH_INITIALIZER and part.kind == _LEN:
            yield _message(_GRAPH_INITIALIZER, _initializer(data, part, location))
        else:
            yield data[part.begin : part.end]


def _initializer(data: Bytes, whole: _Field, location: bytes) -> bytes:
    parts = list(_fields(data, whole.content, whole.end))
    tensor = _Tensor()
    for part in parts:
        _look(data, part, tensor)
    nbytes = sum(raw.end - raw.content for raw in tensor.raw)
    if nbytes < LARGE_BYTES or len(tensor.raw) != 1 or not tensor.plain:
        return data[whole.content : whole.end]
    dtype = dtype_name(tensor.data_type)
    if dtype in _NOT_BYTES:
        return data[whole.content : whole.end]
    if min(tensor.dims, default=0) < 0 or tensor_nbytes(dtype, math.prod(tensor.dims)) != nbytes:
        raise ValueError("a tensor's content is not of the size that its shape says")
    (raw,) = tensor.raw
    kept = b"".join(data[part.begin : part.end] for part in parts if part is not raw)
    entries = ((b"location", location), (b"offset", b"%d" % raw.content), (b"length", b"%d" % nbytes))
    references = b"".join(_message(_EXTERNAL_DATA, _message(1, key) + _message(2, value)) for key, value in entries)
    return kept + references + _varint(_DATA_LOCATION << 3 | _VARINT) + _varint(_EXTERNAL)


def _look(data: Bytes, part: _Field, tensor: _Tensor) -> None:
    if part.number == _DIMS and part.kind == _VARINT:
        tensor.dims.append(part.value)
    elif part.number == _DIMS and part.kind == _LEN:
        position = part.content
        while position < part.end:
            size, position = _read_varint(data, position, part.end)
            tensor.dims.append(size)
    elif part.number == _DATA_TYPE and part.kind == _VARINT:
        tensor.data_type = part.value
    elif part.number == _RAW_DATA and part.kind == _LEN:
        tensor.raw.append(part)
    elif part.number in (_EXTERNAL_DATA, _DATA_LOCATION):
        tensor.plain = False


def _fields(data: Bytes, begin: int, end: int) -> Iterator[_Field]:
    """The fields of a message, in the order in which they lie there."""
    while begin < end:
        tag, content = _read_varint(data, begin, end)
        number, kind = tag >> 3, tag & 7
        value, after = 0, content
        if kind == _VARINT:
            value, after = _read_varint(data, content, end)
        elif kind == _LEN:
            length, content = _read_varint(data, content, end)
            after = content + length
        elif kind in (_I64, _I32):
            after = content + (8 if kind == _I64 else 4)
        else:
            raise ValueError(f"wire type {kind}")
        if after > end or not number:
            raise ValueError("a field ends behind its message")
        yield _Field(number, kind, value, begin, content, after)
        begin = after


def _read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    # Ten bytes hold 64 bits.
    for byte in data[position : min(position + 10, end)]:
        value |= (byte & 127) << shift
        position += 1
        if byte < 128:
            # Negative numbers are 64-bit two's complements.
            return (value if value < 1 << 63 else value - (1 << 64)), position
        shift += 7
    raise ValueError("a number without an end")


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LEN) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
