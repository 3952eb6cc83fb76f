"""Arithmetic and data volume of one operator, from its types and shapes alone.

A multiply-add counts as two operations. Elementwise operators count one an element, transcendental ones
eight (a polynomial of about that many steps); moving data counts none. Operators that the table does not know, and
control flow, count their bytes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from planner.graph.op_graph import OpContext, TensorInfo

_TRANSCENDENTAL: Final = 8
NORM_FLOPS: Final = 8
"""Operations of a normalisation, an element."""

MATMUL_OPS: Final = frozenset(
    (
        "MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "FusedGemm", "TransposeMatMul", "Einsum",
        "Attention", "MultiHeadAttention", "GroupQueryAttention", "MatMulNBits", "QAttention", "QGemm",
        "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "GemmFastGelu", "FusedMatMulActivation", "LinearAttention",
    )
)  # fmt: skip
CONV_OPS: Final = frozenset(
    (
        "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "FusedConv", "DeformConv", "NhwcConv", "NhwcFusedConv",
        "CausalConvWithState", "QLinearConvTranspose", "ConvTransposeWithDynamicPads",
    )
)  # fmt: skip
RNN_OPS: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
NORM_OPS: Final = frozenset(
    (
        "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
        "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
        "EmbedLayerNormalization", "LpNormalization", "MeanVarianceNormalization", "LRN", "Softmax", "LogSoftmax",
        "Hardmax", "SoftmaxCrossEntropyLoss", "GroupNorm", "SkipGroupNorm", "BatchNormInternal",
        "NegativeLogLikelihoodLoss",
    )
)  # fmt: skip
POOL_OPS: Final = frozenset(
    ("MaxPool", "AveragePool", "LpPool", "QLinearAveragePool", "NhwcMaxPool", "MaxRoiPool", "RoiAlign", "Resize",
     "Upsample", "GridSample", "MaxUnpool")
)  # fmt: skip
GLOBAL_POOL_OPS: Final = frozenset(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "QLinearGlobalAveragePool"))
MOVE_OPS: Final = frozenset(
    (
        "Transpose", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements",
        "ScatterND", "Pad", "Tile", "Expand", "DepthToSpace", "SpaceToDepth", "Where", "Compress", "ReverseSequence",
        "Cast", "CastLike", "OneHot", "Trilu", "EyeLike", "ConstantOfShape", "Range", "NonZero", "Unique", "TopK",
        "CenterCropPad", "Col2Im", "TensorScatter", "RandomNormal", "RandomUniform", "RandomNormalLike",
        "RandomUniformLike", "Bernoulli", "Multinomial", "BitCast",
    )
)  # fmt: skip
VIEW_OPS: Final = frozenset(
    ("Constant", "Shape", "Size", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Optional",
     "OptionalGetElement", "OptionalHasElement")
)  # fmt: skip
_HARD: Final = frozenset(
    (
        "Erf", "Exp", "Tanh", "Sigmoid", "Log", "Pow", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan",
        "Asinh", "Acosh", "Atanh", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Elu", "Selu", "Celu", "Softplus",
        "Mish", "HardSwish", "Swish", "Softsign", "Sqrt", "Reciprocal", "Div", "Mod", "Rotary", "RotaryEmbedding",
    )
)  # fmt: skip


def family(op: OpContext) -> str:
    """Operator family that efficiencies are given for; see ``cluster.sheets.FAMILIES``."""
    kind = op.op.op_type
    if kind in CONV_OPS:
        return "depthwise" if _is_depthwise(op) else "conv"
    if kind in MATMUL_OPS:
        return "matmul"
    if kind in RNN_OPS:
        return "rnn"
    if kind in NORM_OPS:
        return "normalization"
    if kind in POOL_OPS or kind in GLOBAL_POOL_OPS:
        return "pool"
    if kind.startswith("Reduce") or kind in ("ArgMax", "ArgMin", "CumSum", "CumProd"):
        return "reduction"
    if kind in MOVE_OPS or kind in VIEW_OPS:
        return "data-movement"
    if op.op.captures or any(a.type == "opaque" for a in op.op.attributes.values()):
        return "other"
    return "elementwise"


def is_view(op: OpContext) -> bool:
    """Whether the operator makes no data of its own: a constant, a shape, or another view of its input."""
    kind = op.op.op_type
    if kind == "Dropout":
        # In training mode it draws a mask.
        training = op.constants[2] if len(op.constants) > 2 else None
        absent = len(op.inputs) < 3 or op.inputs[2] is None
        return absent or (training is not None and not bool(training.any()))
    return op.op.domain == "" and kind in VIEW_OPS


def op_flops(op: OpContext) -> int:
    """Operations of one run; 0 where the operator only moves data or is not known."""
    kind = op.op.op_type
    if is_view(op) or kind in MOVE_OPS:
        return 0
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(op)
    if kind in CONV_OPS:
        return _conv(op)
    if kind in MATMUL_OPS:
        return _matmul(op)
    output, largest = _elements(op.outputs), _largest(op.inputs)
    if kind in NORM_OPS:
        return NORM_FLOPS * largest
    if kind in POOL_OPS:
        window: tuple[int, ...] = op.op.attr("kernel_shape", ())
        return output * max(prod(window), 1)
    if kind in GLOBAL_POOL_OPS or family(op) == "reduction":
        return largest
    if family(op) == "other":
        return 0
    return (_TRANSCENDENTAL if kind in _HARD else 1) * output


def op_bytes(op: OpContext) -> int:
    """Bytes read and written by one run; a Gather or Slice reads only what it takes."""
    if is_view(op):
        return 0
    written = sum(info.nbytes for info in op.outputs if info is not None)
    if op.op.op_type in ("Gather", "GatherElements", "GatherND", "Slice", "Split"):
        return 2 * written
    return written + sum(info.nbytes for info in op.inputs if info is not None)


def _conv(op: OpContext) -> int:
    transposed = "Transpose" in op.op.op_type
    weight = op.inputs[3 if op.op.op_type.startswith("QLinear") else _weight_index(op)]
    data, output = op.inputs[0], op.outputs[0]
    if weight is None or data is None or output is None or len(weight.dims) < 2:
        return 0
    # Weight is [out, in/groups, *kernel], transposed [in, out/groups, *kernel]: each element of the output
    # (transposed: of the input) meets all but the first dimension once.
    base = data if transposed else output
    return 2 * base.num_elements * prod(weight.dims[1:])


def _weight_index(op: OpContext) -> int:
    return 1 if len(op.inputs) > 1 else 0


def _is_depthwise(op: OpContext) -> bool:
    groups = int(op.op.attr("group", 1))
    data = op.inputs[0] if op.inputs else None
    if data is None or len(data.dims) < 2 or data.dims[1] != groups:
        return False
    # One channel in and out is a shard of one: it costs like its whole.
    weight = op.inputs[_weight_index(op)]
    return groups > 1 or (weight is not None and bool(weight.dims) and weight.dims[0] == 1)


def _matmul(op: OpContext) -> int:
    first = op.inputs[0] if op.inputs else None
    output = op.outputs[0] if op.outputs else None
    if first is None or output is None or not first.dims:
        return 0
    transposed = bool(op.op.attr("transA", 0))
    return 2 * output.num_elements * first.dims[-2 if transposed and len(first.dims) > 1 else -1]


def _einsum(op: OpContext) -> int:
    """Every combination of all labels is one multiply-add: naive, as ONNX Runtime pairs operands without reordering."""
    left = str(op.op.attr("equation", "")).split("->")[0].replace(" ", "")
    sizes: dict[str, int] = {}
    batch = 1
    for term, info in zip(left.split(","), op.inputs, strict=False):
        if info is None:
            continue
        labels = term.replace("...", "")
        spare = len(info.dims) - len(labels)
        at = term.find("...")
        dims = info.dims
        if at >= 0 and spare >= 0:
            batch = max(batch, prod(dims[at : at + spare]))
            dims = dims[:at] + dims[at + spare :]
        for label, size in zip(labels, dims, strict=False):
            sizes[label] = max(sizes.get(label, 1), size)
    return (2 if len(op.inputs) > 1 else 1) * batch * prod(sizes.values())


def _attention(op: OpContext) -> int:
    """Scores and weighted values: 2 products of queries x keys x width, over batch and heads."""
    query, key = _at(op.inputs, 0), _at(op.inputs, 1)
    if query is None or not query.dims:
        return 0
    keys = key.dims[-2] if key is not None and len(key.dims) > 2 else query.dims[-2]
    flops = 4 * query.num_elements * keys
    if op.op.domain == "com.microsoft" and op.op.op_type in ("Attention", "QAttention") and key is not None:
        # This one holds the projection to queries, keys and values: inputs (x, [width, 3 width], ...).
        flops = 2 * query.num_elements * key.dims[-1] + 4 * query.num_elements * query.dims[-2]
    return flops


def _rnn(op: OpContext) -> int:
    """Per step, direction and batch entry: gates x hidden x (input + hidden) multiply-adds."""
    data, weights = _at(op.inputs, 0), _at(op.inputs, 1)
    if data is None or weights is None or len(data.dims) != 3 or len(weights.dims) != 3:
        return 0
    directions, rows, width = weights.dims
    hidden = rows // RNN_OPS[op.op.op_type]
    return 2 * data.dims[0] * data.dims[1] * directions * rows * (width + hidden)


def _matmul_nbits(op: OpContext) -> int:
    data = _at(op.inputs, 0)
    return 0 if data is None else 2 * data.num_elements * int(op.op.attr("N", 1))


_SPECIAL: Final[dict[str, Callable[[OpContext], int]]] = {
    "Einsum": _einsum,
    "Attention": _attention,
    "QAttention": _attention,
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
    "MatMulNBits": _matmul_nbits,
    **dict.fromkeys(RNN_OPS, _rnn),
}


def _at(infos: Sequence[TensorInfo | None], position: int) -> TensorInfo | None:
    return infos[position] if position < len(infos) else None


def _elements(infos: Sequence[TensorInfo | None]) -> int:
    return sum(info.num_elements for info in infos if info is not None)


def _largest(infos: Sequence[TensorInfo | None]) -> int:
    return max((info.num_elements for info in infos if info is not None), default=0)
