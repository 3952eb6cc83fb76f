"""Small plans for tests, from as little as each test wants to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.plan.schema import (
    Candidate,
    ClusterSpec,
    CostProvenance,
    DevicePrediction,
    DeviceQueue,
    DeviceSpec,
    InputSpec,
    LinkSpec,
    LowerBounds,
    ModelRef,
    Plan,
    Predictions,
    Segment,
    Split,
    Tool,
    TransferSpec,
)


def make_device(name: str, **fields: Any) -> DeviceSpec:
    core = int(name.rpartition(":")[2]) if name.rpartition(":")[2].isdigit() else 0
    defaults: dict[str, Any] = {"kind": "cpu-test-1c", "type": "cpu", "memory_bytes": 1 << 30, "cores": (core,)}
    return DeviceSpec(name=name, **{**defaults, **fields})


def make_plan(
    queues: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    transfers: Sequence[tuple[str, str, str, int]] = (),
    *,
    latency_ns: int = 10,
    bytes_per_s: int = 1_000_000_000,
    channel: str = "",
    devices: Sequence[DeviceSpec] | None = None,
    **fields: Any,
) -> Plan:
    """A plan.

    Args:
        queues: device -> (segment id, compute_ns); each segment has one task, ``<id>.task``.
        transfers: (tensor, source, destination, bytes).
        latency_ns: of every link.
        bytes_per_s: of every link; 1 GB/s is one byte a nanosecond.
        channel: of every link.
        devices: by default one CPU device a queue.
        fields: any other field of the plan.
    """
    queues = {"cpu:0": [("a", 100)], "cpu:1": [("b", 200)]} if queues is None else queues
    devices = tuple(make_device(name) for name in queues) if devices is None else tuple(devices)
    links = tuple(
        LinkSpec(src=a.name, dst=b.name, latency_ns=latency_ns, bytes_per_s=bytes_per_s, channel=channel)
        for a in devices
        for b in devices
        if a.name != b.name and not a.members and not b.members
    )
    defaults: dict[str, Any] = {
        "tool": Tool(version="0.1.0"),
        "command": "fddps plan --cpus 2",
        "planner": "dcp",
        "why": "the fastest",
        "model": ModelRef(path="model.onnx", digest="sha256:0", simplification=1),
        "inputs": {"x": InputSpec(dtype="float32", shape=(1, 3))},
        "cluster": ClusterSpec(nodes=("node0",), devices=devices, links=links),
        "costs": CostProvenance(measured=3, estimated=1),
        "splits": (Split(op="conv", axis="batch", sizes=(2, 2)),),
        "devices": tuple(
            DeviceQueue(
                device=device,
                segments=tuple(Segment(id=name, compute_ns=ns, tasks=(f"{name}.task",)) for name, ns in segments),
            )
            for device, segments in queues.items()
        ),
        "transfers": tuple(TransferSpec(tensor=t, src=src, dst=dst, nbytes=n) for t, src, dst, n in transfers),
        "predictions": make_predictions(),
    }
    return Plan(**{**defaults, **fields})


def make_predictions(**fields: Any) -> Predictions:
    defaults: dict[str, Any] = {
        "step_ns": 1000,
        "one_device_step_ns": 2000,
        "transfer_ns": 10,
        "transfer_bytes": 100,
        "devices": (DevicePrediction(device="cpu:0", busy_ns=500, peak_bytes=1 << 20),),
        "critical_path": (),
        "lower_bounds": LowerBounds(split_ns=900, any_ns=800),
        "candidates": (Candidate(planner="heft", step_ns=1500), Candidate(planner="single", infeasible="too big")),
    }
    return Predictions(**{**defaults, **fields})
