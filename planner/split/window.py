"""Sliding windows: which rows of its input a shard of a convolution or pooling reads, and what it pads.

Output row ``o`` reads input rows ``o*stride - pad_begin + k*dilation`` for ``k`` in ``[0, kernel)``. A shard of rows
``[start, stop)`` reads from the first row of its first window to the last row of its last one; what of this lies
outside the input is its own padding. Neighbouring shards therefore read overlapping rows (the halo).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from planner.graph.op_graph import Attribute, Op, TensorInfo
from planner.split.common import change, shape_of, size_of
from planner.split.types import AxisUse, Region, Shard


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial dimension of a sliding-window operator.

    Attributes:
        size: input rows.
        out: output rows.
        kernel: taps.
        stride: input rows between windows.
        dilation: input rows between taps.
        pad_begin: rows of padding in front.
        pad_end: rows of padding behind, as the operator states it.
        ceil: whether the number of output rows is rounded up.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    pad_begin: int
    pad_end: int
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Input rows from the first to the last tap of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def aligned(self) -> bool:
        """Whether windows tile the input: rows ``[start, stop)`` read exactly ``[start*stride, stop*stride)``."""
        fits = self.reach == self.stride or (self.reach < self.stride and not self.ceil)
        return fits and self.pad_begin == 0 and self.pad_end == 0 and self.size == self.out * self.stride

    @property
    def overhang(self) -> int:
        """Rows by which the last window passes the end of the input; negative if it does not."""
        return (self.out - 1) * self.stride - self.pad_begin + self.reach - self.size

    @property
    def splittable(self) -> bool:
        """Whether every range of output rows is a window operator of its own on a non-empty part of the input.

        Not with negative padding, and not if some window lies wholly in the padding.
        """
        if self.size < 1 or min(self.pad_begin, self.pad_end) < 0:
            return False
        return self.pad_begin < self.reach and self.overhang < self.reach

    def reads(self, start: int, stop: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Input rows that output rows ``[start, stop)`` read, and the padding in front and behind."""
        if self.aligned:
            return (start * self.stride, stop * self.stride), (0, 0)
        first = start * self.stride - self.pad_begin
        last = (stop - 1) * self.stride - self.pad_begin + self.reach
        return (max(first, 0), min(last, self.size)), (max(-first, 0), max(last - self.size, 0))

    def use(self, axis: int) -> AxisUse:
        """Where an axis of output rows shows in the input."""
        return AxisUse(axis, Fraction(self.stride), self.aligned)


def windows(
    op: Op, x: TensorInfo | None, y: TensorInfo | None, kernel: Sequence[int | None]
) -> tuple[Window | None, ...]:
    """Windows of all spatial dimensions; None where a size is not known or the sizes contradict each other.

    Args:
        op: a convolution or pooling.
        x: its input, ``[N, C, ...]``.
        y: its output, ``[N, M, ...]``.
        kernel: taps of each spatial dimension.
    """
    rank = len(kernel)
    strides = op.attr("strides") or (1,) * rank
    dilations = op.attr("dilations") or (1,) * rank
    pads = op.attr("pads") or (0,) * (2 * rank)
    auto = op.attr("auto_pad", "NOTSET")
    # Also with automatic padding: ONNX Runtime rounds up with VALID, and SAME leaves nothing to round.
    ceil = bool(op.attr("ceil_mode", 0))
    found: list[Window | None] = []
    for i, taps in enumerate(kernel):
        size, out = size_of(x, i + 2), size_of(y, i + 2)
        if not taps or not size or not out:
            found.append(None)
            continue
        begin, end = pads[i], pads[i + rank]
        if auto not in ("NOTSET", ""):
            begin, end = _auto_pads(op, size, taps, dilations[i], strides[i])
        window = Window(size, out, taps, strides[i], dilations[i], begin, end, ceil)
        found.append(window if _consistent(window) else None)
    return tuple(found)


def _auto_pads(op: Op, size: int, taps: int, dilation: int, stride: int) -> tuple[int, int]:
    """Automatic padding in front and behind, as ONNX Runtime has it.

    It pads a pooling's kernel as if it were not dilated, and by less than nothing where windows leave rows out.
    """
    auto, pools = op.attr("auto_pad"), op.op_type.endswith("Pool")
    if auto == "VALID":
        return 0, 0
    reach = taps if pools else (taps - 1) * dilation + 1
    total = (-(-size // stride) - 1) * stride + reach - size
    if total < 0 and not pools:
        return 0, 0
    front = int((total + (auto == "SAME_LOWER")) / 2)
    # No window passes the end where there is nothing to pad, unless rounding up adds one.
    return front, total - front if op.attr("ceil_mode", 0) else max(total - front, 0)


def _consistent(window: Window) -> bool:
    """Whether the number of output rows is the one that the formula gives; rounding up may drop a window."""
    span = window.size + window.pad_begin + window.pad_end - window.reach
    floor = span // window.stride + 1
    return window.out == floor or (window.ceil and window.out == -(-span // window.stride) + 1)


def kernel_of(op: Op, weight: TensorInfo | None = None) -> tuple[int | None, ...]:
    """Taps of each spatial dimension: ``kernel_shape``, else those of the weight ``[M, C, ...]``."""
    stated = op.attr("kernel_shape")
    return tuple(stated) if stated else shape_of(weight)[2:]


def splittable(op: Op, found: Sequence[Window | None], i: int) -> bool:
    """Whether spatial dimension ``i`` can be split.

    Automatic padding becomes explicit padding in a shard, for which all dimensions have to be known.
    """
    window = found[i]
    if window is None or not window.splittable:
        return False
    return op.attr("auto_pad", "NOTSET") in ("NOTSET", "") or None not in found


def window_shard(plain: Shard, found: Sequence[Window | None], i: int, start: int, stop: int, x: int = 0) -> Shard:
    """The shard of rows ``[start, stop)`` of spatial dimension ``i``, with its own input rows and padding."""
    window = found[i]
    if window is None:
        raise ValueError(f"spatial dimension {i} is not known")
    rows, padding = window.reads(start, stop)
    stated = plain.attributes.get("pads")
    rank = len(found)
    pads = list(stated.value) if stated is not None else [0] * (2 * rank)
    auto = plain.attributes.get("auto_pad")
    if auto is not None and auto.value not in ("NOTSET", ""):
        known = [other for other in found if other is not None]
        pads = [other.pad_begin for other in known] + [other.pad_end for other in known]
    pads[i], pads[i + rank] = padding
    return change(plain, {"pads": Attribute.ints(pads)}, {x: Region.one(i + 2, *rows)}, without=("auto_pad",))
