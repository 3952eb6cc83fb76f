"""Split rules: normalisations.

Statistics are taken over some dimensions; all others are free, and scales and biases go along where they vary.
Training-mode batch normalisation takes its statistics over the batch and changes state: it stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from planner.graph.op_graph import Attribute, OpContext, TensorInfo
from planner.split.common import (
    AxesRule,
    Rule,
    change,
    input_at,
    make_axis,
    output_at,
    positive_axis,
    rank_of,
    shared_dims,
    size_of,
)
from planner.split.types import AxisUse, Shard, SplitAxis

_GROUP_SCALE_PER_CHANNEL: Final = 21  # opset; before, GroupNormalization scales whole groups


def _spatial(rank: int) -> dict[int, str]:
    return {dim: f"spatial{dim - 2}" for dim in range(2, rank)}


def _batch_normalization(ctx: OpContext) -> tuple[SplitAxis, ...]:
    if any(output_at(ctx, o) is not None for o in range(1, len(ctx.outputs))):
        return ()
    if ctx.op.attr("training_mode", 0) or ctx.op.version < 7:
        return ()
    rank = rank_of(input_at(ctx, 0))
    batch = shared_dims(ctx, (0,), names={0: "batch"})
    if rank < 2 or not ctx.op.attr("spatial", 1):
        return batch
    vectors = {i: AxisUse(0) for i in range(1, 5)}
    channel = make_axis(ctx, "channel", size_of(input_at(ctx, 0), 1), {0: AxisUse(1), **vectors}, {0: AxisUse(1)})
    return (*batch, channel, *shared_dims(ctx, range(2, rank), names=_spatial(rank)))


def _instance_normalization(ctx: OpContext) -> tuple[SplitAxis, ...]:
    inputs = {0: AxisUse(1), 1: AxisUse(0), 2: AxisUse(0)}
    channel = make_axis(ctx, "channel", size_of(input_at(ctx, 0), 1), inputs, {0: AxisUse(1)})
    return (*shared_dims(ctx, (0,), names={0: "batch"}), channel)


def _group_normalization(ctx: OpContext) -> tuple[SplitAxis, ...]:
    groups, channels = ctx.op.attr("num_groups", 0), size_of(input_at(ctx, 0), 1)
    batch = shared_dims(ctx, (0,), names={0: "batch"})
    if groups < 1 or channels % groups:
        return batch
    per_group = AxisUse(1, Fraction(channels, groups))
    scale = AxisUse(0, per_group.scale if ctx.op.version >= _GROUP_SCALE_PER_CHANNEL else Fraction(1))
    return (*batch, make_axis(ctx, "channel", groups, {0: per_group, 1: scale, 2: scale}, {0: per_group}))


def _group_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, plain: Shard) -> Shard:
    if axis.name != "channel":
        return plain
    return change(plain, {"num_groups": Attribute.int(stop - start)})


def _lrn(ctx: OpContext) -> tuple[SplitAxis, ...]:
    rank = rank_of(input_at(ctx, 0))
    return shared_dims(ctx, (dim for dim in range(rank) if dim != 1), names={0: "batch", **_spatial(rank)})


def _mean_variance(ctx: OpContext) -> tuple[SplitAxis, ...]:
    rank = rank_of(input_at(ctx, 0))
    reduced = [positive_axis(axis, rank) for axis in ctx.op.attr("axes") or (0, 2, 3)]
    return shared_dims(ctx, (dim for dim in range(rank) if dim not in reduced))


def _aligned_right(info: TensorInfo | None, dim: int, rank: int) -> AxisUse | None:
    """Where dimension ``dim`` of a rank-``rank`` tensor shows in one that is broadcast to it."""
    own = dim - (rank - rank_of(info))
    return AxisUse(own) if own >= 0 and size_of(info, own) > 1 else None


def _rows(ctx: OpContext, dims: Iterable[int], beside: Iterable[int]) -> tuple[SplitAxis, ...]:
    """Axes before the normalised ones, with the inputs ``beside`` the first broadcast to it."""
    x = input_at(ctx, 0)
    rank, beside = rank_of(x), tuple(beside)
    axes = []
    for dim in dims:
        inputs: dict[int, AxisUse | None] = {i: _aligned_right(input_at(ctx, i), dim, rank) for i in beside}
        outputs: dict[int, AxisUse | None] = {o: AxisUse(dim) for o in range(len(ctx.outputs))}
        name = "batch" if dim == 0 else f"dim{dim}"
        axes.append(make_axis(ctx, name, size_of(x, dim), {**inputs, 0: AxisUse(dim)}, outputs))
    return tuple(axes)


def _layer_normalization(ctx: OpContext) -> tuple[SplitAxis, ...]:
    return _rows(ctx, range(positive_axis(ctx.op.attr("axis", -1), rank_of(input_at(ctx, 0)))), (1, 2))


def _skip_layer_normalization(ctx: OpContext) -> tuple[SplitAxis, ...]:
    return _rows(ctx, range(rank_of(input_at(ctx, 0)) - 1), range(1, len(ctx.inputs)))


_LAYER: Final = AxesRule(_layer_normalization)
_SKIP_LAYER: Final = AxesRule(_skip_layer_normalization)

RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "BatchNormalization"): AxesRule(_batch_normalization),
    ("", "InstanceNormalization"): AxesRule(_instance_normalization),
    ("", "GroupNormalization"): AxesRule(_group_normalization, _group_shard),
    ("", "LRN"): AxesRule(_lrn),
    ("", "MeanVarianceNormalization"): AxesRule(_mean_variance),
    ("", "LayerNormalization"): _LAYER,
    ("", "RMSNormalization"): _LAYER,
    # ONNX Runtime keeps this one of its own in the ONNX domain; some exporters write com.microsoft.
    ("", "SimplifiedLayerNormalization"): _LAYER,
    ("com.microsoft", "SimplifiedLayerNormalization"): _LAYER,
    ("com.microsoft", "SkipLayerNormalization"): _SKIP_LAYER,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _SKIP_LAYER,
}
