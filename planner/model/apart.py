"""Whether the samples of a batch stay apart in a graph that was inferred at another batch size than it was made for.

A dimension that moves with the batch holds the samples side by side, each as a run of its own. The split rules know
along which dimensions an operator may be cut into independent parts; one that cannot be cut between samples mixes
them. At the size in the file this was right (positions of one sample, folded into rows, attend to each other), at any
other it is silently wrong. Operators without a rule, and shapes that depend on data, get the benefit of the doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from planner.graph.op_graph import Op, OpContext, TensorInfo
from planner.model.simplify import Flow, live
from planner.split.table import covers, known_axes
from planner.split.types import AxisUse, SplitAxis

Moved = Callable[[str], Mapping[int, object]]
"""The dimensions of a value that move with the batch, as keys."""

# The dimension that holds the batch, in each present input or output; None where the value does not move.
_Carriers = tuple[int | None, ...]
# Of a constant that was repeated for the new size: its rows are the same for all samples, along whatever dimension.
_ANY: Final = -1

# Not along which dimension, but for other reasons no shard of these is offered: a random mask, a shape without axes.
_ELEMENTWISE: Final = frozenset(("Dropout", "Squeeze"))
_RESIZING: Final = frozenset(("Resize", "Upsample"))


def mixing_op(flow: Flow, reference: Flow, outputs: tuple[str, ...], moved: Moved, batch: int) -> tuple[Op, str] | None:
    """The first operator that mixes samples, and how; None if there is none.

    A single value made of all samples (a loss, a flag) is no harm by itself, only where it meets samples again.

    Args:
        flow: a finished pass at a batch size of more than one.
        reference: the pass at the size in the file; what it lacks was made for the new size.
        outputs: graph outputs.
        moved: which dimensions move with the batch.
        batch: the batch size of the pass.
    """
    totals: dict[str, Op] = {}
    for op in live(flow.ops, outputs):
        follows = any(moved(name) for name in op.writes)
        total = next((totals[name] for name in op.reads if name in totals), None)
        if total is not None and follows:
            return total, f"its result is made of all samples, and '{op.name}' ({op.op_type}) gives it to each"
        if not any(moved(name) for name in op.reads):
            made = total
        elif not follows and _is_total(op, flow):
            made = op
        elif not _keeps_apart(op, flow, reference, moved, batch):
            return op, _how(op, moved)
        else:
            made = None
        if made is not None:
            totals.update((name, made) for name in op.writes if flow.infos[name].static)
    return None


def _is_total(op: Op, flow: Flow) -> bool:
    """Whether a reduction leaves a single value."""
    if not op.op_type.startswith("Reduce") and op.op_type not in ("ArgMax", "ArgMin"):
        return False
    return all(flow.infos[name].static and flow.infos[name].num_elements == 1 for name in op.writes)


def _how(op: Op, moved: Moved) -> str:
    dims = [f"dimension {axis} of '{name}'" for name in op.reads for axis in sorted(moved(name))]
    several = len(dims) > 1
    return (
        f"{' and '.join(dims)} {'hold' if several else 'holds'} all samples, and the operator does not keep them apart"
    )


def _keeps_apart(op: Op, flow: Flow, reference: Flow, moved: Moved, batch: int) -> bool:
    ctx = _context(op, flow)
    axes = known_axes(ctx)
    if axes is None or not all(info is None or info.static for info in (*ctx.inputs, *ctx.outputs)):
        return True
    if any(len(moved(name)) > 1 for name in (*op.reads, *op.writes)):
        return False
    inputs, outputs = _carriers(op.inputs, reference, moved), _carriers(op.outputs, reference, moved)
    return _never_mixes(ctx, inputs, outputs) or any(
        axis.extent % batch == 0
        and axis.combine == "concat"
        and _along(axis, ctx.inputs, axis.inputs, inputs)
        and _along(axis, ctx.outputs, axis.outputs, outputs)
        for axis in axes
    )


def _context(op: Op, flow: Flow) -> OpContext:
    return OpContext(
        op,
        tuple(flow.infos[name] if name else None for name in op.inputs),
        tuple(flow.infos[name] if name else None for name in op.outputs),
        tuple(flow.constants.get(name) if name else None for name in op.inputs),
        tuple(name in flow.weights for name in op.inputs),
    )


def _carriers(names: tuple[str, ...], reference: Flow, moved: Moved) -> _Carriers:
    return tuple(
        None if not name else next(iter(moved(name)), None) if name in reference.infos else _ANY for name in names
    )


def _along(
    axis: SplitAxis, infos: tuple[TensorInfo | None, ...], uses: tuple[AxisUse | None, ...], carriers: _Carriers
) -> bool:
    """Whether an axis runs along the dimension that holds the batch, wherever there is one, and nowhere else."""
    for info, use, carrier in zip(infos, uses, carriers, strict=True):
        if carrier == _ANY:
            continue
        if use is None or carrier is None:
            if use is not None or carrier is not None:
                return False
        elif use.axis != carrier or not _whole(axis, info, use):
            return False
    return True


def _whole(axis: SplitAxis, info: TensorInfo | None, use: AxisUse) -> bool:
    """Without a halo, which would read the neighbouring sample's rows."""
    return use.exact and covers(info, use, axis.extent)


def _never_mixes(ctx: OpContext, inputs: _Carriers, outputs: _Carriers) -> bool:
    """Operators whose rule has other reasons than mixing to offer no axis."""
    op, carrier = ctx.op, inputs[0]
    if op.op_type in _ELEMENTWISE:
        return True
    if carrier is None or any(found not in (None, carrier) for found in outputs):
        return False
    if op.op_type == "MaxPool":  # its indices count through the whole batch
        return carrier < 2
    if op.op_type == "DynamicQuantizeMatMul":  # one scale for all values, which costs accuracy only
        return carrier < len(ctx.inputs[0].dims) - 1 if ctx.inputs[0] is not None else False
    return op.op_type in _RESIZING and _size(ctx.inputs[0], carrier) == _size(ctx.outputs[0], carrier)


def _size(info: TensorInfo | None, axis: int) -> int | None:
    return info.dims[axis] if info is not None and axis < len(info.dims) else None
