"""Translation between our types and ONNX protobufs: element types, value types, attributes, tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir

from planner.graph.op_graph import Array, Attribute, Op, TensorInfo

UNKNOWN_DTYPE: Final = "undefined"

_TP = onnx.TensorProto
_DTYPE_NAMES: Final[Mapping[int, str]] = {
    _TP.FLOAT: "float32",
    _TP.UINT8: "uint8",
    _TP.INT8: "int8",
    _TP.UINT16: "uint16",
    _TP.INT16: "int16",
    _TP.INT32: "int32",
    _TP.INT64: "int64",
    _TP.STRING: "string",
    _TP.BOOL: "bool",
    _TP.FLOAT16: "float16",
    _TP.DOUBLE: "float64",
    _TP.UINT32: "uint32",
    _TP.UINT64: "uint64",
    _TP.COMPLEX64: "complex64",
    _TP.COMPLEX128: "complex128",
    _TP.BFLOAT16: "bfloat16",
    _TP.FLOAT8E4M3FN: "float8e4m3fn",
    _TP.FLOAT8E4M3FNUZ: "float8e4m3fnuz",
    _TP.FLOAT8E5M2: "float8e5m2",
    _TP.FLOAT8E5M2FNUZ: "float8e5m2fnuz",
    _TP.UINT4: "uint4",
    _TP.INT4: "int4",
    _TP.FLOAT4E2M1: "float4e2m1",
    # By number: older onnx releases that we accept have no name for these.
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
_DTYPE_NUMBERS: Final = {name: number for number, name in _DTYPE_NAMES.items()}


def dtype_name(number: int) -> str:
    """Name of an ONNX element type, ``undefined`` for an unknown one."""
    return _DTYPE_NAMES.get(number, UNKNOWN_DTYPE)


def dtype_number(name: str) -> int:
    """ONNX number of an element type, 0 for an unknown one."""
    return _DTYPE_NUMBERS.get(name, 0)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Numpy (or ml_dtypes) type that holds one unpacked element; ``object`` for strings."""
    number = dtype_number(name)
    if name == "string" or number == 0:
        return np.dtype(object)
    return np.dtype(ir.DataType(number).numpy())


def array_dtype_name(array: Array) -> str:
    """Name of an array's element type; text and object arrays are strings."""
    if array.dtype.kind in "OUST":
        return "string"
    return dtype_name(int(ir.DataType.from_numpy(array.dtype)))


def info_from_type(name: str, proto: onnx.TypeProto) -> TensorInfo:
    """Type and shape of a value; symbolic dimensions become None."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        shape = None
        if tensor.HasField("shape"):
            # Some exporters write -1 for a dimension that is open.
            shape = tuple(
                d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim
            )
        return TensorInfo(name, dtype_name(tensor.elem_type), shape)
    if kind is None:
        return TensorInfo(name, UNKNOWN_DTYPE, None)
    return TensorInfo(name, _inner_dtype(proto), None, kind=kind.removesuffix("_type").removesuffix("_tensor"))


def _inner_dtype(proto: onnx.TypeProto) -> str:
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _inner_dtype(getattr(proto, kind).elem_type)
    if kind == "map_type":
        return _inner_dtype(proto.map_type.value_type)
    if kind in ("tensor_type", "sparse_tensor_type"):
        return dtype_name(getattr(proto, kind).elem_type)
    return UNKNOWN_DTYPE


def type_from_info(info: TensorInfo) -> onnx.TypeProto:
    """The reverse of :func:`info_from_type`; dimensions that are None get no value."""
    proto = onnx.TypeProto()
    tensor = proto.tensor_type
    if info.kind == "sequence":
        tensor = proto.sequence_type.elem_type.tensor_type
    elif info.kind == "optional":
        tensor = proto.optional_type.elem_type.tensor_type
    elif info.kind != "tensor":
        return proto
    tensor.elem_type = dtype_number(info.dtype)
    if info.shape is not None:
        # Touching the field makes a rank-0 shape differ from an unknown one.
        tensor.shape.SetInParent()
        for size in info.shape:
            dim = tensor.shape.dim.add()
            if size is not None:
                dim.dim_value = size
    return proto


def tensor_proto(array: Array, name: str) -> onnx.TensorProto:
    """A tensor of any type with its content inside."""
    dtype = array_dtype_name(array)
    if dtype == "string":
        flat = [text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text for text in array.flat]
        proto = onnx.TensorProto(name=name, data_type=_TP.STRING, dims=array.shape)
        proto.string_data.extend(flat)
        return proto
    return ir.serde.serialize_tensor(ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=name))


def attribute_proto(name: str, attribute: Attribute) -> onnx.AttributeProto:
    """An attribute as protobuf; opaque ones are the loader's own objects."""
    if attribute.type == "opaque":
        return ir.serde.serialize_attribute(attribute.value)
    proto = onnx.AttributeProto(name=name, type=_ATTRIBUTE_TYPES[attribute.type])
    value = attribute.value
    match attribute.type:
        case "int":
            proto.i = int(value)
        case "float":
            proto.f = float(value)
        case "string":
            proto.s = _encode(value)
        case "ints":
            proto.ints.extend(int(v) for v in value)
        case "floats":
            proto.floats.extend(float(v) for v in value)
        case "strings":
            proto.strings.extend(_encode(v) for v in value)
        case _:
            proto.t.CopyFrom(tensor_proto(value, ""))
    return proto


_ATTRIBUTE_TYPES: Final = {
    "int": onnx.AttributeProto.INT,
    "float": onnx.AttributeProto.FLOAT,
    "string": onnx.AttributeProto.STRING,
    "ints": onnx.AttributeProto.INTS,
    "floats": onnx.AttributeProto.FLOATS,
    "strings": onnx.AttributeProto.STRINGS,
    "tensor": onnx.AttributeProto.TENSOR,
}


def _encode(text: str) -> bytes:
    # Custom operators keep raw bytes in string attributes; surrogateescape carries them through unchanged.
    return text.encode("utf-8", "surrogateescape")


def node_proto(op: Op) -> onnx.NodeProto:
    """An operator as protobuf; attributes in order of name."""
    node = onnx.NodeProto(name=op.name, domain=op.domain, op_type=op.op_type)
    node.input.extend(_without_trailing_blanks(op.inputs))
    node.output.extend(_without_trailing_blanks(op.outputs))
    node.attribute.extend(attribute_proto(name, op.attributes[name]) for name in sorted(op.attributes))
    return node


def has_body(op: Op) -> bool:
    """Whether an attribute of the operator is a graph."""
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(a.type == "opaque" and a.value.type in kinds for a in op.attributes.values())


def _without_trailing_blanks(names: Sequence[str]) -> Sequence[str]:
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return names[:end]
