"""The harness itself: a wrong split must not pass."""

from __future__ import annotations

import pytest

from planner.errors import PlanError
from planner.graph.op_graph import Attribute, Op, OpContext, TensorInfo
from planner.split.common import change
from planner.split.table import has_rule, shard_op, split_axes
from planner.split.types import Region, Shard
from tests.split.harness import Case, Mutate, check_axis, floats, make_case


def conv() -> Case:
    return make_case(
        "Conv", [floats((2, 4, 9, 7)), floats((6, 4, 3, 3), 1), floats((6,), 2)], {"pads": [1, 1, 1, 1]}, weights=(1, 2)
    )


def keep(shard: Shard) -> Shard:
    return shard


def moved(index: int, by: int) -> Mutate:
    def change_region(shard: Shard) -> Shard:
        part = shard.inputs[index]
        assert isinstance(part, Region)
        ((start, stop),) = part.ranges
        return change(shard, inputs={index: Region.one(part.axis, start + by, stop + by)})

    return change_region


def instead(other: Shard) -> Mutate:
    return lambda shard: Shard(shard.op_type, shard.domain, shard.attributes, other.inputs, shard.outputs)


@pytest.mark.parametrize(
    ("axis", "extent"), [("batch", 2), ("out_channel", 6), ("in_channel", 4), ("spatial0", 9), ("spatial1", 7)]
)
def test_swapped_shards_are_found(axis: str, extent: int) -> None:
    case = conv()
    chosen = next(found for found in split_axes(case.ctx) if found.name == axis)
    assert chosen.extent == extent
    middle = extent // 2
    ranges = [(0, middle), (middle, 2 * middle), (2 * middle, extent)][: 2 if 2 * middle == extent else 3]
    check_axis(case, chosen, ranges)
    first = shard_op(case.ctx, axis, *ranges[0])
    second = shard_op(case.ctx, axis, *ranges[1])
    # Partial sums may come in any order; the same one twice may not.
    swapped = [keep if axis == "in_channel" else instead(second), instead(first), keep]
    with pytest.raises(AssertionError):
        check_axis(case, chosen, ranges, mutate=swapped[: len(ranges)])


@pytest.mark.parametrize(("axis", "index"), [("batch", 0), ("out_channel", 1), ("in_channel", 0), ("spatial0", 0)])
def test_a_region_moved_by_one_is_found(axis: str, index: int) -> None:
    case = conv()
    chosen = next(found for found in split_axes(case.ctx) if found.name == axis)
    ranges = [(0, 1), (1, chosen.extent)]
    with pytest.raises(AssertionError):
        check_axis(case, chosen, ranges, mutate=[moved(index, 1), keep])


def test_a_dropped_halo_is_found() -> None:
    case = conv()
    chosen = next(found for found in split_axes(case.ctx) if found.name == "spatial0")

    def without_halo(shard: Shard) -> Shard:
        return change(shard, {"pads": Attribute.ints([1, 1, 1, 1])}, {0: Region.one(2, 3, 9)})

    with pytest.raises(AssertionError):
        check_axis(case, chosen, [(0, 3), (3, 9)], mutate=[keep, without_halo])


def test_a_gap_between_shards_is_found() -> None:
    case = conv()
    chosen = next(found for found in split_axes(case.ctx) if found.name == "out_channel")
    with pytest.raises(AssertionError, match="covered"):
        check_axis(case, chosen, [(0, 2), (3, 6)])


def test_a_bias_added_twice_is_found() -> None:
    case = conv()
    chosen = next(found for found in split_axes(case.ctx) if found.name == "in_channel")
    bias = shard_op(case.ctx, "in_channel", 0, 2).inputs[2]
    with pytest.raises(AssertionError):
        check_axis(case, chosen, [(0, 2), (2, 4)], mutate=[keep, lambda shard: change(shard, inputs={2: bias})])


def context(*shapes: tuple[int | None, ...] | None, kind: str = "tensor", captures: tuple[str, ...] = ()) -> OpContext:
    infos = tuple(TensorInfo(f"t{i}", "float32", shape, kind) for i, shape in enumerate(shapes))
    names = tuple(info.name for info in infos)
    op = Op("conv_7", "", "Conv", 18, names[:-1], names[-1:], {}, captures)
    return OpContext(op, infos[:-1], infos[-1:], (None,) * (len(infos) - 1), (False,) * (len(infos) - 1))


def test_dimensions_that_depend_on_data_are_not_offered() -> None:
    names = [axis.name for axis in split_axes(context((None, 4, None, 7), (6, 4, 3, 3), (None, 6, None, 5)))]
    assert names == ["out_channel", "in_channel", "spatial1"]


def test_too_little_known_gives_no_axes() -> None:
    assert split_axes(context(None, (6, 4, 3, 3), (2, 6, 7, 5))) == ()
    assert split_axes(context((2, 4, 9, 7), (6, 4, 3, 3), None)) == ()
    assert split_axes(context((2, 4, 9, 7), (6, 4, 3, 3), (2, 6, 7, 5), kind="sequence")) == ()
    assert split_axes(context((2, 4, 9, 7), (6, 4, 3, 3), (2, 6, 7, 5), captures=("x",))) == ()
    assert split_axes(context((1, 1, 3, 3), (1, 1, 3, 3), (1, 1, 1, 1))) == ()


def test_shapes_that_contradict_the_operator_are_not_split() -> None:
    names = [axis.name for axis in split_axes(context((2, 4, 9, 7), (6, 4, 3, 3), (3, 6, 8, 5)))]
    assert names == ["out_channel", "in_channel", "spatial1"]


def test_operators_without_rule() -> None:
    assert has_rule("", "Conv")
    for name in ("If", "Loop", "Scan", "RandomNormal", "NonZero", "DynamicQuantizeLinear", "MyOwn"):
        assert not has_rule("", name)


def test_a_wrong_axis_or_range_is_a_user_error() -> None:
    ctx = conv().ctx
    with pytest.raises(PlanError, match=r"op: Conv cannot be split along 'rows'; expected one of batch, out_channel"):
        shard_op(ctx, "rows", 0, 1)
    for start, stop in ((0, 7), (-1, 2), (3, 3)):
        with pytest.raises(PlanError, match="expected a range within 0 to 6"):
            shard_op(ctx, "out_channel", start, stop)
