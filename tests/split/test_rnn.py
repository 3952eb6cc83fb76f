"""Rules of recurrent layers against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.op_graph import Op, OpContext, TensorInfo
from planner.split.table import shard_op, split_axes
from planner.split.types import Region
from tests.split.harness import attributes_of, check_split, floats

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Relu"]}


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
@given(
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    lengths=st.booleans(),
    states=st.booleans(),
    peepholes=st.booleans(),
    functions=st.booleans(),
    batch=st.integers(2, 4),
)
@settings(max_examples=9, derandomize=True, deadline=None)
def test_batch_and_directions(
    op_type: str, direction: str, lengths: bool, states: bool, peepholes: bool, functions: bool, batch: int
) -> None:
    steps, size, hidden, gates = 5, 3, 4, _GATES[op_type]
    count = 2 if direction == "bidirectional" else 1
    values = [
        floats((steps, batch, size), 0),
        floats((count, gates * hidden, size), 1),
        floats((count, gates * hidden, hidden), 2),
        floats((count, 2 * gates * hidden), 3),
        (np.arange(batch, dtype=np.int32) % steps + 1) if lengths else None,
        floats((count, batch, hidden), 4) if states else None,
    ]
    if op_type == "LSTM":
        values.append(floats((count, batch, hidden), 5) if states else None)
        values.append(floats((count, 3 * hidden), 6) if peepholes else None)
    chosen = _FUNCTIONS[op_type] * count if functions else None
    check_split(
        op_type,
        values,
        {"hidden_size": hidden, "direction": direction, "activations": chosen},
        opset=14,
        outputs=3 if op_type == "LSTM" else 2,
        weights=(1, 2, 3),
        exactly=["batch", "direction"] if count == 2 else ["batch"],
    )


def test_layout_one_has_the_batch_in_front() -> None:
    """ONNX Runtime's CPU kernels lack it, so the regions are checked as such."""
    shapes = [(4, 5, 3), (2, 16, 3), (2, 16, 4), (2, 32), (4,), (4, 2, 4), (4, 2, 4)]
    inputs = tuple(TensorInfo(f"i{k}", "float32", shape) for k, shape in enumerate(shapes))
    outputs = tuple(TensorInfo(f"o{k}", "float32", s) for k, s in enumerate([(4, 5, 2, 4), (4, 2, 4), (4, 2, 4)]))
    attributes = attributes_of({"layout": 1, "direction": "bidirectional", "hidden_size": 4})
    op = Op("op", "", "LSTM", 14, tuple(i.name for i in inputs), tuple(o.name for o in outputs), attributes)
    ctx = OpContext(op, inputs, outputs, (None,) * 7, (False,) * 7)
    assert [axis.name for axis in split_axes(ctx)] == ["batch", "direction"]
    batch = shard_op(ctx, "batch", 1, 3)
    assert [batch.inputs[k] for k in (0, 4, 5, 6)] == [Region.one(0, 1, 3)] * 4
    assert batch.outputs == (Region.one(0, 1, 3),) * 3
    reverse = shard_op(ctx, "direction", 1, 2)
    assert reverse.attributes["direction"].value == "reverse"
    assert [reverse.inputs[k] for k in (1, 2, 3, 5)] == [*[Region.one(0, 1, 2)] * 3, Region.one(1, 1, 2)]
    assert reverse.outputs == (Region.one(2, 1, 2), Region.one(1, 1, 2), Region.one(1, 1, 2))


def test_parameters_of_activations_keep_the_directions_together() -> None:
    values = [floats((5, 3, 2)), floats((2, 4, 2), 1), floats((2, 4, 4), 2)]
    attributes = {
        **{"hidden_size": 4, "direction": "bidirectional", "activations": ["LeakyRelu", "Tanh"]},
        "activation_alpha": [0.1, 0.1],
    }
    check_split("RNN", values, attributes, opset=14, outputs=2, exactly=["batch"])
