"""Split rules: pooling.

Batch and channels are free, rows with a halo (``window.py``). Padding that a shard gets, or loses, must not change
what a window yields: a maximum and a p-norm ignore padding; an average that counts it divides by the whole kernel
only while the window lies within the padded input, so such rows are left alone where rounding up passes its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.graph.op_graph import OpContext
from planner.split.common import AxesRule, Rule, input_at, make_axis, output_at, rank_of, shared_dims, size_of
from planner.split.types import AxisUse, Shard, SplitAxis
from planner.split.window import Window, kernel_of, splittable, window_shard, windows

_NAMES: Final = {0: "batch", 1: "channel"}


def _pool_axes(ctx: OpContext) -> tuple[SplitAxis, ...]:
    x, rank = input_at(ctx, 0), rank_of(input_at(ctx, 0))
    # Indices count through the whole input, batch and all: no shard makes them.
    if (
        rank < 3
        or rank_of(output_at(ctx, 0)) != rank
        or len(kernel_of(ctx.op)) != rank - 2
        or output_at(ctx, 1) is not None
    ):
        return ()
    axes = list(shared_dims(ctx, (0, 1), names=_NAMES))
    found = _windows(ctx)
    for i, window in enumerate(found):
        if window is not None and size_of(x, i + 2) and splittable(ctx.op, found, i) and _keeps_divisor(ctx, window):
            axes.append(make_axis(ctx, f"spatial{i}", window.out, {0: window.use(i + 2)}, {0: AxisUse(i + 2)}))
    return tuple(axes)


def _windows(ctx: OpContext) -> tuple[Window | None, ...]:
    return windows(ctx.op, input_at(ctx, 0), output_at(ctx, 0), kernel_of(ctx.op))


def _keeps_divisor(ctx: OpContext, window: Window) -> bool:
    # ONNX Runtime wants pads smaller than the kernel, dilated or not.
    if max(window.pad_begin, window.overhang) >= window.kernel:
        return False
    return not ctx.op.attr("count_include_pad", 0) or window.overhang <= window.pad_end


def _pool_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, plain: Shard) -> Shard:
    if not axis.name.startswith("spatial"):
        return plain
    return window_shard(plain, _windows(ctx), int(axis.name.removeprefix("spatial")), start, stop)


def _global_axes(ctx: OpContext) -> tuple[SplitAxis, ...]:
    return shared_dims(ctx, (0, 1), names=_NAMES)


_POOL: Final = AxesRule(_pool_axes, _pool_shard)
_GLOBAL: Final = AxesRule(_global_axes)

RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "MaxPool"): _POOL,
    ("", "AveragePool"): _POOL,
    ("", "LpPool"): _POOL,
    ("", "GlobalMaxPool"): _GLOBAL,
    ("", "GlobalAveragePool"): _GLOBAL,
    ("", "GlobalLpPool"): _GLOBAL,
}
