"""``--batch N`` for a model whose exporter wrote the batch size into its constants.

The graph is inferred twice: at the size in the file (the reference) and at the size asked for. Comparing the two tells
which dimensions move with the batch. On the way, constants that pin the old size are replaced, and values that do not
move are repeated where they meet ones that do. What cannot be adjusted with certainty is refused, by node name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.errors import ModelError
from planner.graph.op_graph import Array, Attribute, Op
from planner.model.apart import mixing_op
from planner.model.simplify import Flow
from planner.model.weights import weight_from_array, weight_from_fill

Dims = tuple[int, ...]

# Operators that may read the batch and give a result without it.
_MAY_LOSE: Final = frozenset(("Shape", "Size", "ArgMax", "ArgMin", "NonZero"))
_RECURRENT: Final = frozenset(("LSTM", "GRU", "RNN"))


@dataclass(frozen=True, slots=True, eq=False)
class BatchRepair:
    """Adjusts operators, one by one, while the graph is inferred at the new batch size.

    Attributes:
        reference: the finished pass at the size in the file.
        old: that size.
        new: the size asked for.
        names: names that new constants and operators must avoid.
    """

    reference: Flow
    old: int
    new: int
    names: frozenset[str]

    def __call__(self, op: Op, flow: Flow) -> list[Op]:
        """The operators to use instead."""
        if op.domain:
            return [op]
        if op.op_type == "Reshape" and len(op.inputs) == 2:
            return self._reshape(op, flow)
        if op.op_type == "Expand":
            return self._expand(op, flow)
        if op.op_type == "Resize" and len(op.inputs) > 3 and op.inputs[3]:
            return self._resize(op, flow)
        if op.op_type == "Concat":
            return self._concat(op, flow)
        if op.op_type in _RECURRENT:
            return self._recurrent(op, flow)
        if op.op_type in ("Slice", "Gather", "Split"):
            self._check_cut(op, flow)
        return [op]

    def moved(self, name: str, flow: Flow) -> dict[int, tuple[int, int]]:
        """Dimensions whose size differs between the two passes: axis -> (reference size, new size)."""
        before, after = self.reference.infos.get(name), flow.infos.get(name)
        if not name or before is None or after is None or not before.static or not after.static:
            return {}
        if len(before.dims) != len(after.dims):
            return {}
        pairs = zip(before.dims, after.dims, strict=True)
        return {axis: pair for axis, pair in enumerate(pairs) if pair[0] != pair[1]}

    def _reshape(self, op: Op, flow: Flow) -> list[Op]:
        moves = self.moved(op.inputs[0], flow)
        target = flow.constants.get(op.inputs[1])
        out = self.reference.infos.get(op.outputs[0])
        if not moves or target is None or out is None or not out.static:
            return [op]
        if len(moves) > 1:
            raise self._refuse(op, "more than one dimension of its input depends on the batch")
        axis, (before, after) = next(iter(moves.items()))
        position = _carrier(self.reference.infos[op.inputs[0]].dims, axis, out.dims, self.old)
        if position is None or out.dims[position] * after % before:
            raise self._refuse(op, f"its target shape {list(map(int, target))} does not keep the batch apart")
        wanted = list(out.dims)
        wanted[position] = wanted[position] * after // before
        if _resolve(target, flow.infos[op.inputs[0]].dims, bool(op.attr("allowzero", 0))) == tuple(wanted):
            return [op]
        return [self._with_constant(op, 1, np.asarray(wanted, np.int64), flow)]

    def _expand(self, op: Op, flow: Flow) -> list[Op]:
        target = flow.constants.get(op.inputs[1])
        before = self.reference.constants.get(op.inputs[1])
        if target is None or before is None or not np.array_equal(target, before):
            return [op]
        wanted = target.copy()
        rank = len(flow.infos[op.inputs[0]].dims)
        for axis, (old, new) in self.moved(op.inputs[0], flow).items():
            index = axis + len(target) - rank
            if index >= 0 and target[index] == old != 1:
                wanted[index] = new
        # A constant row repeated to the whole batch. With a batch of 1, broadcasting does it by itself.
        source = flow.infos[op.inputs[0]].dims
        if self.old > 1 and len(target) and target[0] == self.old and (len(target) > rank or source[0] == 1):
            wanted[0] = self.new
        if np.array_equal(wanted, target):
            return [op]
        return [self._with_constant(op, 1, wanted, flow)]

    def _resize(self, op: Op, flow: Flow) -> list[Op]:
        sizes = flow.constants.get(op.inputs[3])
        if sizes is None or op.attr("axes") is not None:
            return [op]
        wanted = sizes.copy()
        for axis, (old, new) in self.moved(op.inputs[0], flow).items():
            if wanted[axis] == old:
                wanted[axis] = new
        return [op] if np.array_equal(wanted, sizes) else [self._with_constant(op, 3, wanted, flow)]

    def _concat(self, op: Op, flow: Flow) -> list[Op]:
        rank = len(flow.infos[op.inputs[0]].dims)
        axis = int(op.attr("axis", 1)) % max(rank, 1)
        moves: dict[int, tuple[int, int]] = {}
        for name in op.inputs:
            moves.update(self.moved(name, flow))
        if axis in moves:
            raise self._refuse(op, "it joins along the batch")
        extra: list[Op] = []
        inputs = list(op.inputs)
        for index, name in enumerate(op.inputs):
            for dim, (old, new) in sorted(moves.items()):
                if flow.infos[name].static and flow.infos[name].dims[dim] == old:
                    inputs[index] = self._repeat(op, index, inputs[index], dim, new, flow, extra)
        return [*extra, op if inputs == list(op.inputs) else replace(op, inputs=tuple(inputs))]

    def _recurrent(self, op: Op, flow: Flow) -> list[Op]:
        batch_axis = 1 if not op.attr("layout", 0) else 0
        moves = self.moved(op.inputs[0], flow)
        if batch_axis not in moves:
            return [op]
        old, new = moves[batch_axis]
        extra: list[Op] = []
        inputs = list(op.inputs)
        for index, dim in ((4, 0), (5, batch_axis), (6, batch_axis)):
            if index < len(inputs) and inputs[index] and flow.infos[inputs[index]].dims[dim] == old:
                inputs[index] = self._repeat(op, index, inputs[index], dim, new, flow, extra)
        return [*extra, op if inputs == list(op.inputs) else replace(op, inputs=tuple(inputs))]

    def _check_cut(self, op: Op, flow: Flow) -> None:
        moves = self.moved(op.inputs[0], flow)
        if not moves:
            return
        rank = len(flow.infos[op.inputs[0]].dims)
        if op.op_type == "Slice":
            listed = flow.constants.get(op.inputs[3]) if len(op.inputs) > 3 and op.inputs[3] else None
            axes = list(op.attr("axes") or ()) if listed is None else [int(v) for v in listed]
            if not axes and len(op.inputs) > 1 and op.inputs[1] in flow.constants:
                axes = list(range(flow.constants[op.inputs[1]].size))
            out = self.reference.infos[op.outputs[0]]
            whole = self.reference.infos[op.inputs[0]].dims
            axes = [a % rank for a in axes]
            cut = [
                a for a in axes if a in moves and not (out.static and out.dims[a] == whole[a] and self._open(op, flow))
            ]
        else:
            default = 0
            cut = [a for a in (int(op.attr("axis", default)) % rank,) if a in moves]
        if cut:
            raise self._refuse(op, f"it cuts dimension {cut[0]}, which depends on the batch")

    def _open(self, op: Op, flow: Flow) -> bool:
        """Whether a Slice that took the whole batch still does: its ends are beyond any size."""
        ends = flow.constants.get(op.inputs[2]) if len(op.inputs) > 2 else None
        values = [int(v) for v in ends.reshape(-1)] if ends is not None else list(op.attr("ends") or ())
        return all(value >= max(self.old, self.new) or value < 0 for value in values)

    def _repeat(self, op: Op, index: int, name: str, axis: int, size: int, flow: Flow, extra: list[Op]) -> str:
        """A value that does not move, repeated along the batch."""
        info = flow.infos[name]
        dims = (*info.dims[:axis], size, *info.dims[axis + 1 :])
        fresh = self._fresh(f"{op.name}/batch_{index}", flow)
        weight = flow.weights.get(name)
        if weight is not None and weight.fill is not None:
            flow.add_weight(fresh, weight_from_fill(weight.fill, info.dtype, dims, fresh))
            return fresh
        if info.dims[axis] != 1:
            raise self._refuse(op, f"its input '{name}' has {info.dims[axis]} different rows, one for each old sample")
        if op.version < 8:
            raise self._refuse(op, f"opset {op.version} has no Expand to repeat its input '{name}'")
        shape = self._fresh(f"{fresh}_shape", flow)
        flow.add_weight(shape, weight_from_array(np.asarray(dims, np.int64), shape))
        extra.append(Op(f"{fresh}_expand", "", "Expand", op.version, (name, shape), (fresh,)))
        return fresh

    def _with_constant(self, op: Op, index: int, value: Array, flow: Flow) -> Op:
        name = self._fresh(f"{op.name}/batch_{index}", flow)
        flow.add_weight(name, weight_from_array(value.astype(np.int64), name))
        inputs = (*op.inputs[:index], name, *op.inputs[index + 1 :])
        attributes = op.attributes
        if op.op_type == "Reshape" and 0 in value.tolist():
            attributes = {**attributes, "allowzero": Attribute.int(1)}
        return replace(op, inputs=inputs, attributes=attributes)

    def _fresh(self, stem: str, flow: Flow) -> str:
        name = stem
        while name in self.names or name in flow.infos:
            name += "_"
        return name

    def _refuse(self, op: Op, why: str) -> ModelError:
        return ModelError(
            f"the batch size {self.old} is part of the model and cannot be changed to {self.new}: {why}",
            where=f"operator '{op.name}' ({op.op_type})",
            expected=f"--batch {self.old}",
            next_step="export the model with a dynamic batch dimension, or with the batch size you need",
        )

    def check(self, flow: Flow, outputs: Sequence[str]) -> None:
        """Refuses a graph in which samples are mixed, or the batch gets lost, on the way.

        Raises:
            ModelError: naming the first operator that mixes samples, or that reads the batch and whose outputs do not
                depend on it.
        """
        # At a batch of one there is nothing to mix: the size in the file, which is larger then, tells.
        seen, batch = (flow, self.new) if self.new > 1 else (self.reference, self.old)
        mixing = mixing_op(seen, self.reference, tuple(outputs), lambda name: self.moved(name, flow), batch)
        if mixing is not None:
            raise self._refuse(*mixing)
        for op in flow.ops:
            if op.op_type in _MAY_LOSE or op.op_type.startswith("Reduce") or "Loss" in op.op_type:
                continue
            gone = [self.reference.infos.get(name) for name in op.writes]
            if any(info is None or not info.static or not flow.infos[info.name].static for info in gone):
                continue
            moves = any(self.moved(name, flow) for name in op.reads)
            if moves and not any(self.moved(name, flow) for name in op.writes):
                raise self._refuse(op, "its outputs do not follow the batch")
        if outputs and not any(self.moved(name, flow) for name in outputs) and _all_static(flow.infos, outputs):
            raise ModelError(
                f"no output follows the batch size from {self.old} to {self.new}",
                expected="an output with a batch dimension",
                next_step=f"leave --batch out, or give {self.old}",
            )


def _all_static(infos: Mapping[str, object], outputs: Sequence[str]) -> bool:
    return all(getattr(infos[name], "static", False) for name in outputs)


def _carrier(source: Dims, axis: int, target: Dims, batch: int) -> int | None:
    """Which dimension of a reshaped tensor holds the batch that is (the outer part of) the source's ``axis``.

    In row-major order the batch is known by its stride, the product of all sizes behind it. Only a dimension that has
    the batch as its outermost part qualifies, so that the same is true of every dimension that ever moves. A batch of
    one fits several dimensions; the outermost is it.
    """
    span = int(np.prod(source[axis:], dtype=np.int64))
    if span == 0 or batch == 0 or source[axis] % batch:
        return None
    for position in range(len(target)):
        if int(np.prod(target[position:], dtype=np.int64)) == span:
            return position
    return None


def _resolve(target: Array, source: Dims, allow_zero: bool) -> Dims | None:
    """The shape that Reshape makes of a target; None if they do not fit."""
    sizes = [int(v) for v in target.reshape(-1)]
    if not allow_zero:
        if any(size == 0 and index >= len(source) for index, size in enumerate(sizes)):
            return None
        sizes = [source[index] if size == 0 else size for index, size in enumerate(sizes)]
    total = int(np.prod(source, dtype=np.int64))
    known = int(np.prod([size for size in sizes if size != -1], dtype=np.int64))
    if -1 in sizes:
        if known == 0 or total % known:
            return None
        sizes[sizes.index(-1)] = total // known
    return tuple(sizes) if int(np.prod(sizes, dtype=np.int64)) == total else None
