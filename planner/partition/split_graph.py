"""The split graph: the operator graph with every decided split carried out.

Each shard becomes an operator named ``op#i`` (``op#i.j`` for an operator with two splits); what lies between
unlike pieces becomes glue (see ``glue``). A split graph is again an :class:`OpGraph`, so that costs, scheduling,
simulation and segments need no notion of splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import PlanError
from planner.graph.op_graph import Array, Op, OpContext, OpGraph, TensorInfo
from planner.model.types import LoadedModel, Weight
from planner.partition.boxes import WHOLE, Box
from planner.partition.glue import GraphBuilder
from planner.partition.weight_parts import take
from planner.split.table import shard_op, split_axes
from planner.split.types import Absent, InputPart, Literal, OutputPart, Partial, Region, Shard, SplitAxis, SplitSpec


@dataclass(frozen=True, slots=True, eq=False)
class SplitGraph:
    """A graph after its splits.

    Attributes:
        graph: operators of the split graph.
        weights: one handle for each of ``graph.weights``; parts of a weight share its memory.
        origin: split-graph operator -> (operator of the unsplit graph, shard index); glue has no entry.
    """

    graph: OpGraph
    weights: Mapping[str, Weight]
    origin: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """One shard while it is being made: what it computes, and where its inputs and outputs lie in the unsplit tensors.

    ``boxes_in`` holds a Box, or a Literal that replaces the input, or None where absent; ``boxes_out`` a Box and how it
    is combined.
    """

    context: OpContext
    boxes_in: tuple[Box | Literal | None, ...]
    boxes_out: tuple[tuple[Box, str] | None, ...]
    label: str


ShardCache = dict[tuple[SplitSpec, ...], tuple[_Piece, ...]]
"""Shards made before, by the splits of their operator."""


def build_split_graph(model: LoadedModel, splits: Sequence[SplitSpec], known: ShardCache | None = None) -> SplitGraph:
    """Carry out the splits.

    Args:
        model: the simplified model.
        splits: decisions; an operator may appear twice, with different axes: the second splits each shard of the first.
        known: shards of the same model made before, added to; a planner that tries many splits passes one.

    Raises:
        PlanError: if a split names an operator or axis that is not there, or its sizes do not add up to the extent.
    """
    if not splits:
        return SplitGraph(model.graph, model.weights, {op.name: (op.name, 0) for op in model.graph.ops})
    by_op: dict[str, list[SplitSpec]] = {}
    for spec in splits:
        by_op.setdefault(spec.op, []).append(spec)
    _check_known(model.graph, by_op)
    builder = GraphBuilder(model.graph, model.weights, model.opsets.get("", 1))
    origin: dict[str, tuple[str, int]] = {}
    cache = {} if known is None else known
    for op in model.graph.ops:
        specs = by_op.get(op.name, [])
        if specs:
            _add_shards(builder, op, _shards(model.graph, op, specs, cache), origin)
        else:
            for name in op.reads:
                builder.fetch(name, WHOLE, -1)
            builder.add_op(op)
            origin[op.name] = (op.name, 0)
    for name in model.graph.outputs:
        builder.fetch(name, WHOLE, -1)
    graph = OpGraph(
        tuple(builder.ops),
        builder.tensors,
        model.graph.inputs,
        model.graph.outputs,
        frozenset(builder.weights),
        builder.constants,
    )
    return SplitGraph(graph, builder.weights, origin)


def _check_known(graph: OpGraph, by_op: Mapping[str, Sequence[SplitSpec]]) -> None:
    known = {op.name for op in graph.ops}
    for name in by_op:
        if name not in known:
            raise PlanError(
                "split of an operator that the model does not have",
                where=name,
                expected="an operator name of the model",
                next_step="make the plan again with `fddps plan`",
            )


def _shards(graph: OpGraph, op: Op, specs: Sequence[SplitSpec], cache: ShardCache) -> tuple[_Piece, ...]:
    key = tuple(specs)
    if key not in cache:
        pieces = [_whole(graph.context(op))]
        for spec in specs:
            pieces = [shard for piece in pieces for shard in _split(piece, spec)]
        cache[key] = tuple(pieces)
    return cache[key]


def _add_shards(builder: GraphBuilder, op: Op, pieces: Sequence[_Piece], origin: dict[str, tuple[str, int]]) -> None:
    made: list[dict[Box, list[tuple[str, str]]]] = [{} for _ in op.outputs]
    for lane, piece in enumerate(pieces):
        inputs = tuple(
            _input_name(builder, op, tensor, part, lane)
            for tensor, part in zip(op.inputs, piece.boxes_in, strict=False)
        )
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        outputs = _output_names(builder, op, piece, made, lane)
        name = builder.fresh(f"{op.name}#{piece.label}")
        shard = piece.context.op
        builder.add_op(Op(name, shard.domain, shard.op_type, op.version, inputs, outputs, shard.attributes))
        origin[name] = (op.name, lane)
    _record_outputs(builder, op, made)


def _input_name(builder: GraphBuilder, op: Op, tensor: str, part: Box | Literal | None, lane: int) -> str:
    if part is None:
        return ""
    if isinstance(part, Literal):
        return builder.add_literal(f"{tensor or op.name}@literal/{lane}", part.value)
    return builder.fetch(tensor, part, lane)


def _output_names(
    builder: GraphBuilder, op: Op, piece: _Piece, made: list[dict[Box, list[tuple[str, str]]]], lane: int
) -> tuple[str, ...]:
    names = []
    for position, tensor in enumerate(op.outputs):
        place = piece.boxes_out[position] if position < len(piece.boxes_out) else None
        if not tensor or place is None:
            names.append("")
            continue
        box, how = place
        first = box not in made[position]
        if how == "whole":  # every shard makes the same value: the first one's is used
            tag = "" if first else f"/copy{lane}"
        elif how == "concat":
            tag = ""
        else:
            tag = f"/part{lane}"
        name = builder.add_value(tensor, box, tag)
        names.append(name)
        made[position].setdefault(box, []).append((name, how))
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def _record_outputs(builder: GraphBuilder, op: Op, made: Sequence[Mapping[Box, Sequence[tuple[str, str]]]]) -> None:
    for tensor, boxes in zip(op.outputs, made, strict=True):
        if not tensor:
            continue
        for box, values in boxes.items():
            how = values[0][1]
            if how in ("whole", "concat"):
                builder.add_piece(tensor, box, values[0][0])
            else:
                builder.add_piece(tensor, box, builder.combine(tensor, box, [name for name, _ in values], how))


def _whole(context: OpContext) -> _Piece:
    return _Piece(
        context,
        tuple(WHOLE if name else None for name in context.op.inputs),
        tuple((WHOLE, "whole") if name else None for name in context.op.outputs),
        "",
    )


def _split(piece: _Piece, spec: SplitSpec) -> Iterator[_Piece]:
    """The shards of a piece along one more axis."""
    axis = _find_axis(piece.context, spec)
    for index, (start, stop) in enumerate(spec.ranges()):
        shard = shard_op(piece.context, axis.name, start, stop)
        label = f"{piece.label}.{index}" if piece.label else str(index)
        yield _narrow(piece, shard, label)


def _find_axis(context: OpContext, spec: SplitSpec) -> SplitAxis:
    axes = {axis.name: axis for axis in split_axes(context)}
    axis = axes.get(spec.axis)
    if axis is None:
        raise PlanError(
            f"operator of type {context.op.op_type} cannot be split along '{spec.axis}'",
            where=spec.op,
            expected=f"one of: {', '.join(axes) or 'no axis at all'}",
            next_step="make the plan again with `fddps plan`",
        )
    if sum(spec.sizes) != axis.extent or min(spec.sizes) < 1:
        raise PlanError(
            f"split sizes {list(spec.sizes)} along '{spec.axis}' do not add up",
            where=spec.op,
            expected=f"positive sizes with the sum {axis.extent}",
            next_step="make the plan again with `fddps plan`",
        )
    return axis


def _narrow(piece: _Piece, shard: Shard, label: str) -> _Piece:
    context = piece.context
    boxes_in, infos_in, constants, weights = [], [], [], []
    for position, name in enumerate(context.op.inputs):
        part = shard.inputs[position] if position < len(shard.inputs) else Absent()
        box, info, constant, weight = _narrow_input(piece, position, name, part)
        boxes_in.append(box)
        infos_in.append(info)
        constants.append(constant)
        weights.append(weight)
    boxes_out, infos_out = [], []
    for position, out in enumerate(context.outputs):
        made = shard.outputs[position] if position < len(shard.outputs) else Absent()
        place, out_info = _narrow_output(piece.boxes_out[position], out, made)
        boxes_out.append(place)
        infos_out.append(out_info)
    op = replace(context.op, op_type=shard.op_type, domain=shard.domain, attributes=shard.attributes)
    op = replace(op, inputs=tuple(n if i is not None else "" for n, i in zip(op.inputs, infos_in, strict=True)))
    narrowed = OpContext(op, tuple(infos_in), tuple(infos_out), tuple(constants), tuple(weights))
    return _Piece(narrowed, tuple(boxes_in), tuple(boxes_out), label)


def _narrow_input(
    piece: _Piece, position: int, name: str, part: InputPart
) -> tuple[Box | Literal | None, TensorInfo | None, Array | None, bool]:
    context, old = piece.context, piece.boxes_in[position]
    info = context.inputs[position]
    if isinstance(part, Literal):
        literal = TensorInfo(name, str(part.value.dtype), tuple(part.value.shape))
        return part, literal, part.value, True
    if isinstance(part, Absent) or old is None or info is None:
        return None, None, None, False
    if not isinstance(part, Region) or isinstance(old, Literal):
        return old, info, context.constants[position], context.weights[position]
    box = old.restrict(part.axis, part.ranges)
    size = sum(stop - start for start, stop in part.ranges)
    constant = context.constants[position]
    if constant is not None:
        constant = take(constant, Box.of({part.axis: part.ranges}))
    return box, _resized(info, part.axis, size), constant, context.weights[position]


def _narrow_output(
    old: tuple[Box, str] | None, info: TensorInfo | None, part: OutputPart
) -> tuple[tuple[Box, str] | None, TensorInfo | None]:
    if old is None or info is None or isinstance(part, Absent):
        return None, None
    box, how = old
    if isinstance(part, Partial):
        return (box, part.combine), info
    if isinstance(part, Region):
        start, stop = part.ranges[0]
        narrowed = box.restrict(part.axis, ((start, stop),))
        return (narrowed, "concat" if how == "whole" else how), _resized(info, part.axis, stop - start)
    return (box, how), info


def _resized(info: TensorInfo, axis: int, size: int) -> TensorInfo:
    assert info.shape is not None
    return replace(info, shape=(*info.shape[:axis], size, *info.shape[axis + 1 :]), observed=None)
