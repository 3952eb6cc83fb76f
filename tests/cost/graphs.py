"""A small builder of operator graphs for cost tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.graph.op_graph import Array, Attribute, Op, OpContext, OpGraph, TensorInfo


def attribute(value: Any) -> Attribute:
    """An attribute of the type that the value suggests."""
    if isinstance(value, tuple):
        return Attribute.ints(value)
    if isinstance(value, int):
        return Attribute.int(value)
    return Attribute("string" if isinstance(value, str) else "float", value)


class Builder:
    """Collects operators in order; values are named by the caller or by their operator."""

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.ops: list[Op] = []
        self.tensors: dict[str, TensorInfo] = {}
        self.inputs: list[str] = []
        self.weights: list[str] = []
        self.constants: dict[str, Array] = {}

    def value(self, name: str, *shape: int, dtype: str = "") -> str:
        """Declare a value."""
        self.tensors[name] = TensorInfo(name, dtype or self.dtype, shape)
        return name

    def input(self, name: str, *shape: int) -> str:
        """A graph input."""
        self.inputs.append(name)
        return self.value(name, *shape)

    def weight(self, name: str, *shape: int) -> str:
        """A weight."""
        self.weights.append(name)
        self.constants[name] = np.zeros(shape, "float32")
        return self.value(name, *shape)

    def op(
        self,
        op_type: str,
        inputs: list[str],
        shape: tuple[int, ...],
        *,
        domain: str = "",
        dtype: str = "",
        **attributes: Any,
    ) -> str:
        """Add an operator with one output, and return the output's name."""
        name = f"{op_type.lower()}{len(self.ops)}"
        self.value(name, *shape, dtype=dtype)
        made = {key: attribute(value) for key, value in attributes.items()}
        self.ops.append(Op(f"node_{name}", domain, op_type, 17, tuple(inputs), (name,), made))
        return name

    def conv(self, data: str, out_channels: int, kernel: int = 3, group: int = 1) -> str:
        """A Conv with "same" padding, stride 1 and a bias."""
        batch, channels, *space = self.tensors[data].dims
        weight = self.weight(f"w{len(self.ops)}", out_channels, channels // group, *(kernel,) * len(space))
        bias = self.weight(f"b{len(self.ops)}", out_channels)
        return self.op("Conv", [data, weight, bias], (batch, out_channels, *space), group=group)

    def graph(self, *outputs: str) -> OpGraph:
        """The finished graph."""
        return OpGraph(
            tuple(self.ops), self.tensors, tuple(self.inputs), outputs, frozenset(self.weights), self.constants
        )

    def contexts(self) -> list[OpContext]:
        """All operators with their shapes."""
        graph = self.graph()
        return [graph.context(op) for op in self.ops]
