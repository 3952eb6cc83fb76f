"""Regions of tensors: which part of a value a piece holds or a shard reads.

A :class:`Box` restricts some dimensions of a tensor to ranges; dimensions it does not name are whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.graph.op_graph import TensorInfo

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Box:
    """Part of a tensor.

    Attributes:
        ranges: (dimension, ranges) sorted by dimension; several ranges of one dimension are put side by side.
    """

    ranges: tuple[tuple[int, tuple[Range, ...]], ...] = ()

    @staticmethod
    def of(ranges: Mapping[int, tuple[Range, ...]]) -> Box:
        """A box from a mapping."""
        return Box(tuple(sorted(ranges.items())))

    def as_dict(self) -> dict[int, tuple[Range, ...]]:
        """The restricted dimensions."""
        return dict(self.ranges)

    def restrict(self, axis: int, ranges: tuple[Range, ...]) -> Box:
        """The part of this box that ``ranges`` select, counted inside the box along ``axis``."""
        own = self.as_dict()
        own[axis] = compose(own[axis], ranges) if axis in own else ranges
        return Box.of(own)

    def normal(self, info: TensorInfo) -> Box:
        """Without restrictions that select everything, and with touching ranges merged."""
        kept: dict[int, tuple[Range, ...]] = {}
        for axis, ranges in self.ranges:
            merged = merge(ranges)
            if merged != ((0, info.dims[axis]),):
                kept[axis] = merged
        return Box.of(kept)

    def shape(self, info: TensorInfo) -> tuple[int | None, ...]:
        """Shape of the part.

        Args:
            info: the tensor that the box is a part of; its rank must be known.
        """
        assert info.shape is not None
        own = self.as_dict()
        return tuple(
            sum(stop - start for start, stop in own[axis]) if axis in own else size
            for axis, size in enumerate(info.shape)
        )

    @property
    def label(self) -> str:
        """Short text for value names: ``0:0-4`` or ``1:0-8,16-24``."""
        return ";".join(
            f"{axis}:" + ",".join(f"{start}-{stop}" for start, stop in ranges) for axis, ranges in self.ranges
        )


WHOLE = Box()


def merge(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Join ranges that touch."""
    merged: list[Range] = []
    for start, stop in ranges:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def compose(outer: tuple[Range, ...], inner: tuple[Range, ...]) -> tuple[Range, ...]:
    """Ranges of the tensor that ``inner``, counted in the concatenation of ``outer``, selects."""
    selected: list[Range] = []
    for start, stop in inner:
        offset = 0
        for low, high in outer:
            length = high - low
            first, last = max(start - offset, 0), min(stop - offset, length)
            if first < last:
                selected.append((low + first, low + last))
            offset += length
    return merge(tuple(selected)) or ((0, 0),)


def intersect(a: Range, b: Range) -> Range | None:
    """Common part of two ranges, None if empty."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low < high else None
