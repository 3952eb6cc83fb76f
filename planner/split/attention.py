"""Split rules for fused attention: the batch, and heads.

Heads never meet inside attention, so they are split as Megatron does (Shoeybi et al. 2019, section 3). Where several
query heads share a key and value head, the unit is that group (Ainslie et al. 2023). Tensors of rank 3 hold all heads
side by side in the last dimension; merged ``[Q|K|V]`` weights and inputs are cut in three places at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from planner.graph.op_graph import Attribute, OpContext, TensorInfo
from planner.split.common import (
    AxesRule,
    Rule,
    change,
    input_at,
    output_at,
    rank_of,
    shape_of,
    size_of,
)
from planner.split.regions import MaybeUse, broadcast_use, known_axis, ranges_of, single_element, use
from planner.split.rotary import MICROSOFT_ROTARY, ONNX_ROTARY
from planner.split.types import InputPart, Shard, SplitAxis


def _per_head(info: TensorInfo | None, axis: int, units: int) -> MaybeUse:
    """Where units of heads show in a dimension that holds them all; False if it is no multiple."""
    size = size_of(info, axis)
    if info is None:
        return None
    return use(axis, size // units) if size and units and size % units == 0 else False


def _rows(info: TensorInfo | None, batch: int, shared: bool = False) -> MaybeUse:
    """Where the batch shows in the first dimension; ``shared``: size 1 serves the whole batch."""
    if info is None or (shared and size_of(info, 0) == 1):
        return None
    return use(0) if size_of(info, 0) == batch else False


def _merged(sizes: Iterable[int], units: int) -> tuple[tuple[int, int], ...]:
    """``(elements, elements a unit)`` of Q, K and V that are merged in one dimension."""
    return tuple((size, size // units) for size in sizes)


# ONNX: Q K V attn_mask past_key past_value nonpad_kv_seqlen -> Y present_key present_value qk_matmul_output


def _onnx_heads(ctx: OpContext) -> tuple[int, int]:
    """Numbers of query heads and of key and value heads; zeros where they are not known."""
    query, key = input_at(ctx, 0), input_at(ctx, 1)
    if rank_of(query) == 4:
        return size_of(query, 1), size_of(key, 1)
    return ctx.op.attr("q_num_heads", 0), ctx.op.attr("kv_num_heads", 0)


def _onnx_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    query, mask = input_at(ctx, 0), input_at(ctx, 3)
    batch = size_of(query, 0)
    inputs: dict[int, MaybeUse] = {i: _rows(input_at(ctx, i), batch) for i in (0, 1, 2, 4, 5, 6)}
    inputs[3] = broadcast_use(mask, 0, 4, batch)
    yield from known_axis(ctx, "batch", batch, inputs, {o: use(0) for o in range(4)})
    heads, kv_heads = _onnx_heads(ctx)
    if not kv_heads or heads % kv_heads:
        return
    # One key and value head for all: every shard reads it. The caches would come out of every shard, so not with them.
    shared = kv_heads == 1 and output_at(ctx, 1) is None and output_at(ctx, 2) is None
    units = heads if shared else kv_heads
    axis = 1 if rank_of(query) == 4 else 2
    inputs = {0: _per_head(query, axis, units), 3: broadcast_use(mask, 1, 4, units, heads // units)}
    if not shared:
        inputs.update({i: _per_head(input_at(ctx, i), axis, units) for i in (1, 2)})
        inputs.update({i: _per_head(input_at(ctx, i), 1, units) for i in (4, 5)})
    outputs: dict[int, MaybeUse] = {
        0: _per_head(output_at(ctx, 0), axis, units),
        3: _per_head(output_at(ctx, 3), 1, units),
    }
    if not shared:
        outputs.update({o: _per_head(output_at(ctx, o), 1, units) for o in (1, 2)})
    yield from known_axis(ctx, "heads", units, inputs, outputs)


def _onnx_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if axis.name != "heads" or "q_num_heads" not in shard.attributes:
        return shard
    heads, kv_heads = _onnx_heads(ctx)
    changed = {"q_num_heads": Attribute.int(heads // axis.extent * (stop - start))}
    if axis.extent == kv_heads:
        changed["kv_num_heads"] = Attribute.int(stop - start)
    return change(shard, changed)


# com.microsoft Attention: input weights bias mask_index past attention_bias past_sequence_length -> output present


def _mask_use(mask: TensorInfo | None, batch: int) -> MaybeUse:
    """The forms of a padding mask: per batch entry, or of rank 1 ends, or ends and starts, of the entries."""
    if mask is None:
        return None
    size = size_of(mask, 0)
    if rank_of(mask) == 1:
        return use(0) if size == batch else use(0, exact=False) if size == 2 * batch else False
    return _rows(mask, batch, shared=True)


def _mask_part(ctx: OpContext, index: int, axis: SplitAxis, start: int, stop: int) -> dict[int, InputPart]:
    where = axis.inputs[index] if index < len(axis.inputs) else None
    if axis.name != "batch" or where is None or where.exact:
        return {}
    return {index: ranges_of(0, start, stop, [(axis.extent, 1), (axis.extent, 1)])}


def _qkv_sizes(ctx: OpContext) -> tuple[int, ...] | None:
    """Widths of Q, K and V in the merged weights, if each holds whole heads."""
    merged, heads = size_of(input_at(ctx, 1), 1), ctx.op.attr("num_heads", 0)
    sizes = tuple(ctx.op.attr("qkv_hidden_sizes") or (merged // 3,) * 3)
    fits = heads > 0 and sum(sizes) == merged and all(size > 0 and size % heads == 0 for size in sizes)
    return sizes if fits else None


def _merged_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    batch, heads = size_of(input_at(ctx, 0), 0), ctx.op.attr("num_heads", 0)
    past, bias = input_at(ctx, 4), input_at(ctx, 5)
    inputs: dict[int, MaybeUse] = {
        0: use(0),
        3: _mask_use(input_at(ctx, 3), batch),
        4: _per_head(past, 1, batch),
        5: broadcast_use(bias, 0, 4, batch),
    }
    yield from known_axis(ctx, "batch", batch, inputs, {0: use(0), 1: use(1)})
    if _qkv_sizes(ctx) is None:
        return
    inputs = {
        1: use(1, exact=False),
        2: use(0, exact=False),
        4: _per_head(past, 2, heads),
        5: broadcast_use(bias, 1, 4, heads),
    }
    outputs: dict[int, MaybeUse] = {
        0: _per_head(output_at(ctx, 0), 2, heads),
        1: _per_head(output_at(ctx, 1), 2, heads),
    }
    yield from known_axis(ctx, "heads", heads, inputs, outputs)


def _merged_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    sizes = _qkv_sizes(ctx)
    if axis.name == "batch" or sizes is None:
        return change(shard, inputs=_mask_part(ctx, 3, axis, start, stop))
    parts = _merged(sizes, axis.extent)
    changed = {"num_heads": Attribute.int(stop - start)}
    if ctx.op.attr("qkv_hidden_sizes"):
        changed["qkv_hidden_sizes"] = Attribute.ints([unit * (stop - start) for _, unit in parts])
    cut: dict[int, InputPart] = {1: ranges_of(1, start, stop, parts)}
    if input_at(ctx, 2) is not None:
        cut[2] = ranges_of(0, start, stop, parts)
    return change(shard, changed, cut)


# MultiHeadAttention: query key value bias key_padding_mask attention_bias past_key past_value
# past_sequence_length cache_indirection -> output present_key present_value qk


def _multi_head_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    if input_at(ctx, 8) is not None or input_at(ctx, 9) is not None:
        # Shared cache buffers and beams: the cache's first dimension is not the batch alone.
        return
    batch, heads = size_of(input_at(ctx, 0), 0), ctx.op.attr("num_heads", 0)
    bias = input_at(ctx, 5)
    inputs: dict[int, MaybeUse] = {i: _rows(input_at(ctx, i), batch) for i in (0, 1, 2, 6, 7)}
    inputs.update({4: _mask_use(input_at(ctx, 4), batch), 5: broadcast_use(bias, 0, 4, batch)})
    yield from known_axis(ctx, "batch", batch, inputs, {o: use(0) for o in range(4)})
    # Rank 3: heads side by side at the end. Rank 5, packed: (batch, length, heads, ...). Rank 4: (batch, heads, ...).
    inputs = {
        i: _per_head(input_at(ctx, i), 1 if rank_of(input_at(ctx, i)) == 4 or i > 2 else 2, heads)
        for i in (0, 1, 2, 6, 7)
    }
    inputs[5] = broadcast_use(bias, 1, 4, heads)
    if input_at(ctx, 3) is not None:
        inputs[3] = use(0, exact=False) if _multi_head_bias(ctx) else False
    outputs: dict[int, MaybeUse] = {o: _per_head(output_at(ctx, o), 1 if o else 2, heads) for o in range(4)}
    yield from known_axis(ctx, "heads", heads, inputs, outputs)


def _multi_head_bias(ctx: OpContext) -> tuple[tuple[int, int], ...] | None:
    """The three parts of the bias: as wide as Q, K and V."""
    heads, query, total = ctx.op.attr("num_heads", 0), input_at(ctx, 0), size_of(input_at(ctx, 3), 0)
    value = size_of(output_at(ctx, 0), 2)
    width = size_of(query, 2) if rank_of(query) == 3 else value
    fits = heads > 0 and 2 * width + value == total and width % heads == 0 and value % heads == 0
    return _merged((width, width, value), heads) if fits else None


def _multi_head_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if axis.name == "batch":
        return change(shard, inputs=_mask_part(ctx, 4, axis, start, stop))
    parts = _multi_head_bias(ctx)
    cut: dict[int, InputPart] = {}
    if input_at(ctx, 3) is not None and parts is not None:
        cut[3] = ranges_of(0, start, stop, parts)
    return change(shard, {"num_heads": Attribute.int(stop - start)}, cut)


# GroupQueryAttention: query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache
# position_ids attention_bias head_sink k_scale v_scale q_norm k_norm query_seqlens -> output present_key
# present_value output_qk


def _grouped_axes(ctx: OpContext) -> Iterable[SplitAxis]:
    query, key, positions = input_at(ctx, 0), input_at(ctx, 1), input_at(ctx, 9)
    batch = size_of(query, 0)
    inputs: dict[int, MaybeUse] = {i: _rows(input_at(ctx, i), batch) for i in (0, 1, 2, 3, 4, 5, 16)}
    # A prompt takes the positions of the first entry for all: a shard would take those of its own first one.
    inputs[9] = False if positions is not None and size_of(query, 1) != 1 else _rows(positions, batch)
    inputs[10] = broadcast_use(input_at(ctx, 10), 0, 4, batch)
    yield from known_axis(ctx, "batch", batch, inputs, {o: use(0) for o in range(4)})
    heads, groups = ctx.op.attr("num_heads", 0), ctx.op.attr("kv_num_heads", 0)
    scales = single_element(input_at(ctx, 12)) and single_element(input_at(ctx, 13))
    if not groups or heads % groups or not scales:
        return
    inputs = {i: _per_head(input_at(ctx, i), 1, groups) for i in (3, 4)}
    inputs.update({i: _per_head(input_at(ctx, i), 2, groups) for i in (1, 2)})
    inputs[0] = _per_head(query, 2, groups)
    if key is None:
        inputs[0] = use(2, exact=False) if size_of(query, 2) % (heads + 2 * groups) == 0 else False
    inputs[10] = broadcast_use(input_at(ctx, 10), 1, 4, groups, heads // groups)
    inputs[11] = _per_head(input_at(ctx, 11), 0, groups)
    outputs: dict[int, MaybeUse] = {o: _per_head(output_at(ctx, o), 1 if o else 2, groups) for o in range(4)}
    yield from known_axis(ctx, "heads", groups, inputs, outputs)


def _grouped_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if axis.name == "batch":
        return shard
    heads, groups = ctx.op.attr("num_heads", 0), axis.extent
    cut: dict[int, InputPart] = {}
    if input_at(ctx, 1) is None:
        size = (shape_of(input_at(ctx, 0))[2] or 0) // (heads + 2 * groups)
        cut[0] = ranges_of(2, start, stop, _merged((heads * size, groups * size, groups * size), groups))
    changed = {"num_heads": heads // groups * (stop - start), "kv_num_heads": stop - start}
    return change(shard, {name: Attribute.int(value) for name, value in changed.items()}, cut)


RULES: Final[Mapping[tuple[str, str], Rule]] = {
    ("", "Attention"): AxesRule(_onnx_axes, _onnx_shard),
    ("", "RotaryEmbedding"): ONNX_ROTARY,
    ("com.microsoft", "Attention"): AxesRule(_merged_axes, _merged_shard),
    ("com.microsoft", "GroupQueryAttention"): AxesRule(_grouped_axes, _grouped_shard),
    ("com.microsoft", "MultiHeadAttention"): AxesRule(_multi_head_axes, _multi_head_shard),
    ("com.microsoft", "RotaryEmbedding"): MICROSOFT_ROTARY,
}
