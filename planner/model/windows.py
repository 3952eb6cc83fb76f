"""Output sizes of pooling and transposed convolution, as ONNX Runtime has them.

ONNX's own inference differs in corners, and its sizes pass for certain:

* With ``ceil_mode`` the last window may start in the padding behind the input; ONNX Runtime drops it.
* ``SAME_*`` pads for the kernel as if it were not dilated, and the output gets smaller.
* A transposed convolution with ``SAME_*`` makes ``size * stride`` rows, ``output_padding`` or not, and fewer if that
  is all there are.
* An ``output_shape`` smaller than the input ends ONNX's inference halfway, with too few dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import onnx

from planner.graph.op_graph import Op

Sizes = tuple["int | None", ...]

_SAME: Final = ("SAME_UPPER", "SAME_LOWER")


def corrected(op: Op, inputs: Sequence[onnx.TypeProto], found: dict[str, onnx.TypeProto]) -> dict[str, onnx.TypeProto]:
    """The inferred types with the spatial sizes that ONNX Runtime gives.

    Args:
        op: any operator.
        inputs: types of its inputs.
        found: types of its outputs.
    """
    rule = _RULES.get(op.op_type) if not op.domain else None
    shapes = [_spatial(proto) for proto in inputs]
    sizes = rule(op, shapes) if rule is not None and shapes and shapes[0] else None
    return found if sizes is None else {name: _with_sizes(proto, sizes) for name, proto in found.items()}


def _spatial(proto: onnx.TypeProto) -> Sizes:
    dims = proto.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims[2:])


def _with_sizes(proto: onnx.TypeProto, sizes: Sizes) -> onnx.TypeProto:
    if len(proto.tensor_type.shape.dim) < 2:
        return proto
    changed = onnx.TypeProto()
    changed.CopyFrom(proto)
    del changed.tensor_type.shape.dim[2:]
    for size in sizes:
        dim = changed.tensor_type.shape.dim.add()
        if size is not None and size >= 0:  # ONNX Runtime refuses the others
            dim.dim_value = size
    return changed


def _pooled(op: Op, shapes: Sequence[Sizes]) -> Sizes | None:
    sizes = shapes[0]
    kernel, rank = op.attr("kernel_shape", ()), len(sizes)
    strides, dilations = op.attr("strides") or (1,) * rank, op.attr("dilations") or (1,) * rank
    pads = op.attr("pads") or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank or min(strides) < 1:
        return None
    return tuple(
        None if size is None else _windows(op, size, kernel[i], strides[i], dilations[i], (pads[i], pads[i + rank]))
        for i, size in enumerate(sizes)
    )


def _windows(op: Op, size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    """Number of windows along one dimension."""
    auto = op.attr("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = (0, 0)
    elif auto in _SAME:
        # Less than nothing where windows leave rows out; halves are rounded towards zero.
        total = (-(-size // stride) - 1) * stride + kernel - size
        front = int((total + (auto == "SAME_LOWER")) / 2)
        pads = (front, total - front)
    span = size + sum(pads) - dilation * (kernel - 1) - 1
    if not op.attr("ceil_mode", 0):
        return int(span / stride) + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + pads[0] else count


def _transposed(op: Op, shapes: Sequence[Sizes]) -> Sizes | None:
    sizes, rank = shapes[0], len(shapes[0])
    wanted: Sequence[int] = op.attr("output_shape") or ()
    if len(wanted) >= rank:
        return tuple(wanted[-rank:])
    if op.attr("auto_pad", "NOTSET") not in _SAME:
        return None
    kernel = op.attr("kernel_shape") or (shapes[1] if len(shapes) > 1 else ())
    strides, dilations = op.attr("strides") or (1,) * rank, op.attr("dilations") or (1,) * rank
    extra = op.attr("output_padding") or (0,) * rank
    if not len(kernel) == len(strides) == len(dilations) == len(extra) == rank:
        return None
    return tuple(
        None if size is None or taps is None else min(size * stride, (size - 1) * stride + (taps - 1) * gap + 1 + more)
        for size, taps, stride, gap, more in zip(sizes, kernel, strides, dilations, extra, strict=True)
    )


_RULES: Final[dict[str, Callable[[Op, Sequence[Sizes]], Sizes | None]]] = {
    "AveragePool": _pooled,
    "ConvTranspose": _transposed,
    "LpPool": _pooled,
    "MaxPool": _pooled,
}
