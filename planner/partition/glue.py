"""The operators between unlike pieces: Slice, Concat, Sum.

A value of the unsplit graph may exist whole, as pieces, or as partial values. :class:`Pieces` knows which, and
``fetch`` gives any box of it, with the least glue: the piece itself where one matches exactly (neighbours that are
split alike exchange nothing), a slice of one piece, or a concat of the needed parts. Weights are sliced
offline. Glue is made per lane (the index of the consuming shard), so that every device assembles what it
needs itself, in one hop, instead of waiting for another device to do so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.graph.op_graph import Array, Attribute, Op, OpGraph, TensorInfo
from planner.model.types import Weight
from planner.partition.boxes import WHOLE, Box, Range, intersect
from planner.partition.weight_parts import literal, shared, take, weight_part


class GraphBuilder:
    """Collects the split graph while operators are rewritten in topological order."""

    def __init__(self, graph: OpGraph, weights: Mapping[str, Weight], opset: int) -> None:
        self._source = graph
        self._opset = opset
        self.ops: list[Op] = []
        self.tensors: dict[str, TensorInfo] = dict(graph.tensors)
        self.constants: dict[str, Array] = dict(graph.constants)
        self.weights: dict[str, Weight] = dict(weights)
        self._names = {op.name for op in graph.ops} | set(graph.tensors)
        self._pieces: dict[str, dict[Box, str]] = {}
        self._lanes: dict[tuple[str, Box, int], str] = {}

    # -- names -----------------------------------------------------------------------------------

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with a number behind it if the model uses that name."""
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}~{count}"
        self._names.add(name)
        return name

    # -- making values -----------------------------------------------------------------------------

    def add_op(self, op: Op) -> None:
        """Append an operator; its inputs exist already."""
        self.ops.append(op)

    def add_value(self, tensor: str, box: Box, tag: str = "") -> str:
        """A new value that holds ``box`` of ``tensor``; the whole keeps the tensor's own name."""
        info = self._source.tensors[tensor]
        box = box.normal(info) if info.shape is not None else box
        if not box.ranges and not tag:
            return tensor
        name = self.fresh(f"{tensor}@{box.label}{tag}")
        shape = box.shape(info) if info.shape is not None else None
        self.tensors[name] = replace(info, name=name, shape=shape, observed=None if box.ranges else info.observed)
        return name

    def add_literal(self, wanted: str, value: Array) -> str:
        """A new small constant."""
        name = self.fresh(wanted)
        info = TensorInfo(name, str(value.dtype), tuple(value.shape))
        self.tensors[name] = info
        self.constants[name] = value
        self.weights[name] = literal(info, value)
        return name

    def add_piece(self, tensor: str, box: Box, name: str) -> None:
        """Record that ``name`` holds ``box`` of ``tensor``."""
        box = box.normal(self._source.tensors[tensor]) if box.ranges else box
        self._pieces.setdefault(tensor, {})[box] = name

    # -- reading values ----------------------------------------------------------------------------

    def fetch(self, tensor: str, box: Box, lane: int) -> str:
        """Name of a value that holds ``box`` of ``tensor``, with glue made where needed.

        Args:
            tensor: value of the unsplit graph.
            box: the part to read.
            lane: index of the consuming shard, -1 for an unsplit consumer.
        """
        if not tensor:
            return ""
        info = self._source.tensors[tensor]
        box = box.normal(info) if box.ranges else box
        if tensor in self._source.weights:
            return tensor if not box.ranges else self._weight_part(tensor, box)
        pieces = self._pieces.get(tensor)
        if pieces is None:  # whole: a graph input or an unsplit operator's output
            return tensor if not box.ranges else self._slice(tensor, tensor, WHOLE, box, lane)
        if box in pieces:
            return pieces[box]
        key = (tensor, box, lane)
        if key not in self._lanes:
            self._lanes[key] = self._assemble(tensor, box, lane, pieces)
        return self._lanes[key]

    def _weight_part(self, tensor: str, box: Box) -> str:
        key = (tensor, box, -2)
        if key in self._lanes:
            return self._lanes[key]
        name = self.add_value(tensor, box)
        source = self.weights[tensor] = shared(self.weights[tensor])
        self.weights[name] = weight_part(source, self.tensors[name], box)
        if tensor in self.constants:
            self.constants[name] = take(self.constants[tensor], box)
        self._lanes[key] = name
        return name

    def _slice(self, tensor: str, value: str, inside: Box, box: Box, lane: int) -> str:
        """Part ``box`` of ``tensor``, cut out of ``value``, which holds ``inside`` (and with it all of ``box``)."""
        several = next((axis for axis, ranges in box.ranges if len(ranges) > 1), None)
        if several is not None:
            return self._join(tensor, box, several, lane, box.as_dict()[several])
        key = (value, box, lane)
        if key in self._lanes:
            return self._lanes[key]
        outer, wanted = inside.as_dict(), box.as_dict()
        axes = [axis for axis in sorted(wanted) if outer.get(axis) != wanted[axis]]
        starts = [wanted[axis][0][0] - (outer[axis][0][0] if axis in outer else 0) for axis in axes]
        stops = [s + wanted[axis][0][1] - wanted[axis][0][0] for s, axis in zip(starts, axes, strict=True)]
        name = self.add_value(tensor, box, f"/{lane}" if lane >= 0 else "/s")
        if self._opset < 10:
            attributes = {"axes": Attribute.ints(axes), "starts": Attribute.ints(starts), "ends": Attribute.ints(stops)}
            inputs: tuple[str, ...] = (value,)
        else:
            attributes = {}
            bounds = [np.asarray(v, dtype=np.int64) for v in (starts, stops, axes)]
            inputs = (
                value,
                *(self.add_literal(f"{name}:{k}", v) for k, v in zip(("from", "to", "axes"), bounds, strict=True)),
            )
        self._glue("Slice", inputs, name, attributes)
        self._lanes[key] = name
        return name

    def _assemble(self, tensor: str, box: Box, lane: int, pieces: Mapping[Box, str]) -> str:
        wanted = box.as_dict()
        several = next((axis for axis, ranges in box.ranges if len(ranges) > 1), None)
        if several is not None:
            return self._join(tensor, box, several, lane, wanted[several])
        info = self._source.tensors[tensor]
        for piece, name in pieces.items():
            if _covers(piece, box, info):
                return self._slice(tensor, name, piece, box, lane)
        # Cut the box at the pieces' boundaries along the first dimension where they differ, and put parts together.
        for axis in sorted({axis for piece in pieces for axis, _ in piece.ranges}):
            own = wanted[axis][0] if axis in wanted else (0, info.dims[axis])
            cells = sorted({piece.as_dict()[axis][0] for piece in pieces if axis in piece.as_dict()})
            parts = [part for cell in cells if (part := intersect(cell, own))]
            if len(parts) > 1:
                return self._join(tensor, box, axis, lane, parts)
        raise AssertionError(f"pieces of '{tensor}' do not cover {box.label}")

    def _join(self, tensor: str, box: Box, axis: int, lane: int, parts: Sequence[Range]) -> str:
        names = []
        for part in parts:
            ranges = box.as_dict()
            ranges[axis] = (part,)
            names.append(self.fetch(tensor, Box.of(ranges), lane))
        key = (tensor, box, lane)
        if key in self._lanes:
            return self._lanes[key]
        name = self.add_value(tensor, box, f"/{lane}" if lane >= 0 else "")
        self._glue("Concat", tuple(names), name, {"axis": Attribute.int(axis)})
        self._lanes[key] = name
        return name

    def combine(self, tensor: str, box: Box, parts: Sequence[str], how: str) -> str:
        """Add up (or take the largest or least of) partial values; the order of terms is the shards' order."""
        name = self.add_value(tensor, box)
        dtype = self.tensors[parts[0]].dtype
        if how == "sum" and dtype.startswith(("int", "uint")):  # Sum takes floating-point types only
            total = parts[0]
            for position, part in enumerate(parts[1:], start=2):
                last = position == len(parts)
                target = name if last else self.add_value(tensor, box, f"/sum{position}")
                self._glue("Add", (total, part), target, {})
                total = target
            return name
        self._glue({"sum": "Sum", "max": "Max", "min": "Min"}[how], tuple(parts), name, {})
        return name

    def _glue(self, op_type: str, inputs: tuple[str, ...], output: str, attributes: Mapping[str, Attribute]) -> None:
        op_name = self.fresh(f"{op_type}:{output}")
        self.add_op(Op(op_name, "", op_type, self._opset, inputs, (output,), attributes))


def _covers(piece: Box, box: Box, info: TensorInfo) -> bool:
    """Whether the piece holds all of a box of single ranges."""
    wanted = box.as_dict()
    for axis, ((low, high), *_) in piece.ranges:
        start, stop = wanted[axis][0] if axis in wanted else (0, info.dims[axis])
        if start < low or stop > high:
            return False
    return True
