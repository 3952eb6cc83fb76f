"""Small models cut into segments by hand, so that the launcher is tested without the partitioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from planner.cluster.cpu import usable_cores
from planner.graph.op_graph import OpGraph, TensorInfo
from planner.model.types import Weight
from planner.partition.types import PartitionedModel, SegmentModel
from planner.runtime.devices import LocalDevice, LocalDevices

F32 = TensorProto.FLOAT
_ENUM = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "string": TensorProto.STRING,
    "bfloat16": TensorProto.BFLOAT16,
    "float16": TensorProto.FLOAT16,
    "bool": TensorProto.BOOL,
}


def info(name: str, shape: Sequence[int | None] | None = (4,), dtype: str = "float32") -> TensorInfo:
    return TensorInfo(name, dtype, None if shape is None else tuple(shape))


def weight(name: str, array: Any, key: str = "") -> Weight:
    return Weight(TensorInfo(name, array.dtype.name, array.shape), lambda: array, key=key)


def stub(name: str, array: Any) -> TensorProto:
    proto = TensorProto(name=name, data_type=_ENUM[array.dtype.name], dims=array.shape)
    proto.data_location = TensorProto.EXTERNAL
    entry = proto.external_data.add()
    entry.key, entry.value = "location", "fddps-weights"
    return proto


def segment(
    ident: str,
    device: str,
    nodes: Sequence[NodeProto],
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    weights: Mapping[str, Any] | None = None,
    keys: Mapping[str, str] | None = None,
) -> SegmentModel:
    weights, keys = weights or {}, keys or {}
    values = [
        [helper.make_tensor_value_info(v.name, _ENUM[v.dtype], v.shape) for v in group] for group in (inputs, outputs)
    ]
    graph = helper.make_graph(list(nodes), ident, *values, [stub(n, a) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    handles = {name: weight(name, array, keys.get(name, "")) for name, array in weights.items()}
    return SegmentModel(ident, device, tuple(inputs), tuple(outputs), model.SerializeToString(), handles)


def partitioned(
    segments: Sequence[SegmentModel],
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    direct: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> PartitionedModel:
    tensors = {v.name: v for v in (*inputs, *outputs)}
    graph = OpGraph(
        (), tensors, tuple(v.name for v in inputs), tuple(v.name for v in outputs), frozenset(constants or {}), {}
    )
    return PartitionedModel(
        graph,
        tuple(segments),
        tuple(inputs),
        tuple(outputs),
        direct or {},
        {name: weight(name, array) for name, array in (constants or {}).items()},
    )


def cpus(count: int) -> LocalDevices:
    machine = usable_cores()
    devices = {
        f"cpu:{i}": LocalDevice(f"cpu:{i}", "cpu", (machine[i % len(machine)],), 0, 1 << 34, count > len(machine))
        for i in range(count)
    }
    return LocalDevices(devices, ())


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), name=f"{op_type.lower()}_{outputs[0]}", **attributes)


def chain(length: int, devices: int = 2, size: int = 4) -> PartitionedModel:
    """x -> +x -> +x ...: segment i adds x to the value before it, devices taking turns: output is (length + 1) * x."""
    shape = (size,)
    segments = []
    previous = "x"
    for i in range(length):
        made = f"v{i}"
        reads = [info(n, shape) for n in dict.fromkeys((previous, "x"))]
        segments.append(
            segment(f"s{i}", f"cpu:{i % devices}", [node("Add", [previous, "x"], [made])], reads, [info(made, shape)])
        )
        previous = made
    return partitioned(segments, [info("x", shape)], [info(previous, shape)])


def ramp(size: int = 4) -> Any:
    return np.arange(size, dtype=np.float32)
