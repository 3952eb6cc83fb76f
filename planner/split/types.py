"""What a split rule says about one operator.

A rule answers two questions. Which iteration axes may be split (:class:`SplitAxis`)? And, for one
axis and one range of it, what does the shard compute (:class:`Shard`): its attributes, which
region of each input it reads, which region of each output it makes, or whether it makes a partial value.
One table, one semantics: ``partition/`` builds the split graph from these answers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from planner.graph.op_graph import Array, Attribute


@dataclass(frozen=True, slots=True)
class AxisUse:
    """Where an iteration axis shows in a tensor.

    Attributes:
        axis: dimension of the tensor, non-negative.
        scale: elements of that dimension per unit of the iteration axis. Input channels of a Conv with
            groups: channels per group; rows of a strided Conv's input: the stride.
        exact: whether the region read is exactly ``[start*scale, stop*scale)``; False with a halo.
    """

    axis: int
    scale: Fraction = Fraction(1)
    exact: bool = True


@dataclass(frozen=True, slots=True)
class SplitAxis:
    """One iteration axis of an operator that may be split.

    Attributes:
        name: ``batch``, ``out_channel``, ``in_channel``, ``rows``, ``columns``, ``reduce``, ``heads``,
            ``spatial0``, ..., or ``dim0``, ``dim1``, ... where a dimension has no better name; unique in the operator.
        extent: number of indivisible units; a shard is a range of them.
        inputs: one entry an input; None where the input is read whole (or is absent).
        outputs: one entry an output; None where the shard makes a partial value (see ``combine``).
        combine: ``concat`` for outputs that are put side by side, ``sum`` (or ``max``, ``min``) for partial ones.
    """

    name: str
    extent: int
    inputs: tuple[AxisUse | None, ...]
    outputs: tuple[AxisUse | None, ...]
    combine: str = "concat"


@dataclass(frozen=True, slots=True)
class Absent:
    """An optional input or output that the shard does not have."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole tensor."""


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a tensor along one dimension.

    Attributes:
        axis: dimension, non-negative.
        ranges: half-open ranges of elements, inside the tensor, put side by side in this order. One range, except
            for merged weights ([Q|K|V]). An output has exactly one.
    """

    axis: int
    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def one(axis: int, start: int, stop: int) -> Region:
        """A single range."""
        return Region(axis, ((start, stop),))


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A small constant in place of the input: an adjusted Reshape shape, Slice bounds, Pad amounts."""

    value: Array


@dataclass(frozen=True, slots=True)
class Partial:
    """A value of the full shape that is combined with those of the other shards.

    Attributes:
        combine: ``sum``, ``max`` or ``min``.
    """

    combine: str = "sum"


InputPart = Absent | Whole | Region | Literal
OutputPart = Absent | Whole | Region | Partial


@dataclass(frozen=True, slots=True)
class Shard:
    """What one shard of an operator computes.

    Attributes:
        op_type: usually the operator's own.
        domain: usually the operator's own.
        attributes: the shard's attributes, complete.
        inputs: one entry an input (trailing absent ones may be dropped).
        outputs: one entry an output. ``Whole`` means that every shard makes the same value.
    """

    op_type: str
    domain: str
    attributes: Mapping[str, Attribute]
    inputs: tuple[InputPart, ...]
    outputs: tuple[OutputPart, ...]


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """A decision: split one operator along one axis.

    Attributes:
        op: operator name in the unsplit graph.
        axis: name of one of its split axes.
        sizes: units of each shard, positive, adding up to the axis' extent; uneven is allowed, and
            shards may outnumber devices.
    """

    op: str
    axis: str
    sizes: tuple[int, ...]

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.sizes)

    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Half-open unit ranges of the shards."""
        bounds, start = [], 0
        for size in self.sizes:
            bounds.append((start, start + size))
            start += size
        return tuple(bounds)
