"""Shapes of ``com.microsoft`` operators, for which ONNX has no schema.

Source: the operator documentation of ONNX Runtime (docs/ContribOperators.md). Shapes that a rule cannot tell are left
unknown; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import onnx.defs
import onnx.shape_inference

from planner.graph.op_graph import Array, Op, TensorInfo
from planner.model.protos import info_from_type, node_proto, type_from_info

Infos = Sequence[TensorInfo | None]
Values = Sequence[Array | None]
Shape = tuple[int | None, ...]
Rule = Callable[[Op, Infos, Values], "list[TensorInfo | None]"]


def infer_contrib(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo]:
    """What is known about the present outputs; an output about which nothing is known is missing.

    Args:
        op: an operator that ONNX has no schema for.
        inputs: one entry an input; None where absent.
        constants: values of small constant inputs.
    """
    rule = _RULES.get(op.op_type) if op.domain == "com.microsoft" else None
    if rule is None or not inputs or inputs[0] is None:
        return []
    found = rule(op, inputs, constants)
    named = zip(op.outputs, found, strict=False)
    return [replace(info, name=name) for name, info in named if name and info is not None]


def _at(inputs: Infos, index: int) -> TensorInfo | None:
    return inputs[index] if index < len(inputs) else None


def _tensor(dtype: str, shape: Shape | None) -> TensorInfo:
    return TensorInfo("", dtype, shape)


def _like_first(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    return [inputs[0]]


def _broadcast(left: TensorInfo | None, right: TensorInfo | None) -> Shape | None:
    if left is None or right is None or left.shape is None or right.shape is None:
        return None
    rank = max(len(left.shape), len(right.shape))
    one, two = ((1,) * (rank - len(s)) + s for s in (left.shape, right.shape))
    return tuple(b if a == 1 else a if b == 1 or a == b else (a or b) for a, b in zip(one, two, strict=True))


def _broadcast_of(index: int) -> Rule:
    def rule(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
        first = inputs[0]
        return [_tensor(first.dtype, _broadcast(first, _at(inputs, index)))] if first else []

    return rule


def _standard(op_type: str, version: int, uses: Sequence[int] | None = None, dtype_from: int = 0) -> Rule:
    """The shape of the ONNX operator that it extends, run on the inputs ``uses``."""

    def rule(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
        chosen = [_at(inputs, i) for i in (uses if uses is not None else range(len(inputs)))]
        base = chosen[0]
        if base is None:
            return []
        schema = onnx.defs.get_schema(op_type, version, "")
        attributes = {k: v for k, v in op.attributes.items() if k in schema.attributes}
        names = tuple(f"i{k}" if info is not None else "" for k, info in enumerate(chosen))
        proxy = Op("proxy", "", op_type, version, names, ("o",), attributes)
        # One element type for all: the rule is asked for the shape only.
        types = {n: type_from_info(replace(i, dtype="float32")) for n, i in zip(names, chosen, strict=True) if i}
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node_proto(proxy), types)
        except onnx.shape_inference.InferenceError:
            return []
        source = _at(inputs, dtype_from)
        if "o" not in found or source is None:
            return []
        return [replace(info_from_type("o", found["o"]), dtype=source.dtype)]

    return rule


def _fused_matmul(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    left, right = inputs[0], _at(inputs, 1)
    if left is None or right is None or left.shape is None or right.shape is None:
        return [_tensor(left.dtype, None)] if left else []
    if op.attr("transBatchA", 0) or op.attr("transBatchB", 0) or min(len(left.shape), len(right.shape)) < 2:
        return [_tensor(left.dtype, None)]
    a, b = list(left.shape), list(right.shape)
    rows = a[-1] if op.attr("transA", 0) else a[-2]
    columns = b[-2] if op.attr("transB", 0) else b[-1]
    batch = _broadcast(replace(left, shape=tuple(a[:-2])), replace(right, shape=tuple(b[:-2]))) or ()
    return [_tensor(left.dtype, (*batch, rows, columns))]


def _matmul_nbits(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    first = inputs[0]
    if first is None or first.shape is None:
        return [first]
    return [_tensor(first.dtype, (*first.shape[:-1], int(op.attr("N", 0))))]


def _skip_norm(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    first = inputs[0]
    if first is None or first.shape is None:
        return [first, None, None, first]
    statistics = _tensor("float32", (*first.shape[:-1], 1))
    return [first, statistics, statistics, first]


def _embed(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    ids, table = inputs[0], _at(inputs, 2)
    if ids is None or table is None or ids.shape is None or table.shape is None:
        return []
    full = _tensor(table.dtype, (*ids.shape, table.shape[-1]))
    return [full, _tensor("int32", ids.shape[:1]), full]


def _attention(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    x, weights, past = inputs[0], _at(inputs, 1), _at(inputs, 4)
    if x is None or weights is None or x.shape is None or weights.shape is None:
        return []
    sizes = op.attr("qkv_hidden_sizes")
    merged = weights.shape[-1]
    hidden = int(sizes[2]) if sizes else (merged // 3 if merged is not None else None)
    present = None
    if not sizes and hidden is not None and op.attr("num_heads"):
        heads = int(op.attr("num_heads"))
        before: int | None = 0
        if past is not None:
            before = past.shape[3] if past.shape is not None else None
        total = None if before is None or x.shape[1] is None else before + x.shape[1]
        present = _tensor(x.dtype, (2, x.shape[0], heads, total, hidden // heads))
    return [_tensor(x.dtype, (x.shape[0], x.shape[1], hidden)), present]


def _multi_head(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    query, value = inputs[0], _at(inputs, 2)
    if query is None or query.shape is None:
        return []
    if len(query.shape) == 5:  # packed [batch, sequence, heads, 3, head size]
        heads, size = query.shape[2], query.shape[4]
        hidden = heads * size if heads is not None and size is not None else None
        return [_tensor(query.dtype, (*query.shape[:2], hidden))]
    hidden = query.shape[2]
    if value is not None and value.shape is not None:
        if len(value.shape) == 3:
            hidden = value.shape[2]
        elif value.shape[1] is not None and value.shape[3] is not None:
            hidden = value.shape[1] * value.shape[3]
    return [_tensor(query.dtype, (*query.shape[:2], hidden))]


def _group_query(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    query, key, past = inputs[0], _at(inputs, 1), _at(inputs, 3)
    if query is None or query.shape is None:
        return []
    width, heads, groups = query.shape[2], int(op.attr("num_heads", 1)), int(op.attr("kv_num_heads", 1))
    if key is None and width is not None:  # packed [Q|K|V]
        width = width * heads // (heads + 2 * groups)
    present = None
    if past is not None and past.shape is not None:
        # The cache's length depends on sequence lengths that are only known at run time.
        present = _tensor(past.dtype, (*past.shape[:2], None, past.shape[3]))
    return [_tensor(query.dtype, (*query.shape[:2], width)), present, present]


def _quantize(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    first, zero = inputs[0], _at(inputs, 2)
    return [replace(first, dtype=zero.dtype if zero else "uint8")] if first else []


def _dequantize(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    first, scale = inputs[0], _at(inputs, 1)
    return [replace(first, dtype=scale.dtype)] if first and scale else []


def _qlinear_concat(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    # y_scale, y_zero_point, then (x, scale, zero point) of every part.
    parts = [info for info in inputs[2::3] if info is not None]
    if not parts or any(p.shape is None for p in parts):
        return []
    shape = list(parts[0].shape or ())
    axis = int(op.attr("axis", 0))
    sizes = [(p.shape or ())[axis] for p in parts]
    shape[axis] = None if None in sizes else sum(size or 0 for size in sizes)
    return [_tensor(parts[0].dtype, tuple(shape))]


def _matmul_integer_to_float(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    left, right, scale = inputs[0], _at(inputs, 1), _at(inputs, 2)
    if left is None or right is None or scale is None:
        return []
    return _standard("MatMul", 13, (0, 1), 2)(op, inputs, constants)


def _gather_block_quantized(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    table, ids, scales = inputs[0], _at(inputs, 1), _at(inputs, 2)
    if table is None or ids is None or scales is None or table.shape is None or ids.shape is None:
        return []
    if table.dtype == "uint8" or int(op.attr("gather_axis", 0)) != 0:
        return [_tensor(scales.dtype, None)]
    return [_tensor(scales.dtype, (*ids.shape, *table.shape[1:]))]


def _fused_gemm(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    return _standard("Gemm", 13, (0, 1))(op, inputs, constants)


def _qlinear_global_pool(op: Op, inputs: Infos, constants: Values) -> list[TensorInfo | None]:
    first = inputs[0]
    if first is None or first.shape is None:
        return [first]
    shape = first.shape
    if op.attr("channels_last", 0):
        return [replace(first, shape=(shape[0], *(1 for _ in shape[1:-1]), shape[-1]))]
    return [replace(first, shape=(*shape[:2], *(1 for _ in shape[2:])))]


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(
        (
            "BiasGelu",
            "FastGelu",
            "Gelu",
            "QuickGelu",
            "QLinearLeakyRelu",
            "QLinearSigmoid",
            "QLinearSoftmax",
            "BiasDropout",
            "BiasAdd",
            "BiasSoftmax",
            "GroupNorm",
            "Inverse",
            "RotaryEmbedding",
        ),
        _like_first,
    ),
    "QLinearAdd": _broadcast_of(3),
    "QLinearMul": _broadcast_of(3),
    "FusedConv": _standard("Conv", 11, (0, 1)),
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "FusedMatMulActivation": _fused_matmul,
    "MatMulNBits": _matmul_nbits,
    "MatMulBnb4": _matmul_nbits,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "DynamicQuantizeMatMul": _standard("MatMul", 13, (0, 1)),
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "EmbedLayerNormalization": _embed,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _group_query,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "QLinearConcat": _qlinear_concat,
    "QLinearGlobalAveragePool": _qlinear_global_pool,
    "GatherBlockQuantized": _gather_block_quantized,
}
