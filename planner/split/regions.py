"""What several rule modules share beyond ``common``: broadcasting, and tensors merged along a dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final, Literal

from planner.graph.op_graph import OpContext, TensorInfo
from planner.split.common import input_at, make_axis, output_at, rank_of, shape_of, size_of
from planner.split.types import AxisUse, Region, SplitAxis

# What Add, Max and Min, which combine partial values, have kernels for in ONNX Runtime.
COMBINABLE: Final = frozenset({"float16", "bfloat16", "float32", "float64", "int32", "int64", "uint32", "uint64"})

# Where an axis shows in an input or output; None where it does not, False where that is not known.
MaybeUse = AxisUse | Literal[False] | None


def use(axis: int, scale: int | Fraction = 1, exact: bool = True) -> AxisUse:
    """An :class:`AxisUse` with a plain number as scale."""
    return AxisUse(axis, Fraction(scale), exact)


def single_element(info: TensorInfo | None) -> bool:
    """Whether a value is absent or certainly has one element, whatever its rank."""
    return all(size == 1 for size in shape_of(info))


def broadcast_use(
    info: TensorInfo | None, out_dim: int, out_rank: int, size: int, scale: int = 1, align: int | None = None
) -> MaybeUse:
    """Where a dimension of a broadcast shape shows in one operand.

    Args:
        info: the operand.
        out_dim: dimension of the broadcast shape.
        out_rank: rank of the broadcast shape.
        size: units of the axis.
        scale: elements of the dimension a unit.
        align: dimension of the broadcast shape that the operand's first one meets; by default the last ones meet.

    Returns:
        None if the operand is read whole, False if its size there is not known to be 1 or ``size * scale``.
    """
    dim = out_dim - (out_rank - rank_of(info) if align is None else align)
    if info is None or not 0 <= dim < rank_of(info):
        return None
    own = shape_of(info)[dim]
    if own == size * scale:
        return use(dim, scale)
    return None if own == 1 else False


def broadcast_axes(
    ctx: OpContext,
    operands: Iterable[int],
    outputs: Iterable[int] = (0,),
    align: Mapping[int, int] | None = None,
    skip: int = 0,
) -> Iterable[SplitAxis]:
    """One axis ``dimK`` for each dimension of the first output, to which the operands are broadcast.

    Args:
        ctx: the operator.
        operands: inputs that are broadcast; all others are read whole.
        outputs: outputs of the full shape.
        align: see :func:`broadcast_use`, by input.
        skip: number of trailing dimensions that are no axes.
    """
    operands, outputs = tuple(operands), tuple(outputs)
    rank = rank_of(output_at(ctx, 0))
    for dim in range(rank - skip):
        size = size_of(output_at(ctx, 0), dim)
        found = {i: broadcast_use(input_at(ctx, i), dim, rank, size, align=(align or {}).get(i)) for i in operands}
        # All operands of size 1 where the output is not: not what broadcasting gives, so something is unknown.
        if any(found.values()):
            yield from known_axis(ctx, f"dim{dim}", size, found, {o: use(dim) for o in outputs})


def known_axis(
    ctx: OpContext,
    name: str,
    size: int,
    inputs: Mapping[int, MaybeUse],
    outputs: Mapping[int, MaybeUse],
    combine: str = "concat",
) -> Iterable[SplitAxis]:
    """The axis, unless it is not known where it shows in some input or output."""
    if not any(where is False for where in (*inputs.values(), *outputs.values())):
        yield make_axis(ctx, name, size, _certain(inputs), _certain(outputs), combine)


def _certain(uses: Mapping[int, MaybeUse]) -> dict[int, AxisUse | None]:
    return {i: where for i, where in uses.items() if not isinstance(where, bool)}


def ranges_of(axis: int, start: int, stop: int, parts: Iterable[tuple[int, int]]) -> Region:
    """Units ``[start, stop)`` of several tensors that are merged along one dimension.

    Args:
        axis: the dimension.
        start: first unit.
        stop: one past the last unit.
        parts: ``(elements of the part, elements a unit)`` in the order in which the parts lie.
    """
    found, offset = [], 0
    for size, unit in parts:
        found.append((offset + start * unit, offset + stop * unit))
        offset += size
    return Region(axis, tuple(found))
