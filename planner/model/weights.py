"""Handles for constants: they know type and shape, and read the content only when asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from planner.errors import ModelError
from planner.graph.op_graph import Array, TensorInfo
from planner.model.protos import array_dtype_name, dtype_name, numpy_dtype
from planner.model.types import Place, Weight
from planner.units import tensor_nbytes

# Tensors up to this size are read while planning: shapes, axes, scalars.
SMALL_BYTES: Final = 4096

_PACKED: Final = ("int2", "uint2", "int4", "uint4", "float4e2m1")


def weight_from_tensor(tensor: ir.TensorProtocol, name: str) -> Weight:
    """A handle on a tensor of the model, embedded or external.

    Raises:
        ModelError: for an element type that is unknown.
    """
    dtype = dtype_name(int(tensor.dtype))
    info = TensorInfo(name, dtype, tuple(int(d) for d in tensor.shape.numpy()))
    if isinstance(tensor, ir.ExternalTensor):
        path, offset = Path(tensor.path), int(tensor.offset or 0)
        place = None if dtype in _PACKED else Place(path, offset)
        return Weight(info, lambda: _map_external(path, offset, info), key=name, place=place)
    return Weight(info, lambda: _read_embedded(tensor, info), key=name)


def weight_from_array(array: Array, name: str) -> Weight:
    """A handle on a small computed constant."""
    return Weight(TensorInfo(name, array_dtype_name(array), array.shape), lambda: array, key=name)


def weight_from_fill(value: Any, dtype: str, shape: tuple[int, ...], name: str) -> Weight:
    """A constant whose elements are all ``value``; takes no memory until its array is written to or copied."""
    info = TensorInfo(name, dtype, shape)
    return Weight(info, lambda: np.broadcast_to(np.asarray(value, numpy_dtype(dtype)), shape), fill=value, key=name)


def _read_embedded(tensor: ir.TensorProtocol, info: TensorInfo) -> Array:
    try:
        array = np.asarray(tensor.numpy())
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"tensor '{info.name}' cannot be read: {error}",
            expected=f"{info.nbytes} bytes of {info.dtype}",
            next_step="export the model again",
        ) from None
    if info.dtype == "string":
        return decode_strings(array)
    return array


def decode_strings(array: Array) -> Array:
    """An object array of ``str`` from one of ``bytes``."""
    decoded = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        item: Any = array[index]
        decoded[index] = item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)
    return decoded


def _map_external(path: Path, offset: int, info: TensorInfo) -> Array:
    shape = tuple(size or 0 for size in info.shape or ())
    dtype = numpy_dtype(info.dtype)
    if info.num_elements == 0:
        return np.zeros(shape, dtype)
    if info.dtype in _PACKED:
        raw = np.memmap(path, np.uint8, "r", offset, (info.nbytes,))
        return _unpack(np.asarray(raw), info, shape)
    return np.memmap(path, dtype, "r", offset, shape).view(np.ndarray)


def _unpack(raw: Array, info: TensorInfo, shape: tuple[int, ...]) -> Array:
    packed = ir.PackedTensor(raw, ir.DataType.from_short_name(_SHORT[info.dtype]), shape=ir.Shape(shape))
    return np.asarray(packed.numpy())


_SHORT: Final = {"int2": "i2", "uint2": "u2", "int4": "i4", "uint4": "u4", "float4e2m1": "f4e2m1"}


def check_external(tensor: ir.ExternalTensor, folder: Path, *, allow_outside: bool) -> None:
    """Checks that external data is there, is large enough, and lies in the model's folder.

    Links are followed, so that cached weight files (symbolic or hard links) work.

    Raises:
        ModelError: if not.
    """
    location = os.fspath(tensor.location)
    outside = os.path.isabs(location) or os.path.normpath(location).split(os.sep)[0] == os.pardir
    if outside and not allow_outside:
        raise ModelError(
            f"weight '{tensor.name}' lies outside the model's folder",
            where=location,
            expected="a path inside the model's folder",
            next_step="move the file beside the model, or allow it explicitly with --allow-outside",
        )
    path = folder / location
    nbytes = tensor_nbytes(dtype_name(int(tensor.dtype)), int(np.prod(tensor.shape.numpy(), dtype=object)))
    try:
        available = path.stat().st_size if not path.is_dir() else -1
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the file with weight '{tensor.name}' cannot be read: {getattr(error, 'strerror', None) or error}",
            where=repr(str(path))[1:-1],
            next_step="copy the external data beside the model",
        ) from None
    if available < 0:
        raise ModelError(
            f"weight '{tensor.name}' is said to be in a folder",
            where=str(path),
            expected="a file beside the model",
            next_step="export the model again",
        )
    if int(tensor.offset or 0) + nbytes > available:
        raise ModelError(
            f"the file ends before weight '{tensor.name}'",
            where=str(path),
            expected=f"{nbytes} bytes at offset {int(tensor.offset or 0)}, the file has {available}",
            next_step="copy the external data again",
        )
