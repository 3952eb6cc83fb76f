"""Models as files that need nothing else: weights inside, or in data files beside them where they are too large."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx

from planner.graph.op_graph import Array
from planner.model.serialize import build_model
from planner.model.types import Weight

# Protobuf ends at 2 GiB; some tools and file systems do so too.
MAX_FILE_BYTES: Final = 2_000_000_000
# What ONNX Runtime can map into memory without copying.
_ALIGNMENT: Final = 65536
# Old enough for tools of 2024, new enough for every element type.
_CONSTANTS_OPSET: Final = 21
_CONSTANTS_IR_VERSION: Final = 10


def save_with_weights(
    model: bytes, weights: Mapping[str, Weight], path: Path, *, max_file_bytes: int = MAX_FILE_BYTES
) -> tuple[str, ...]:
    """Write a model of :func:`planner.model.serialize.build_model` with its weights.

    Args:
        model: the serialised model.
        weights: those that are stubs in it.
        path: the file. Where model and weights together would exceed ``max_file_bytes``, the weights go into
            ``<name>.0.data``, ``<name>.1.data``, ... beside it, each below that size unless one weight alone is not.
        max_file_bytes: largest file.

    Returns:
        Names of the data files.

    Raises:
        OSError: if a file cannot be written.
    """
    proto = onnx.ModelProto.FromString(model)
    stubs = [tensor for tensor in proto.graph.initializer if tensor.name in weights]
    total = len(model) + sum(weights[tensor.name].info.nbytes for tensor in stubs)
    if total <= max_file_bytes:
        for tensor in stubs:
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.raw_data = _raw(weights[tensor.name].load()).tobytes()
        names: tuple[str, ...] = ()
    else:
        names = _write_data(stubs, weights, path, max_file_bytes)
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return names


def constants_model(constants: Mapping[str, Weight]) -> tuple[bytes, dict[str, Weight]]:
    """A model without inputs whose outputs are constants; returned as ``build_model`` does."""
    return build_model(
        (),
        tensors={name: weight.info for name, weight in constants.items()},
        inputs=(),
        outputs=tuple(constants),
        weights=constants,
        opsets={"": _CONSTANTS_OPSET},
        ir_version=_CONSTANTS_IR_VERSION,
    )


def _write_data(
    stubs: Sequence[onnx.TensorProto], weights: Mapping[str, Weight], path: Path, max_file_bytes: int
) -> tuple[str, ...]:
    names: list[str] = []
    offset = max_file_bytes
    for tensor in stubs:
        nbytes = weights[tensor.name].info.nbytes
        offset = -(-offset // _ALIGNMENT) * _ALIGNMENT
        if not names or (offset and offset + nbytes > max_file_bytes):
            names.append(f"{path.stem}.{len(names)}.data")
            offset = 0
        with (path.parent / names[-1]).open("ab") as file:
            file.truncate(offset)
            file.seek(0, os.SEEK_END)
            _raw(weights[tensor.name].load()).tofile(file)
        del tensor.external_data[:]
        for key, value in (("location", names[-1]), ("offset", str(offset)), ("length", str(nbytes))):
            tensor.external_data.add(key=key, value=value)
        offset += nbytes
    return tuple(names)


def _raw(array: Array) -> Array:
    """The array as ONNX stores it: dense, little-endian."""
    dense = np.ascontiguousarray(array)
    return dense.astype(dense.dtype.newbyteorder("<"), copy=False)
