"""Between numpy arrays and ONNX Runtime's values, without copying on the way in.

ONNX Runtime's Python API has gaps that are closed here: element types that numpy lacks (bfloat16, floats of 8 and 4
bits, integers of 4 and 2) come and go as ml_dtypes arrays, and strings, which cannot be an ``OrtValue``, stay numpy
object arrays.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _c

from planner.graph.op_graph import Array
from planner.units import tensor_nbytes

# Everything ONNX Runtime raises for a model or a run that fails; its classes share no base but Exception.
ORT_ERRORS: Final = (
    _c.EPFail,
    _c.EngineError,
    _c.Fail,
    _c.InvalidArgument,
    _c.InvalidGraph,
    _c.InvalidProtobuf,
    _c.NoModel,
    _c.NoSuchFile,
    _c.NotImplemented,
    _c.RuntimeException,
    RuntimeError,
    ValueError,
    TypeError,
    MemoryError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class _Foreign:
    """An element type that numpy lacks."""

    onnx_type: int
    numpy_type: np.dtype[Any]
    bits: int


_FOREIGN: Final = {
    "bfloat16": _Foreign(16, np.dtype(ml_dtypes.bfloat16), 16),
    "float8e4m3fn": _Foreign(17, np.dtype(ml_dtypes.float8_e4m3fn), 8),
    "float8e4m3fnuz": _Foreign(18, np.dtype(ml_dtypes.float8_e4m3fnuz), 8),
    "float8e5m2": _Foreign(19, np.dtype(ml_dtypes.float8_e5m2), 8),
    "float8e5m2fnuz": _Foreign(20, np.dtype(ml_dtypes.float8_e5m2fnuz), 8),
    "uint4": _Foreign(21, np.dtype(ml_dtypes.uint4), 4),
    "int4": _Foreign(22, np.dtype(ml_dtypes.int4), 4),
    "float4e2m1": _Foreign(23, np.dtype(ml_dtypes.float4_e2m1fn), 4),
    "float8e8m0": _Foreign(24, np.dtype(ml_dtypes.float8_e8m0fnu), 8),
    "uint2": _Foreign(25, np.dtype(ml_dtypes.uint2), 2),
    "int2": _Foreign(26, np.dtype(ml_dtypes.int2), 2),
}
# Element types that ``OrtValue.numpy`` cannot give.
FOREIGN_TYPES: Final = frozenset(_FOREIGN)
SMALL_INTEGERS: Final = {"uint4": 4, "int4": 4, "uint2": 2, "int2": 2}
"""Bits of the integer types of less than a byte."""
_SIGNED: Final = (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.int2))
_UNSIGNED: Final = (np.dtype(ml_dtypes.uint4), np.dtype(ml_dtypes.uint2))
# ``dtype.name`` is Python code; a look-up costs a tenth.
_PLAIN: Final = (
    "float32",
    "float16",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "bool",
)
_NAME_OF_NUMPY: Final = {
    **{np.dtype(plain): plain for plain in _PLAIN},
    **{foreign.numpy_type: name for name, foreign in _FOREIGN.items()},
}
_HOST: Final = _c.OrtDevice(_c.OrtDevice.cpu(), _c.OrtDevice.default_memory(), 0)
_ORT_NAMES: Final = {"float32": "float", "float64": "double"}
_FROM_ORT: Final = {short: name for name, short in _ORT_NAMES.items()}


def ort_type(dtype: str, kind: str = "tensor") -> str:
    """ONNX Runtime's name of a type: ``float32`` -> ``tensor(float)``."""
    inner = f"tensor({_ORT_NAMES.get(dtype, dtype)})"
    if kind == "tensor":
        return inner
    return f"{'seq' if kind == 'sequence' else kind}({inner})"


def element_type(ort_name: str) -> str:
    """The element type in ONNX Runtime's name of a type: ``tensor(float)`` -> ``float32``."""
    inner = ort_name[ort_name.rfind("(") + 1 :].rstrip(")")
    return _FROM_ORT.get(inner, inner)


def dtype_of(array: Array) -> str:
    """The element type of an array by the names that plans use; any text is ``string``."""
    if array.dtype.kind in "OUST":
        return "string"
    return _NAME_OF_NUMPY.get(array.dtype, array.dtype.name)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) type for a plan's element type; object for strings.

    Raises:
        TypeError: if there is none.
    """
    if dtype == "string":
        return np.dtype(object)
    return _FOREIGN[dtype].numpy_type if dtype in _FOREIGN else np.dtype(dtype)


def wrap(array: Array) -> ort.OrtValue:
    """An ``OrtValue`` over the memory of a numeric array; the returned wrapper keeps that memory alive.

    The wrapper has to outlive every use of its inner C value: that one holds no reference to the array.
    Copies only what is not contiguous or not in this machine's byte order, and types of less than 8 bits, which have to
    be packed.

    Raises:
        RuntimeError: if ONNX Runtime has no such element type.
    """
    dense = _dense(array)
    foreign = _FOREIGN.get(dtype_of(dense))
    if foreign is None:
        return ort.OrtValue.ortvalue_from_numpy(dense)
    raw = _pack(dense, foreign.bits) if foreign.bits < 8 else dense.view(np.uint16 if foreign.bits == 16 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, foreign.onnx_type)


def over(array: Array) -> Any:
    """An inner C value over the memory of an array, which must be contiguous, native, of a type that numpy has.

    What is cold costs ten times what it costs in a loop: this is the short way to a step's inputs. The array has to
    outlive the value.
    """
    return _c.OrtValue.ortvalue_from_numpy(array, _HOST)


def native(array: Array) -> Array:
    """In this machine's byte order: ONNX Runtime takes the bytes as they are."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _dense(array: Array) -> Array:
    dense = np.asarray(native(array), order="C")
    # What is mapped may begin at any byte of its file.
    return dense if dense.flags.aligned else dense.copy()


def own(array: Array) -> Any:
    """An inner C value with memory of its own, for a numeric array whose owner goes away.

    Raises:
        RuntimeError: if ONNX Runtime has no such element type.
    """
    dense = _dense(array)
    foreign = _FOREIGN.get(dtype_of(dense))
    if foreign is None:
        value = _c.OrtValue.ortvalue_from_shape_and_type(list(dense.shape), dense.dtype.type, _HOST)
        value.update_inplace(dense)
        return value
    value = _c.OrtValue.ortvalue_from_shape_and_onnx_type(list(dense.shape), foreign.onnx_type, _HOST)
    raw = _pack(dense, foreign.bits) if foreign.bits < 8 else dense
    if dense.size:
        ctypes.memmove(value.data_ptr(), raw.ctypes.data, (dense.size * foreign.bits + 7) // 8)
    return value


def unwrap(value: Any) -> Any:
    """The numpy array of a value of ONNX Runtime (the inner C object or its wrapper), in memory of its own.

    What is no dense tensor in main memory, or numpy already, is returned as ONNX Runtime gives it.
    """
    if isinstance(value, np.ndarray | list | dict):
        return value
    inner = value._get_c_value() if isinstance(value, ort.OrtValue) else value
    if not inner.is_tensor():
        return value
    dtype = element_type(inner.data_type())
    foreign = _FOREIGN.get(dtype)
    if foreign is None:
        return inner.numpy()
    shape = tuple(inner.shape())
    count = int(np.prod(shape, dtype=np.int64))
    nbytes = (count * foreign.bits + 7) // 8
    raw = np.frombuffer(ctypes.string_at(inner.data_ptr(), nbytes), dtype=np.uint8) if nbytes else np.zeros(0, np.uint8)
    if foreign.bits < 8:
        return _unpack(raw, count, foreign).reshape(shape)
    return raw.view(foreign.numpy_type).reshape(shape).copy()


def value_nbytes(value: Any) -> int:
    """Bytes that a value occupies; strings count as what a short one costs; 0 for what is no tensor."""
    if isinstance(value, np.ndarray):
        return tensor_nbytes(dtype_of(value), value.size)
    if isinstance(value, list | dict):
        return 0
    return int(value.tensor_size_in_bytes()) if value.is_tensor() else 0


def _pack(array: Array, bits: int) -> Array:
    """Several elements a byte, the first in the lowest bits, in a buffer of the unpacked shape as the API demands."""
    # np.empty: pages of the unused rest are never touched, so they cost address space only.
    packed = np.empty(array.shape, dtype=np.uint8)
    parts = array.view(np.uint8).reshape(-1) & ((1 << bits) - 1)
    flat, each = packed.reshape(-1), 8 // bits
    flat[: -(-parts.size // each)] = 0
    for place in range(each):
        part = parts[place::each]
        flat[: part.size] |= part << (bits * place)
    return packed


def _unpack(raw: Array, count: int, foreign: _Foreign) -> Array:
    each = 8 // foreign.bits
    parts = np.empty(raw.size * each, dtype=np.uint8)
    for place in range(each):
        parts[place::each] = (raw >> (foreign.bits * place)) & ((1 << foreign.bits) - 1)
    parts = parts[:count]
    if foreign.numpy_type in _SIGNED:
        signed = parts.astype(np.int8)
        signed[signed >= 1 << (foreign.bits - 1)] -= 1 << foreign.bits
        return signed.astype(foreign.numpy_type)
    if foreign.numpy_type in _UNSIGNED:
        return parts.astype(foreign.numpy_type)
    return parts.view(foreign.numpy_type)


def ort_version() -> str:
    """Version of the ONNX Runtime in use."""
    return str(ort.__version__)
