"""Parts of weights, cut out when they are read.

A handle on an embedded weight copies it out of the file each time it is read. Parts that are views would each keep such
a copy of the whole alive, so all parts of one weight read it through one :class:`SharedLoad`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.graph.op_graph import Array, TensorInfo
from planner.model.types import Place, Weight
from planner.partition.boxes import Box


class SharedLoad:
    """Reads a weight once for as long as anything that came out of it is alive."""

    def __init__(self, load: Callable[[], Array]) -> None:
        self._load = load
        self._owner: Callable[[], Array | None] = lambda: None
        self._shape: tuple[int, ...] = ()
        self._lock = threading.Lock()

    def __call__(self) -> Array:
        """The whole weight."""
        with self._lock:
            owner = self._owner()
            if owner is not None:
                return np.asarray(owner).reshape(self._shape)
            whole = self._load()
            # Views refer to the array at the bottom, not to those in between: that one lives as long as any of them.
            owner = whole
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if whole.flags.c_contiguous and (owner.size, owner.dtype) == (whole.size, whole.dtype):
                self._owner, self._shape = weakref.ref(owner), whole.shape
            return whole


def shared(weight: Weight) -> Weight:
    """The same weight, read through a :class:`SharedLoad`."""
    return weight if isinstance(weight.load, SharedLoad) else replace(weight, load=SharedLoad(weight.load))


def weight_part(source: Weight, info: TensorInfo, box: Box) -> Weight:
    """Handle on a part of a weight.

    Args:
        source: the whole weight.
        info: type and shape of the part.
        box: which part.
    """
    key = f"{source.key}[{box.label}]" if source.key else ""
    return Weight(info, lambda: take(source.load(), box), source.fill, key, _place_of_part(source, box))


def _place_of_part(source: Weight, box: Box) -> Place | None:
    """Where a part lies that is some rows of the whole; other parts are scattered."""
    if source.place is None or len(box.ranges) != 1:
        return source.place if not box.ranges else None
    ((axis, ranges),) = box.ranges
    rows = source.info.dims[0] if source.info.dims else 0
    if axis != 0 or len(ranges) != 1 or not rows:
        return None
    return replace(source.place, offset=source.place.offset + ranges[0][0] * (source.info.nbytes // rows))


def literal(info: TensorInfo, value: Array) -> Weight:
    """Handle on a small constant that the split made; equal ones have equal keys."""
    return Weight(info, lambda: value, None, f"literal:{value.dtype}:{value.shape}:{value.tobytes().hex()}")


def take(array: Array, box: Box) -> Array:
    """A box of an array; a view where one range a dimension allows it."""
    for axis, ranges in box.ranges:
        parts = [array[(slice(None),) * axis + (slice(start, stop),)] for start, stop in ranges]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)
    return array
