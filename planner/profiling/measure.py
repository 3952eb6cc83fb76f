"""Filling a profile: what must be measured for a model on a cluster, and doing it.

What is in the profile already is never measured again. Jobs: the unsplit model on one device of each kind and on all
cores, and each way of splitting the whole graph with all its lanes running at once. After every job the table is handed
to ``keep``, so that an interrupted run loses one job at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnxruntime as ort

from planner.cluster.types import Cluster, Device
from planner.cost.flops import is_view
from planner.cost.keys import group_key
from planner.cost.profile import DISPATCH_KEY, Measurement, ProfileKey, ProfileTable, link_key
from planner.errors import ExecutionError, InputError
from planner.graph.op_graph import Array, Op, OpGraph, TensorInfo
from planner.model.types import LoadedModel
from planner.partition.groups import group_ops
from planner.partition.lanes import op_lanes
from planner.partition.split_graph import SplitGraph, build_split_graph
from planner.profiling.handover import ROUNDS, handover_ns
from planner.profiling.kernels import attribute
from planner.profiling.lanes import lane_model, time_lanes
from planner.runtime.devices import LocalDevice
from planner.split.types import SplitSpec

Progress = Callable[[str, int, int], None]
Keep = Callable[[ProfileTable], None]

# Long enough for a steady median, short enough that a cold plan of a large CNN stays under a minute.
_SECONDS_A_JOB = 1.2


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to run: a way of splitting the graph, on some devices."""

    name: str
    splits: tuple[SplitSpec, ...]
    devices: tuple[Device, ...]
    shares: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Lane:
    """Tasks of one lane with their fused groups and profile keys."""

    device: Device
    ops: tuple[Op, ...]
    groups: tuple[tuple[Op, ...], ...]
    keys: tuple[ProfileKey | None, ...]


def jobs_for(
    cluster: Cluster, all_cores: Device | None, ways: Mapping[str, Sequence[SplitSpec]], shares: Sequence[int] = ()
) -> tuple[Job, ...]:
    """What to run for a model on a cluster.

    Args:
        cluster: the devices.
        all_cores: the device that spans all CPU devices, if there is one.
        ways: names of ways to split the whole graph, with their splits.
        shares: relative speeds of the devices, equal if not given.
    """
    kinds = {device.kind: device for device in reversed(cluster.devices)}
    single = [
        Job(f"unsplit on {device.name}", (), (device,)) for device in sorted(kinds.values(), key=lambda d: d.name)
    ]
    if all_cores is not None and all_cores.kind not in kinds:
        single.append(Job("unsplit on all cores", (), (all_cores,)))
    split = [Job(f"split by {name}", tuple(splits), cluster.devices, tuple(shares)) for name, splits in ways.items()]
    return (*single, *split)


def measure(
    model: LoadedModel,
    cluster: Cluster,
    jobs: Sequence[Job],
    known: ProfileTable,
    *,
    feeds: Mapping[str, Array],
    progress: Progress,
    keep: Keep,
) -> tuple[ProfileTable, tuple[str, ...]]:
    """Measure what the profile lacks.

    Args:
        model: the model.
        cluster: its devices, for hand-overs.
        jobs: see :func:`jobs_for`.
        known: what has been measured before.
        feeds: values for graph inputs; random ones where missing.
        progress: called with a text, the jobs done and all jobs.
        keep: called with the table after every job that measured something.

    Returns:
        The table with what was added, and notes on what could not be measured.
    """
    table, notes = known, []
    types = tuple(dict.fromkeys(device.type for device in cluster.devices))
    total = len(jobs) + 1
    progress("hand-overs", 0, total)
    table = _measure_overheads(cluster, table)
    if table is not known:
        keep(table)
    for position, job in enumerate(jobs):
        progress(job.name, position + 1, total)
        split = build_split_graph(model, job.splits)
        lanes = _lanes(split, job, types)
        if all(key is None or key in table.entries for lane in lanes for key in lane.keys):
            continue
        try:
            table = table.merged(_run(model, split, lanes, feeds, table))
        except (ExecutionError, InputError) as problem:
            notes.append(f"{job.name}: not measured, estimated instead ({problem})")
            continue
        keep(table)
    progress("done", total, total)
    return table, tuple(notes)


def _measure_overheads(cluster: Cluster, table: ProfileTable) -> ProfileTable:
    found: dict[ProfileKey, Measurement] = {}
    devices = [device for device in cluster.devices if device.type == "cpu" and device.cores]
    for device in devices:
        key = ProfileKey(device.kind, "cpu", DISPATCH_KEY)
        if key not in table.entries and key not in found:
            found[key] = _dispatch(device)
    apart = [(a, b) for a in devices for b in devices if a.name != b.name and a.cores[0] != b.cores[0]]
    for src, dst in apart:
        key = ProfileKey(src.kind, "cpu", link_key(dst.kind))
        if key not in table.entries and key not in found:
            found[key] = Measurement(handover_ns(src.cores[0], dst.cores[0]), ROUNDS, ort.__version__)
    return table.merged(ProfileTable(found)) if found else table


def _dispatch(device: Device) -> Measurement:
    """What a session's run costs on top of its kernels: a model of one trivial operator."""
    info = TensorInfo("x", "float32", (1,))
    op = Op("dispatch", "", "Neg", 17, ("x",), ("y",))
    tensors = {"x": info, "y": TensorInfo("y", "float32", (1,))}
    graph = OpGraph((op,), tensors, ("x",), ("y",), frozenset(), {})
    return _trivial_step(graph, device)


def _trivial_step(graph: OpGraph, device: Device) -> Measurement:
    from pathlib import Path

    model = LoadedModel(Path("dispatch.onnx"), graph, {}, {"": 17}, 9, (), ("x",), (), "", ())
    split = build_split_graph(model, ())
    lane = lane_model(model, split, graph.ops, device.name)
    times = time_lanes([lane], [_local(device)], {}, seconds=0.01)[0]
    return Measurement(times.step_ns, times.repeats, ort.__version__)


def _lanes(split: SplitGraph, job: Job, device_types: Sequence[str]) -> list[_Lane]:
    lane_of = op_lanes(split, len(job.devices), job.shares)
    groups = group_ops(split.graph, *device_types).members
    found = []
    for number, device in enumerate(job.devices):
        own = tuple(members for members in groups if lane_of[members[0].name] == number)
        if own:
            names = {op.name for members in own for op in members}
            ops = tuple(op for op in split.graph.ops if op.name in names)
            found.append(_Lane(device, ops, own, tuple(_key(split.graph, members, device) for members in own)))
    return found


def _key(graph: OpGraph, members: Sequence[Op], device: Device) -> ProfileKey | None:
    contexts = [graph.context(op) for op in members]
    if all(is_view(context) for context in contexts):
        return None
    return ProfileKey(device.kind, device.type, group_key(contexts))


def _run(
    model: LoadedModel, split: SplitGraph, lanes: Sequence[_Lane], feeds: Mapping[str, Array], table: ProfileTable
) -> ProfileTable:
    models = [lane_model(model, split, lane.ops, lane.device.name) for lane in lanes]
    found: dict[ProfileKey, Measurement] = {}
    # Devices that share cores are run one at a time: together they would measure each other.
    together = not any(lane.device.shared for lane in lanes)
    for chosen, kernels_of in _passes(lanes, together, table):
        picked = [lanes[number] for number in chosen]
        times = time_lanes(
            [models[number] for number in chosen],
            [_local(lane.device) for lane in picked],
            feeds,
            seconds=_SECONDS_A_JOB,
            kernels_of=kernels_of,
        )
        lane = picked[kernels_of]
        shares, _ = attribute(times[kernels_of].kernels, lane.groups)
        if not sum(shares):
            raise ExecutionError("the profiler named no kernel", where=lane.device.name, expected="kernel times")
        # A run's own overhead is counted once a segment, not in the operators.
        overhead = table.find(lane.device.kind, lane.device.type, DISPATCH_KEY)
        step_ns = max(times[kernels_of].step_ns - (overhead.ns if overhead else 0), 1)
        for key, measurement in _scaled(lane, shares, step_ns, times[kernels_of].repeats):
            if key not in table.entries and key not in found:
                found[key] = measurement
    return ProfileTable(found)


def _passes(lanes: Sequence[_Lane], together: bool, table: ProfileTable) -> Iterator[tuple[list[int], int]]:
    """(lanes to run at once, which of them to look into), until every missing key has been seen."""
    seen: set[ProfileKey] = set()
    for number, lane in enumerate(lanes):
        missing = [key for key in lane.keys if key is not None and key not in table.entries and key not in seen]
        if missing:
            seen.update(missing)
            yield (list(range(len(lanes))), number) if together else ([number], 0)


def _scaled(lane: _Lane, shares: Sequence[int], step_ns: int, repeats: int) -> Iterator[tuple[ProfileKey, Measurement]]:
    """Each key's mean share of the true step: the costs of all groups add up to what the lane took."""
    total = max(sum(shares), 1)
    by_key: dict[ProfileKey, list[int]] = {}
    for key, share in zip(lane.keys, shares, strict=True):
        if key is not None:
            by_key.setdefault(key, []).append(share)
    for key, found in by_key.items():
        yield key, Measurement(sum(found) * step_ns // (total * len(found)), repeats, ort.__version__)


def _local(device: Device) -> LocalDevice:
    return LocalDevice(device.name, device.type, device.cores, device.index, device.memory_bytes, device.shared)
