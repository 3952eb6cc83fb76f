"""Split rules for recurrent layers: the batch, and the two directions of a bidirectional layer.

Time steps depend on each other, and every unit of the hidden state on all others: neither is an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from planner.graph.op_graph import Attribute, OpContext
from planner.split.common import AxesRule, Rule, change, input_at, make_axis, size_of
from planner.split.regions import use
from planner.split.types import Shard, SplitAxis

# Inputs that hold a state, and those that hold weights: (direction, ...). Input 4 is sequence_lens.
_STATES: Final = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
_WEIGHTS: Final = {"GRU": (1, 2, 3), "LSTM": (1, 2, 3, 7), "RNN": (1, 2, 3)}


def _axes(ctx: OpContext) -> Iterable[SplitAxis]:
    data, batch_first = input_at(ctx, 0), bool(ctx.op.attr("layout", 0))
    states = _STATES[ctx.op.op_type]
    # X (time, batch, size) and Y (time, direction, batch, hidden), or with layout 1 the batch in front of all.
    x, y, state = (0, 0, 0) if batch_first else (1, 2, 1)
    inputs = {0: use(x), 4: use(0), **{i: use(state) for i in states}}
    outputs = {0: use(y), **{o: use(state) for o in range(1, len(states) + 1)}}
    yield make_axis(ctx, "batch", size_of(data, x), inputs, outputs)
    # Which of activation_alpha and activation_beta belong to which direction depends on the functions.
    if ctx.op.attr("direction", "forward") == "bidirectional" and not (
        ctx.op.attr("activation_alpha") or ctx.op.attr("activation_beta")
    ):
        y, state = (2, 1) if batch_first else (1, 0)
        inputs = {**{i: use(0) for i in _WEIGHTS[ctx.op.op_type]}, **{i: use(state) for i in states}}
        outputs = {0: use(y), **{o: use(state) for o in range(1, len(states) + 1)}}
        yield make_axis(ctx, "direction", size_of(input_at(ctx, 1), 0), inputs, outputs)


def _shard(ctx: OpContext, axis: SplitAxis, start: int, stop: int, shard: Shard) -> Shard:
    if axis.name != "direction" or stop - start != 1:
        return shard
    changed = {"direction": Attribute("string", ("forward", "reverse")[start])}
    functions = ctx.op.attr("activations")
    if functions:
        half = len(functions) // 2
        changed["activations"] = Attribute("strings", tuple(functions[start * half : stop * half]))
    return change(shard, changed)


RULES: Final[Mapping[tuple[str, str], Rule]] = {("", op_type): AxesRule(_axes, _shard) for op_type in _STATES}
