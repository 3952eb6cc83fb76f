"""Splits of runs of operators: a split spreads through the graph as long as neighbours agree.

An operator whose input arrives in pieces along a dimension is split along the iteration axis that reads
those pieces as they are, so that nothing lies between the two. The run ends where no axis fits. Splitting
the batch at every graph input and letting it spread is data parallelism: one point of the same space.

Source: the idea that splits widen the space of model parallelism is the FD-DPS abstract's; that they are chosen
for runs of operators, by matching axes, is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from planner.graph.op_graph import Op, OpContext, OpGraph
from planner.split.table import split_axes
from planner.split.types import AxisUse, SplitAxis, SplitSpec


@dataclass(frozen=True, slots=True)
class Layout:
    """How a value is cut: along one dimension, at these element boundaries (0 and the size included)."""

    axis: int
    bounds: tuple[int, ...]


@dataclass(slots=True)
class AxisCache:
    """Split axes of the operators of one graph, looked up once each."""

    graph: OpGraph
    _axes: dict[str, tuple[SplitAxis, ...]] = field(default_factory=dict)
    _contexts: dict[str, OpContext] = field(default_factory=dict)

    def context(self, op: Op) -> OpContext:
        """The operator in its graph."""
        if op.name not in self._contexts:
            self._contexts[op.name] = self.graph.context(op)
        return self._contexts[op.name]

    def axes(self, op: Op) -> tuple[SplitAxis, ...]:
        """Its split axes."""
        if op.name not in self._axes:
            self._axes[op.name] = split_axes(self.context(op))
        return self._axes[op.name]


def sizes_for(extent: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Cut an extent in proportion to shares, by largest remainders; empty shards are left out.

    Args:
        extent: units to share out.
        shares: relative speeds of the devices, positive.
    """
    total = sum(shares)
    sizes = [extent * share // total for share in shares]
    rests = sorted(range(len(shares)), key=lambda i: (-(extent * shares[i] % total), i))
    for position in rests[: extent - sum(sizes)]:
        sizes[position] += 1
    return tuple(size for size in sizes if size > 0)


def spread(
    cache: AxisCache,
    inputs: Mapping[str, Layout],
    *,
    starts: Callable[[Op, tuple[SplitAxis, ...]], SplitAxis | None] | None = None,
    shares: Sequence[int],
    within: frozenset[str] | None = None,
) -> list[SplitSpec]:
    """Splits that follow from how the inputs are cut and where runs may start.

    Args:
        cache: the unsplit graph with its axes.
        inputs: layout of graph inputs that are cut.
        starts: chooses an axis for an operator none of whose inputs arrives in pieces; None starts nothing.
        shares: relative speeds of the devices, for the sizes of new runs.
        within: operators that may be split; None for all.

    Returns:
        At most one split an operator, in graph order.
    """
    layouts: dict[str, Layout] = dict(inputs)
    chosen: list[SplitSpec] = []
    for op in cache.graph.ops:
        if within is not None and op.name not in within:
            continue
        axes = cache.axes(op)
        if not axes:
            continue
        followed = _follow(cache, op, axes, layouts)
        if followed is None and starts is not None:
            axis = starts(op, axes)
            if axis is not None:
                sizes = sizes_for(axis.extent, shares)
                followed = (axis, sizes) if len(sizes) > 1 else None
        if followed is not None:
            axis, sizes = followed
            chosen.append(SplitSpec(op.name, axis.name, sizes))
            _record(op, axis, sizes, layouts)
    return chosen


def _follow(
    cache: AxisCache, op: Op, axes: tuple[SplitAxis, ...], layouts: Mapping[str, Layout]
) -> tuple[SplitAxis, tuple[int, ...]] | None:
    """The axis that reads the most bytes of cut inputs as they are, with its sizes."""
    best: tuple[int, SplitAxis, tuple[int, ...]] | None = None
    for axis in axes:
        gain = 0
        sizes: tuple[int, ...] | None = None
        for name, use in zip(op.inputs, axis.inputs, strict=False):
            layout = layouts.get(name)
            if layout is None:
                continue
            nbytes = cache.graph.tensors[name].nbytes
            fitting = None if use is None or use.axis != layout.axis else _unit_sizes(axis, use, layout)
            if fitting is None or (sizes is not None and fitting != sizes):
                gain -= nbytes
            else:
                sizes = fitting
                gain += nbytes
        if sizes is not None and gain > 0 and (best is None or gain > best[0]):
            best = (gain, axis, sizes)
    return None if best is None else best[1:]


def _unit_sizes(axis: SplitAxis, use: AxisUse, layout: Layout) -> tuple[int, ...] | None:
    """Sizes in units whose boundaries lie on the layout's (nearest ones for a halo), None if there are none."""
    bounds = [Fraction(bound) / use.scale for bound in layout.bounds]
    if use.exact and any(bound.denominator != 1 for bound in bounds):
        return None
    units = [round(bound) for bound in bounds]
    units[0], units[-1] = 0, axis.extent
    sizes = tuple(stop - start for start, stop in pairwise(units))
    return sizes if len(sizes) > 1 and min(sizes) > 0 else None


def _record(op: Op, axis: SplitAxis, sizes: tuple[int, ...], layouts: dict[str, Layout]) -> None:
    units = [0]
    for size in sizes:
        units.append(units[-1] + size)
    for name, use in zip(op.outputs, axis.outputs, strict=False):
        if name and use is not None and axis.combine == "concat":
            layouts[name] = Layout(use.axis, tuple(int(unit * use.scale) for unit in units))


def batch_layouts(graph: OpGraph, shares: Sequence[int], axes: Mapping[str, int]) -> dict[str, Layout]:
    """Layouts that cut every graph input's batch.

    The batch is the size that most inputs have in their batch dimension; inputs without it stay whole.

    Args:
        graph: the unsplit graph.
        shares: relative speeds of the devices.
        axes: batch dimension of an input where it is not 0; -1 for an input without one.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for name in graph.inputs:
        info, axis = graph.tensors[name], axes.get(name, 0)
        if info.static and info.shape is not None and 0 <= axis < len(info.shape):
            sizes[name] = (axis, info.dims[axis])
    counts: dict[int, int] = {}
    for _, size in sizes.values():
        counts[size] = counts.get(size, 0) + 1
    if not counts:
        return {}
    batch = max(counts, key=lambda size: (counts[size], -size))
    parts = sizes_for(batch, shares)
    if len(parts) < 2:
        return {}
    bounds = [0]
    for part in parts:
        bounds.append(bounds[-1] + part)
    return {name: Layout(axis, tuple(bounds)) for name, (axis, size) in sizes.items() if size == batch}
