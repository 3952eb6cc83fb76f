"""What split rules share: shapes and axes of an operator, and the shard of an axis that needs no adjustment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from planner.graph.op_graph import Attribute, OpContext, TensorInfo
from planner.split.types import (
    Absent,
    AxisUse,
    InputPart,
    OutputPart,
    Partial,
    Region,
    Shard,
    SplitAxis,
    Whole,
)


class Rule(Protocol):
    """What a rule module registers for an operator type.

    A rule may assume that the rank of every present input and output is known, and need not check that extents are
    static or worth splitting: the table drops axes that are not.
    """

    def axes(self, ctx: OpContext) -> tuple[SplitAxis, ...]:
        """The axes that may be split; empty if there is none."""

    def shard(self, ctx: OpContext, axis: str, start: int, stop: int) -> Shard:
        """What the shard of units ``[start, stop)`` of an axis that :meth:`axes` offers computes."""


Adapt = Callable[[OpContext, SplitAxis, int, int, Shard], Shard]


@dataclass(frozen=True, slots=True)
class AxesRule:
    """A rule that is all in its axes: inputs and outputs are cut where :class:`AxisUse` says.

    Attributes:
        find: the operator's axes.
        adapt: changes the plain shard (attributes, literals, halos) where that is not enough.
    """

    find: Callable[[OpContext], Iterable[SplitAxis]]
    adapt: Adapt | None = None

    def axes(self, ctx: OpContext) -> tuple[SplitAxis, ...]:
        """See :class:`Rule`."""
        return tuple(self.find(ctx))

    def shard(self, ctx: OpContext, axis: str, start: int, stop: int) -> Shard:
        """See :class:`Rule`."""
        chosen = find_axis(self.axes(ctx), axis)
        plain = plain_shard(ctx, chosen, start, stop)
        return plain if self.adapt is None else self.adapt(ctx, chosen, start, stop, plain)


def find_axis(axes: Iterable[SplitAxis], name: str) -> SplitAxis:
    """The axis of that name.

    Raises:
        KeyError: if there is none.
    """
    for axis in axes:
        if axis.name == name:
            return axis
    raise KeyError(name)


def shape_of(info: TensorInfo | None) -> tuple[int | None, ...]:
    """Shape of a value; empty for an absent one or an unknown rank."""
    return () if info is None or info.shape is None else info.shape


def rank_of(info: TensorInfo | None) -> int:
    """Number of dimensions; 0 for an absent value."""
    return len(shape_of(info))


def size_of(info: TensorInfo | None, axis: int) -> int:
    """Size of a dimension; 0, an extent that is never offered, where it is not known for certain."""
    shape = shape_of(info)
    size = shape[axis] if -len(shape) <= axis < len(shape) else None
    return size or 0


def input_at(ctx: OpContext, index: int) -> TensorInfo | None:
    """An input, None where absent, past the end, or at -1 (an operator type that has no such input)."""
    return ctx.inputs[index] if 0 <= index < len(ctx.inputs) else None


def output_at(ctx: OpContext, index: int) -> TensorInfo | None:
    """An output, None where unused or past the end."""
    return ctx.outputs[index] if index < len(ctx.outputs) else None


def const_ints(ctx: OpContext, index: int) -> tuple[int, ...] | None:
    """An input's value as integers; None where it is absent or not a known constant."""
    value = ctx.constants[index] if index < len(ctx.constants) else None
    return None if value is None else tuple(int(v) for v in value.reshape(-1))


def positive_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front."""
    return axis + rank if axis < 0 else axis


def spread(count: int, uses: Mapping[int, AxisUse | None]) -> tuple[AxisUse | None, ...]:
    """A tuple of ``count`` uses with those given at their positions; positions past the end are left out."""
    return tuple(uses.get(i) for i in range(count))


def make_axis(
    ctx: OpContext,
    name: str,
    extent: int,
    inputs: Mapping[int, AxisUse | None],
    outputs: Mapping[int, AxisUse | None],
    combine: str = "concat",
) -> SplitAxis:
    """A split axis from the uses of the inputs and outputs that it shows in; absent ones are skipped."""
    return SplitAxis(
        name,
        extent,
        spread(len(ctx.inputs), {i: use for i, use in inputs.items() if input_at(ctx, i) is not None}),
        spread(len(ctx.outputs), {i: use for i, use in outputs.items() if output_at(ctx, i) is not None}),
        combine,
    )


def shared_dims(
    ctx: OpContext,
    dims: Iterable[int],
    inputs: Collection[int] = (0,),
    outputs: Collection[int] = (0,),
    names: Mapping[int, str] | None = None,
) -> tuple[SplitAxis, ...]:
    """Axes for dimensions that the given inputs and outputs have in common, at the same place and size.

    Args:
        ctx: the operator.
        dims: dimensions, non-negative.
        inputs: inputs that are cut; the others are read whole.
        outputs: outputs that are cut.
        names: axis names other than ``dimK``.
    """
    names = names or {}
    return tuple(
        make_axis(
            ctx,
            names.get(dim, f"dim{dim}"),
            size_of(output_at(ctx, min(outputs)), dim),
            {i: AxisUse(dim) for i in inputs},
            {o: AxisUse(dim) for o in outputs},
        )
        for dim in dims
    )


def scaled(use: AxisUse, start: int, stop: int) -> Region:
    """The region ``[start*scale, stop*scale)`` of a use.

    Raises:
        ValueError: if that is no element boundary.
    """
    first, last = start * use.scale, stop * use.scale
    if first.denominator != 1 or last.denominator != 1:
        raise ValueError(f"units {start} to {stop} are no whole elements at scale {use.scale}")
    return Region.one(use.axis, int(first), int(last))


def plain_shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int) -> Shard:
    """The shard of an axis whose uses say it all: same operator, same attributes.

    An input without use is read whole; an output without use is whole, or partial where the axis combines.
    """
    inputs: list[InputPart] = []
    for info, use in zip(ctx.inputs, axis.inputs, strict=True):
        if info is None:
            inputs.append(Absent())
        else:
            inputs.append(Whole() if use is None else scaled(use, start, stop))
    outputs: list[OutputPart] = []
    for info, use in zip(ctx.outputs, axis.outputs, strict=True):
        if info is None:
            outputs.append(Absent())
        elif use is not None:
            outputs.append(scaled(use, start, stop))
        else:
            outputs.append(Whole() if axis.combine == "concat" else Partial(axis.combine))
    return Shard(ctx.op.op_type, ctx.op.domain, ctx.op.attributes, tuple(inputs), tuple(outputs))


def change(
    shard: Shard,
    attributes: Mapping[str, Attribute] | None = None,
    inputs: Mapping[int, InputPart] | None = None,
    without: Collection[str] = (),
) -> Shard:
    """A shard with some attributes and inputs replaced, and attributes in ``without`` dropped."""
    kept = {name: value for name, value in shard.attributes.items() if name not in without}
    parts = inputs or {}
    return Shard(
        shard.op_type,
        shard.domain,
        {**kept, **(attributes or {})},
        tuple(parts.get(i, part) for i, part in enumerate(shard.inputs)),
        shard.outputs,
    )
