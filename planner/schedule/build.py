"""From a draft to a plan: names instead of numbers, predictions by the independent simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from planner.cluster.types import Cluster, Device
from planner.errors import UsageError
from planner.graph.op_graph import Op
from planner.model.types import LoadedModel
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
from planner.schedule.drafts import Draft
from planner.simulate.memory import SegmentMemory, peak_bytes
from planner.simulate.simulator import SimulationResult, simulate


@dataclass(frozen=True, slots=True)
class Header:
    """What a plan says about itself, beside the decisions.

    Attributes:
        command: how it was made, without paths.
        version: of the tool.
        model: which model.
        effort: search effort.
        seed: of the planners that draw at random.
        provenance: where costs come from; counts are filled in.
        cluster: the cluster that was asked for.
        dispatch_ns: cost of a segment.
        notes: what a reader should know.
    """

    command: str
    version: str
    model: ModelRef
    effort: str
    seed: int
    provenance: CostProvenance
    cluster: Cluster
    dispatch_ns: int
    notes: tuple[str, ...] = ()
    bounds: LowerBounds = field(default_factory=lambda: LowerBounds(split_ns=0, any_ns=0))


def build_plan(draft: Draft, model: LoadedModel, header: Header) -> tuple[Plan, SimulationResult]:
    """The plan of a draft, with what the simulator predicts for it.

    Args:
        draft: a complete candidate.
        model: the model it splits.
        header: everything else.

    Raises:
        UsageError: if a number is larger than a plan can hold.
    """
    try:
        return _predicted(_plan(draft, model, header), draft, _segment_ids(draft))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        raise UsageError(
            f"{first['input']!r} is more than a plan can hold",
            where=".".join(map(str, first["loc"])),
            expected="sizes and times of at most 2**53 bytes and ns",
            next_step="use a smaller --batch, or check --input-shape",
        ) from None


def _plan(draft: Draft, model: LoadedModel, header: Header) -> Plan:
    """The plan without predictions."""
    ids = _segment_ids(draft)
    empty = Predictions(
        step_ns=0,
        transfer_ns=0,
        transfer_bytes=0,
        devices=(),
        critical_path=(),
        lower_bounds=header.bounds,
        candidates=(),
    )
    workload = draft.workload
    return Plan(
        tool=Tool(version=header.version),
        command=header.command,
        planner=draft.planner,
        effort=header.effort,
        seed=header.seed,
        why="",
        notes=header.notes,
        model=header.model,
        inputs={name: _input_spec(model, name) for name in model.graph.inputs},
        cluster=_cluster_spec(draft, header.cluster),
        costs=header.provenance.model_copy(update={"measured": workload.measured, "estimated": workload.estimated}),
        dispatch_ns=header.dispatch_ns,
        splits=tuple(Split(op=s.op, axis=s.axis, sizes=s.sizes) for s in workload.splits),
        devices=_queues(draft, header.cluster, ids),
        transfers=tuple(
            TransferSpec(tensor=workload.tensors[t.tensor], src=ids[t.src], dst=ids[t.dst], nbytes=t.nbytes)
            for t in draft.cut.transfers
        ),
        predictions=empty,
    )


def with_candidates(
    plan: Plan, why: str, candidates: Sequence[Candidate], one_device_ns: int | None, bounds: LowerBounds
) -> Plan:
    """The same plan with the race's outcome."""
    predictions = plan.predictions.model_copy(
        update={"candidates": tuple(candidates), "one_device_step_ns": one_device_ns, "lower_bounds": bounds}
    )
    return plan.model_copy(update={"why": why, "predictions": predictions})


def _segment_ids(draft: Draft) -> list[str]:
    return [f"s{number}" for number in range(len(draft.cut.segments))]


def _input_spec(model: LoadedModel, name: str) -> InputSpec:
    info = model.graph.tensors[name]
    return InputSpec(dtype=info.dtype, shape=info.dims)


def _device_spec(device: Device, members: tuple[str, ...] = ()) -> DeviceSpec:
    return DeviceSpec(
        name=device.name,
        kind=device.kind,
        type="cuda" if device.type == "cuda" else "cpu",
        memory_bytes=device.memory_bytes,
        node=device.node,
        cores=device.cores,
        index=device.index,
        uuid=device.uuid,
        shared=device.shared,
        members=members,
    )


def _cluster_spec(draft: Draft, cluster: Cluster) -> ClusterSpec:
    spanning = [device for device in draft.cluster.devices if device.name in draft.members]
    return ClusterSpec(
        nodes=cluster.nodes(),
        devices=(
            *(_device_spec(device) for device in cluster.devices),
            *(_device_spec(device, draft.members[device.name]) for device in spanning),
        ),
        links=tuple(
            LinkSpec(
                src=link.src,
                dst=link.dst,
                latency_ns=link.latency_ns,
                bytes_per_s=link.bytes_per_s,
                channel=link.channel,
                kind=link.kind,
            )
            for link in cluster.links
        ),
    )


def _queues(draft: Draft, cluster: Cluster, ids: Sequence[str]) -> tuple[DeviceQueue, ...]:
    """One queue for every device of the cluster, idle ones too."""
    found: dict[str, list[Segment]] = {device.name: [] for device in cluster.devices}
    for number, segment in enumerate(draft.cut.segments):
        device = draft.cluster.devices[segment.device]
        compute = draft.cut.compute_ns[number]
        tasks = tuple(op.name for op in segment_ops(draft, number))
        found.setdefault(device.name, []).append(Segment(id=ids[number], compute_ns=compute, tasks=tasks))
    return tuple(DeviceQueue(device=name, segments=tuple(queue)) for name, queue in found.items())


def segment_ops(draft: Draft, number: int) -> list[Op]:
    """Operators of a segment in an order that can run: that of the split graph."""
    workload = draft.workload
    chosen = [op for task in draft.cut.segments[number].tasks for op in workload.groups.members[task]]
    return sorted(chosen, key=lambda op: workload.position[op.name])


def _predicted(plan: Plan, draft: Draft, ids: Sequence[str]) -> tuple[Plan, SimulationResult]:
    result = simulate(plan)
    graph = draft.workload.split.graph
    memory = {ids[number]: _segment_memory(draft, number) for number in range(len(ids))}
    peaks = peak_bytes(result, memory, graph_outputs=graph.outputs)
    predictions = plan.predictions.model_copy(
        update={
            "step_ns": result.step_ns,
            "transfer_ns": result.transfer_ns,
            "transfer_bytes": result.transfer_bytes,
            "devices": tuple(
                DevicePrediction(
                    device=queue.device, busy_ns=result.busy_ns[queue.device], peak_bytes=peaks[queue.device]
                )
                for queue in plan.devices
            ),
            "critical_path": result.critical_path,
        }
    )
    return plan.model_copy(update={"predictions": predictions}), result


def _segment_memory(draft: Draft, number: int) -> SegmentMemory:
    workload = draft.workload
    graph = workload.split.graph
    ops = segment_ops(draft, number)
    own = {name for op in ops for name in op.writes}
    reads = {
        name: graph.tensors[name].nbytes
        for op in ops
        for name in op.reads
        if name not in own and name not in workload.split.weights
    }
    tasks = draft.cut.segments[number].tasks
    weights: dict[str, int] = {}
    for task in tasks:
        weights.update(workload.weights[task])
    inside = {op.name for op in ops}
    leaving = {
        name
        for name in own
        if name in workload.outputs or any(reader.name not in inside for reader in workload.readers.get(name, ()))
    }
    writes = {name: graph.tensors[name].nbytes for op in ops for name in op.writes if name in leaving}
    return SegmentMemory(weights, reads, writes, _inner_peak(draft, ops, leaving))


def _inner_peak(draft: Draft, ops: Sequence[Op], leaving: set[str]) -> int:
    """Most bytes of values that stay inside, by liveness in the segment's order."""
    graph = draft.workload.split.graph
    last: dict[str, int] = {}
    for position, op in enumerate(ops):
        for name in op.reads:
            last[name] = position
    own: Mapping[str, int] = {
        name: graph.tensors[name].nbytes for op in ops for name in op.writes if name not in leaving
    }
    now = peak = 0
    for position, op in enumerate(ops):
        now += sum(own.get(name, 0) for name in op.writes)
        peak = max(peak, now)
        now -= sum(own[name] for name in op.reads if name in own and last[name] == position)
        now -= sum(own[name] for name in op.writes if name in own and name not in last)
    return peak
