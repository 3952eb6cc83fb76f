"""What partitioning a plan yields: the launcher's and the exporter's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.graph.op_graph import OpGraph, TensorInfo
from planner.model.types import Weight


@dataclass(frozen=True, slots=True, eq=False)
class SegmentModel:
    """One segment as an ONNX model of its own.

    Attributes:
        id: segment id of the plan.
        device: device name of the plan.
        inputs: values it reads that are made elsewhere: graph inputs or outputs of other segments.
        outputs: values that leave it: read by other segments, or graph outputs.
        model: serialised ModelProto. Small weights are inside; large ones are external stubs (location
            ``fddps-weights``), to be supplied with ``SessionOptions.add_initializer``.
        weights: the large ones, by initializer name. Slices of one weight share its memory.
    """

    id: str
    device: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    model: bytes
    weights: Mapping[str, Weight]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedModel:
    """All segments, in an order in which one thread could run them.

    Attributes:
        graph: the split graph.
        segments: topological order over data edges and device queues.
        inputs: graph inputs to feed, in the model's order.
        outputs: graph outputs, in the model's order.
        direct: graph outputs that no segment makes -> the graph input passed through.
        constants: graph outputs that are weights.
        ignored: inputs of the file that no operator reads: a caller may feed them, and they are dropped.
    """

    graph: OpGraph
    segments: tuple[SegmentModel, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    direct: Mapping[str, str]
    constants: Mapping[str, Weight]
    ignored: tuple[str, ...] = ()
