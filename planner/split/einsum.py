"""The split rule for Einsum: one axis a letter.

A letter of the output is an axis ``dimK`` by its place there; one that is summed over is an axis ``reduce_x`` (x the
letter): the product is linear in every operand, so sums over parts of the letter's range add up. Dimensions of an
ellipsis are axes of the output like any other. A letter that one operand has twice (a diagonal) is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planner.graph.op_graph import OpContext
from planner.split.common import AxesRule, Rule, input_at, output_at, rank_of, shape_of, size_of
from planner.split.regions import COMBINABLE, MaybeUse, known_axis, use
from planner.split.types import SplitAxis

_DOTS: Final = "..."


def _labels(term: str, rank: int, widest: int) -> tuple[str, ...] | None:
    """One label a dimension; those of an ellipsis are numbered from the right, as they are broadcast."""
    if _DOTS not in term:
        return tuple(term) if len(term) == rank else None
    front, back = term.split(_DOTS, 1)
    dots = rank - len(front) - len(back)
    if not 0 <= dots <= widest:
        return None
    return (*front, *(f"{k}" for k in range(widest - dots, widest)), *back)


def _terms(ctx: OpContext) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]] | None:
    """Labels of the inputs and of the output; None where they do not fit the shapes."""
    equation = str(ctx.op.attr("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ctx.inputs):
        return None
    ranks = [rank_of(input_at(ctx, i)) for i in range(len(terms))]
    widest = max(
        (rank - len(t.replace(_DOTS, "")) for t, rank in zip(terms, ranks, strict=True) if _DOTS in t), default=0
    )
    if not arrow:
        # Implicit output: the ellipsis, then the letters that occur once, in alphabetical order.
        letters = "".join(terms).replace(".", "")
        right = (_DOTS if _DOTS in left else "") + "".join(sorted(c for c in letters if letters.count(c) == 1))
    inputs = [_labels(term, rank, widest) for term, rank in zip(terms, ranks, strict=True)]
    output = _labels(right, rank_of(output_at(ctx, 0)), widest)
    if output is None or any(labels is None for labels in inputs):
        return None
    return tuple(labels for labels in inputs if labels is not None), output


def _axes(ctx: OpContext) -> Iterable[SplitAxis]:
    terms = _terms(ctx)
    output = output_at(ctx, 0)
    if terms is None or output is None:
        return
    inputs, result = terms
    for label in dict.fromkeys((*result, *(label for labels in inputs for label in labels))):
        if result.count(label) > 1 or any(labels.count(label) > 1 for labels in inputs):
            continue
        sizes = {
            i: shape_of(input_at(ctx, i))[labels.index(label)] for i, labels in enumerate(inputs) if label in labels
        }
        if label in result:
            dim = result.index(label)
            size = size_of(output, dim)
            found = {i: _use(own, size, inputs[i].index(label)) for i, own in sizes.items()}
            yield from known_axis(ctx, f"dim{dim}", size, found, {0: use(dim)})
        elif output.dtype in COMBINABLE:
            size = max(own or 0 for own in sizes.values())
            found = {i: _use(own, size, inputs[i].index(label)) for i, own in sizes.items()}
            yield from known_axis(ctx, f"reduce_{label}", size, found, {}, "sum")


def _use(own: int | None, size: int, dim: int) -> MaybeUse:
    if own == size:
        return use(dim)
    return None if own == 1 else False


EINSUM: Final[Rule] = AxesRule(_axes)
