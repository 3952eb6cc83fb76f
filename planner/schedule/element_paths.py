"""The longest chain of shards that any split leaves, on the average over the elements of a tensor.

From an element of an output, drawn evenly, a path leads backwards through elements that it was computed from: at each
operator to one input, and there to an element drawn such that, again, every element of that input is equally likely.
The shards that hold the elements of a path wait for each other. A shard is met as often as its share of the operator's
elements, so on the average over paths an operator in ``s`` parts contributes at least a ``1/s`` of its arithmetic.

How far back evenness carries depends on the operator. ``_Heads`` has, for each value, the least time at which ...

- any shard of it is there (``every``): all that is left behind an operator which takes a part of its input;
- an evenly drawn element is there (``even``);
- an element is there that is drawn evenly but for its channel, which the reader is free to choose (``free``): a
  convolution that is not grouped reads all channels of a place, so behind a Concat of channels it waits for the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from planner.cost.flops import GLOBAL_POOL_OPS, RNN_OPS, family
from planner.graph.op_graph import Op, OpContext, OpGraph, TensorInfo

# A shard of these may need nothing of some input, or of any.
_PARTIAL: Final = frozenset(
    (
        "CenterCropPad", "Col2Im", "Concat", "ConvTranspose", "GridSample", "MaxUnpool", "Pad", "Resize", "Scatter",
        "ScatterElements", "ScatterND", "TensorScatter", "Upsample",
    )
)  # fmt: skip
# Every element of the output is one of the first input's, and the other way round.
_RENAMED: Final = frozenset(("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"))
_WINDOWED: Final = frozenset(("Conv", "MaxPool", "AveragePool", "LpPool"))
_PRODUCTS: Final = frozenset(("MatMul", "Gemm"))
_CHANNEL: Final = 1


class Own(NamedTuple):
    """What an operator adds to a path, in any unit.

    Attributes:
        even: where its elements are met evenly.
        every: by any of its shards.
    """

    even: int
    every: int


class _Heads(NamedTuple):
    """Least times at which a value is there; see the module. Rising from the first to the last."""

    every: int
    even: int
    free: int


_START: Final = _Heads(0, 0, 0)


def longest_path(graph: OpGraph, own: Mapping[str, Own]) -> int:
    """The longest path to any operator's end.

    Args:
        graph: operators, not split.
        own: by operator; operators without an entry add nothing.
    """
    heads: dict[str, _Heads] = {}
    longest = 0
    for op in graph.ops:
        context = graph.context(op)
        before = _before(op, context, heads, graph)
        added = own.get(op.name, Own(0, 0))
        every = before.every + added.every
        even = max(before.even + added.even, every)
        # Behind a free choice of the channel only those that choose it see their elements evenly.
        after = _Heads(every, even, max(before.free + added.every, even))
        longest = max(longest, even)
        for name in op.writes:
            heads[name] = after
    return longest


def _before(op: Op, context: OpContext, heads: Mapping[str, _Heads], graph: OpGraph) -> _Heads:
    """When the inputs are there, as an element of the output sees them."""
    read = [heads.get(name, _START) for name in op.reads if name not in graph.weights]
    every = max((head.every for head in read), default=0)
    kind, data = op.op_type, context.inputs[0] if context.inputs else None
    first = heads.get(op.inputs[0], _START) if op.inputs else _START
    if kind == "Concat":
        return _behind_concat(op, context, heads, min((head.every for head in read), default=0))
    if kind in _PARTIAL or (kind in _WINDOWED and _has_empty_windows(context)):
        return _START
    if op.domain or op.captures:
        return _Heads(every, every, every)
    if kind in _RENAMED:
        return _Heads(every, max(first.even, every), max(first.even, every))
    if kind in _WINDOWED and data is not None and _covers(context):
        if kind == "Conv" and int(op.attr("group", 1)) == 1:
            even = max(first.free, every)
            return _Heads(every, even, even)
        return _Heads(every, max(first.even, every), max(first.free, every))
    if kind in GLOBAL_POOL_OPS or kind in RNN_OPS:
        return _Heads(every, max(first.even, every), max(first.free, every) if kind in GLOBAL_POOL_OPS else every)
    if kind in _PRODUCTS or _is_elementwise(context):
        even = max([every, *(head.even for head in read)])
        free = max([even, *(head.free for head in read)]) if kind not in _PRODUCTS else even
        return _Heads(every, even, free)
    return _Heads(every, every, every)


def _behind_concat(op: Op, context: OpContext, heads: Mapping[str, _Heads], every: int) -> _Heads:
    """An element of the output is one of some input's, as likely as that is large."""
    sizes = [info.num_elements if info is not None else 0 for info in context.inputs]
    found = [heads.get(name, _START) for name in op.inputs]
    even = sum(size * head.even for size, head in zip(sizes, found, strict=True)) // max(sum(sizes), 1)
    output = context.outputs[0]
    axis = int(op.attr("axis", 0))
    axis += len(output.dims) if axis < 0 and output is not None else 0
    free = max((head.free for head in found), default=0) if axis == _CHANNEL else even
    return _Heads(every, max(even, every), max(even, every, free))


def _is_elementwise(context: OpContext) -> bool:
    """Whether every element of the output is computed from that of each input in its place, and perhaps from others."""
    if context.op.op_type != "Where" and family(context) not in ("elementwise", "normalization"):
        return False
    output = context.outputs[0] if context.outputs else None
    data = [i.dims for i, own in zip(context.inputs, context.weights, strict=True) if i is not None and not own]
    if output is None or not data:
        return False
    if family(context) == "normalization":
        return data[0] == output.dims
    try:
        return np.broadcast_shapes(*data) == tuple(output.dims) or all(d == output.dims for d in data)
    except ValueError:
        return False


class _Window(NamedTuple):
    """How a windowed operator reads one dimension."""

    extent: int
    places: int
    kernel: int
    stride: int
    dilation: int
    pad: int


def _windows(context: OpContext) -> list[_Window] | None:
    """One entry a spatial dimension; None if they are not known."""
    op, data, output = context.op, context.inputs[0], context.outputs[0]
    if data is None or output is None or len(data.dims) != len(output.dims) or len(data.dims) < 3:
        return None
    rank = len(data.dims) - 2
    weight: TensorInfo | None = context.inputs[1] if op.op_type == "Conv" else None
    kernel = tuple(op.attr("kernel_shape", weight.dims[2:] if weight is not None else ()))
    strides, dilations = tuple(op.attr("strides", (1,) * rank)), tuple(op.attr("dilations", (1,) * rank))
    pads, auto = tuple(op.attr("pads", (0,) * (2 * rank))), str(op.attr("auto_pad", "NOTSET"))
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank or 0 in kernel:
        return None
    found = []
    for d in range(rank):
        extent, places = data.dims[2 + d], output.dims[2 + d]
        # What the last window reads beyond the input is padded on both sides.
        spare = max((places - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - extent, 0)
        same = {"SAME_UPPER": spare // 2, "SAME_LOWER": spare - spare // 2, "VALID": 0}
        found.append(_Window(extent, places, kernel[d], strides[d], dilations[d], same.get(auto, pads[d])))
    return found


def _has_empty_windows(context: OpContext) -> bool:
    """Whether a shard may have nothing but padding to read."""
    windows = _windows(context)
    return windows is None or any(w.pad > (w.kernel - 1) * w.dilation or w.stride > w.extent for w in windows)


def _covers(context: OpContext) -> bool:
    """Whether windows reach, from each place of the output, the places of the input in the same relative position."""
    windows = _windows(context)
    return windows is not None and all(map(_meets, windows))


def _meets(window: _Window) -> bool:
    """Whether for every share ``u`` of the way the window of place ``u * places`` has ``u * extent`` in it."""
    extent, places = window.extent, window.places
    for at in range(extent):
        for place in range(at * places // extent, -(-(at + 1) * places // extent)):
            offset = at - (place * window.stride - window.pad)
            if offset < 0 or offset % window.dilation or offset // window.dilation >= window.kernel:
                return False
    return True
