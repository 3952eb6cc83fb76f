"""Shapes of ``com.microsoft`` operators, for which ONNX has no schema.

Source: the operator documentation of ONNX Runtime (docs/ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.graph.op_graph import Array, Op, TensorInfo


def infer_contrib(op: Op, inputs: Sequence[TensorInfo | None], constants: Sequence[Array | None]) -> list[TensorInfo]:
    """What is known about the outputs; an output about which nothing is known is missing."""
    return []
