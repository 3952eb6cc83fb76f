"""Rules of fused attention against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Array, Op, OpContext, TensorInfo
from planner.split.table import shard_op, split_axes
from planner.split.types import Region
from tests.split.harness import attributes_of, check_split, floats, ints

_MS = "com.microsoft"
_B, _S, _D = 3, 4, 8


def _past(heads: int, length: int, seed: int, batch: int = _B) -> Array:
    return floats((batch, heads, length, _D), seed)


@given(
    groups=st.sampled_from([(4, 4), (4, 2), (6, 3)]),
    rank=st.sampled_from([3, 4]),
    mask=st.sampled_from([None, (_S, 7), (1, 1, _S, 7), (_B, 1, _S, 7), (1, 0, _S, 7), (_B, 0, _S, 7), (0, _S, 7)]),
    boolean=st.booleans(),
    past=st.booleans(),
    causal=st.booleans(),
)
@settings(max_examples=18, derandomize=True, deadline=None)
def test_onnx_attention(
    groups: tuple[int, int], rank: int, mask: tuple[int, ...] | None, boolean: bool, past: bool, causal: bool
) -> None:
    heads, kv_heads = groups
    length = 4 if past else 7

    def tensor(count: int, tokens: int, seed: int) -> Array:
        return floats((_B, count, tokens, _D) if rank == 4 else (_B, tokens, count * _D), seed)

    values: list[Array | None] = [tensor(heads, _S, 1), tensor(kv_heads, length, 2), tensor(kv_heads, length, 3)]
    if mask is not None:
        shape = tuple(size or heads for size in mask)
        bits = ints(shape, 0, 4) > 0
        bits[..., 0] = True
        values.append(bits if boolean else floats(shape, 4))
    elif past:
        values.append(None)
    if past:
        values += [_past(kv_heads, 3, 5), _past(kv_heads, 3, 6)]
    attributes = {"is_causal": int(causal)}
    if rank == 3:
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    check_split(
        "Attention", values, attributes, opset=23, outputs=3 if past else 1, exactly=["batch", "heads"], twice=False
    )


@pytest.mark.parametrize("rank", [3, 4])
def test_queries_of_one_key_head_can_be_told_apart(rank: int) -> None:
    def tensor(count: int, seed: int) -> Array:
        return floats((_B, count, _S, _D) if rank == 4 else (_B, _S, count * _D), seed)

    attributes = {"q_num_heads": 4, "kv_num_heads": 1} if rank == 3 else {}
    values = [tensor(4, 1), tensor(1, 2), tensor(1, 3), floats((1, 4, _S, _S), 4)]
    check_split("Attention", values, attributes, opset=23, exactly=["batch", "heads"], twice=False)


@given(
    mask=st.sampled_from(["none", "2d", "3d", "ends", "ends and starts"]),
    widths=st.sampled_from([None, [16, 16, 32]]),
    bias=st.sampled_from([None, (1, 1), (_B, 4), (1, 4)]),
    past=st.booleans(),
    unidirectional=st.booleans(),
)
@settings(max_examples=18, derandomize=True, deadline=None)
def test_merged_attention(
    mask: str, widths: list[int] | None, bias: tuple[int, int] | None, past: bool, unidirectional: bool
) -> None:
    widths, bias = (None, None) if past else (widths, bias)
    total = sum(widths or [16, 16, 16])
    length = _S + (2 if past else 0)
    masks = {
        "2d": np.tril(np.ones((_B, length), np.int32), 3),
        "3d": np.tril(np.ones((_B, _S, length), np.int32), 1),
        "ends": np.asarray([4, 3, 2], np.int32),
        "ends and starts": np.asarray([4, 3, 4, 1, 0, 2], np.int32),
    }
    values = [
        *(floats((_B, _S, 12), 1), floats((12, total), 2), floats((total,), 3), masks.get(mask)),
        floats((2, _B, 4, 2, 4), 4) if past else None,
        None if bias is None else floats((*bias, _S, length), 5),
    ]
    check_split(
        "Attention",
        values,
        {"num_heads": 4, "qkv_hidden_sizes": widths, "unidirectional": int(unidirectional)},
        opset=1,
        domain=_MS,
        outputs=2 if past else 1,
        weights=(1, 2),
        exactly=["batch", "heads"],
        twice=False,
    )


@given(
    value_size=st.sampled_from([4, 6]),
    bias=st.booleans(),
    mask=st.sampled_from([None, (_B, 7), (_B, _S, 7), (_B,)]),
    scores=st.sampled_from([None, (1, 1), (_B, 4), (1, 4)]),
    heads_first=st.booleans(),
)
@settings(max_examples=18, derandomize=True, deadline=None)
def test_multi_head_attention(
    value_size: int, bias: bool, mask: tuple[int, ...] | None, scores: tuple[int, int] | None, heads_first: bool
) -> None:
    heads_first = heads_first and not bias and value_size == 4
    key, value = (_B, 7, 16), (_B, 7, 4 * value_size)
    if heads_first:
        key, value = (_B, 4, 7, 4), (_B, 4, 7, value_size)  # type: ignore[assignment]
    values: list[Array | None] = [
        *(floats((_B, _S, 16), 1), floats(key, 2), floats(value, 3)),
        floats((32 + 4 * value_size,), 4) if bias else None,
        None
        if mask is None
        else np.asarray([7, 5, 3], np.int32)
        if len(mask) == 1
        else np.tril(np.ones(mask, np.int32), 4),
        None if scores is None else floats((*scores, _S, 7), 5),
    ]
    check_split(
        "MultiHeadAttention", values, {"num_heads": 4}, opset=1, domain=_MS, exactly=["batch", "heads"], twice=False
    )


def test_multi_head_attention_with_a_cache() -> None:
    tokens = [floats((_B, _S, 16), k) for k in range(3)]
    values = [*tokens, None, None, None, floats((_B, 4, 2, 4), 4), floats((_B, 4, 2, 4), 5)]
    check_split(
        "MultiHeadAttention", values, {"num_heads": 4}, opset=1, domain=_MS, outputs=3, exactly=["batch", "heads"]
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("extras", [False, True])
def test_group_query_attention(packed: bool, rotary: int, prompt: bool, extras: bool) -> None:
    heads, groups, size = 4, 2, 16
    tokens, past = (4, 0) if prompt else (1, 5)
    total = tokens + past
    if packed:
        inputs: list[Array | None] = [floats((_B, tokens, (heads + 2 * groups) * size), 1), None, None]
    else:
        inputs = [floats((_B, tokens, count * size), k) for k, count in enumerate((heads, groups, groups))]
    values: list[Array | None] = [
        *inputs,
        *(floats((_B, groups, past, size), 4), floats((_B, groups, past, size), 5)),
        *(np.full((_B,), total - 1, np.int32), np.asarray(total, np.int32)),
        *((floats((10, size // 2), 6), floats((10, size // 2), 7)) if rotary else (None, None)),
        *(None, floats((1, heads, tokens, total), 8) if extras else None, floats((heads,), 9) if extras else None),
    ]
    check_split(
        "GroupQueryAttention",
        values,
        {"num_heads": heads, "kv_num_heads": groups, "do_rotary": rotary},
        opset=1,
        domain=_MS,
        outputs=3,
        exactly=["batch", "heads"],
        twice=False,
    )


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("rotated", [0, 4])
def test_onnx_rotary_embedding(rank: int, positions: bool, rotated: int) -> None:
    half = (rotated or _D) // 2
    data = floats((_B, 2, _S, _D) if rank == 4 else (_B, _S, 2 * _D), 1)
    caches = [floats((10, half) if positions else (_B, _S, half), k) for k in (2, 3)]
    values = [data, *caches, *([ints((_B, _S), 0, 10)] if positions else [])]
    attributes = {"num_heads": 2 if rank == 3 else None, "rotary_embedding_dim": rotated}
    check_split("RotaryEmbedding", values, attributes, opset=23, exactly=["batch", "sequence", "heads"])


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("rotated", [0, 4])
def test_microsoft_rotary_embedding(rank: int, first_only: bool, rotated: int) -> None:
    data = floats((_B, 2, _S, _D) if rank == 4 else (_B, _S, 2 * _D), 1)
    positions = np.asarray([2], np.int64) if first_only else ints((_B, _S), 0, 10)
    values = [data, positions, *(floats((10, (rotated or _D) // 2), k) for k in (2, 3))]
    attributes = {"num_heads": 2, "rotary_embedding_dim": rotated} if rotated else {}
    names = ["batch", "heads"] if first_only else ["batch", "sequence", "heads"]
    check_split("RotaryEmbedding", values, attributes, opset=1, domain=_MS, exactly=names)


def test_merged_weights_are_cut_in_three_places() -> None:
    shapes = [(2, 4, 12), (12, 40), (40,)]
    infos = tuple(TensorInfo(f"i{k}", "float32", shape) for k, shape in enumerate(shapes))
    attributes = attributes_of({"num_heads": 4, "qkv_hidden_sizes": [8, 8, 24]})
    op = Op("op", _MS, "Attention", 1, ("i0", "i1", "i2"), ("y",), attributes)
    ctx = OpContext(op, infos, (TensorInfo("y", "float32", (2, 4, 24)),), (None,) * 3, (False, True, True))
    shard = shard_op(ctx, "heads", 1, 3)
    assert shard.inputs[1] == Region(1, ((2, 6), (10, 14), (22, 34)))
    assert shard.outputs[0] == Region.one(2, 6, 18)
    assert shard.attributes["qkv_hidden_sizes"].value == (4, 4, 12)


def test_heads_of_an_unknown_output_are_not_offered() -> None:
    shapes: list[tuple[int | None, ...]] = [(2, 4, 12), (12, 24), (24,)]
    infos = tuple(TensorInfo(f"i{k}", "float32", shape) for k, shape in enumerate(shapes))
    op = Op("op", _MS, "Attention", 1, ("i0", "i1", "i2"), ("y",), attributes_of({"num_heads": 4}))
    ctx = OpContext(op, infos, (TensorInfo("y", "float32", (2, 4, None)),), (None,) * 3, (False, True, True))
    assert [axis.name for axis in split_axes(ctx)] == ["batch"]


@pytest.mark.parametrize("rank", [3, 4])
def test_onnx_attention_over_padded_keys(rank: int) -> None:
    tensors = [floats((_B, n, t, _D) if rank == 4 else (_B, t, n * _D), n + t) for n, t in ((4, _S), (2, 7), (2, 7))]
    values = [*tensors, None, None, None, np.asarray([7, 5, 6], np.int64)]
    attributes = {"q_num_heads": 4, "kv_num_heads": 2} if rank == 3 else {}
    check_split("Attention", values, attributes, opset=24, exactly=["batch", "heads"], twice=False)


def test_onnx_attention_with_its_scores() -> None:
    tensors = [floats((_B, n, t, _D), n + t) for n, t in ((4, _S), (2, 7), (2, 7))]
    present = (True, False, False, True)
    check_split("Attention", tensors, opset=23, outputs=present, exactly=["batch", "heads"], twice=False)


def test_group_query_attention_with_prompts_of_different_lengths() -> None:
    inputs = [floats((_B, 4, count * 16), k) for k, count in enumerate((4, 2, 2))]
    cache = [floats((_B, 2, 0, 16), k) for k in (4, 5)]
    values = [*inputs, *cache, np.asarray([3, 1, 2], np.int32), np.asarray(4, np.int32)]
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    check_split(
        "GroupQueryAttention",
        values,
        attributes,
        opset=1,
        domain=_MS,
        outputs=3,
        exactly=["batch", "heads"],
        twice=False,
    )


def test_positions_of_a_prompt_keep_the_batch_together() -> None:
    inputs = [floats((_B, 4, count * 16), k) for k, count in enumerate((4, 2, 2))]
    cache = [floats((_B, 2, 0, 16), k) for k in (4, 5)]
    caches = [floats((10, 8), k) for k in (6, 7)]
    positions = np.tile(np.arange(4), (_B, 1))
    values = [*inputs, *cache, np.full((_B,), 3, np.int32), np.asarray(4, np.int32), *caches, positions]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    check_split("GroupQueryAttention", values, attributes, opset=1, domain=_MS, outputs=3, exactly=["heads"])
