"""Simulates one step of a plan the way the launcher carries it out.

Each device runs its segments in queue order. A segment starts when its device is free and all its transfers have
arrived; it takes ``dispatch_ns + compute_ns``, and its outputs leave when it ends. A transfer takes the link's
latency and ``nbytes / bandwidth``; links of one channel carry one transfer at a time, in order of readiness, then of
the plan; a link without a channel queues only behind itself, and one whose bandwidth does not matter not at all. Data
that stays on its device needs no transfer: the
queue's order covers it. All times are integers, so the same plan gives the same result everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.cluster.types import Link
from planner.errors import PlanError
from planner.plan.check import find_cycle
from planner.plan.schema import Plan
from planner.simulate.core import simulate_arrays
from planner.simulate.critical import critical_path

_SHOWN = 5
_LONGEST_NS = 2**62


@dataclass(frozen=True, slots=True)
class SimulatedSegment:
    """When a segment runs."""

    id: str
    device: str
    start_ns: int
    finish_ns: int


@dataclass(frozen=True, slots=True)
class SimulatedTransfer:
    """When a tensor travels.

    Attributes:
        tensor: value name.
        src: segment that makes it.
        dst: segment that waits for it.
        src_device: where it comes from.
        dst_device: where it goes.
        channel: what it queues on: the link's channel, or ``src->dst`` for a link of its own.
        nbytes: size.
        ready_ns: when its segment has finished.
        start_ns: when the channel takes it.
        finish_ns: when it has arrived.
    """

    tensor: str
    src: str
    dst: str
    src_device: str
    dst_device: str
    channel: str
    nbytes: int
    ready_ns: int
    start_ns: int
    finish_ns: int


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One simulated step.

    Attributes:
        step_ns: from the start to the last segment's finish.
        segments: device by device, each in queue order.
        transfers: in the plan's order.
        busy_ns: device name -> time in segments, dispatch included; every device of the cluster is there.
        link_busy_ns: (source, destination device) -> time on the link, for links that carry something.
        critical_path: segments each of which starts the moment the one before it, or that one's data, lets it; the
            last one ends the step.
        transfer_ns: time of all transfers together, without queueing.
        transfer_bytes: bytes of all transfers together.
    """

    step_ns: int
    segments: tuple[SimulatedSegment, ...]
    transfers: tuple[SimulatedTransfer, ...]
    busy_ns: Mapping[str, int]
    link_busy_ns: Mapping[tuple[str, str], int]
    critical_path: tuple[str, ...]
    transfer_ns: int
    transfer_bytes: int


@dataclass(frozen=True, slots=True)
class _Times:
    """The core's answer as Python integers."""

    step_ns: int
    start_ns: list[int]
    finish_ns: list[int]
    sent_ns: list[int]
    arrival_ns: list[int]


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A plan as the core wants it."""

    ids: list[str]
    device: list[str]
    duration_ns: list[int]
    previous: list[int]
    following: list[int]
    src: list[int]
    dst: list[int]
    transfer_ns: list[int]
    channel: list[int]
    channel_names: list[str]


def simulate(
    plan: Plan, *, dependencies: Mapping[str, Sequence[tuple[str, int, str]]] | None = None
) -> SimulationResult:
    """Simulate one step of a plan.

    Args:
        plan: the plan; its own predictions are not looked at.
        dependencies: segment id -> what it reads: (segment that makes it, bytes, tensor). If given, the plan is also
            held to them: data on one device must be made earlier in its queue, other data must have a transfer.

    Raises:
        PlanError: if the plan names what it does not have, lacks a link or a transfer, or never ends.
    """
    numbered = _number(plan)
    if dependencies is not None:
        _check_dependencies(plan, numbered, dependencies)
    run = _run(plan, numbered)
    segments = tuple(
        SimulatedSegment(*row) for row in zip(numbered.ids, numbered.device, run.start_ns, run.finish_ns, strict=True)
    )
    busy_ns = {device.name: 0 for device in plan.cluster.devices}
    for device, duration in zip(numbered.device, numbered.duration_ns, strict=True):
        busy_ns[device] += duration
    link_busy_ns: dict[tuple[str, str], int] = {}
    for src, dst, duration in zip(numbered.src, numbered.dst, numbered.transfer_ns, strict=True):
        pair = (numbered.device[src], numbered.device[dst])
        link_busy_ns[pair] = link_busy_ns.get(pair, 0) + duration
    path = critical_path(
        run.start_ns,
        run.finish_ns,
        numbered.previous,
        numbered.src,
        numbered.dst,
        numbered.channel,
        run.sent_ns,
        run.arrival_ns,
    )
    return SimulationResult(
        run.step_ns,
        segments,
        _transfers(plan, numbered, run),
        busy_ns,
        link_busy_ns,
        tuple(numbered.ids[index] for index in path),
        sum(numbered.transfer_ns),
        sum(transfer.nbytes for transfer in plan.transfers),
    )


def _run(plan: Plan, numbered: _Numbered) -> _Times:
    # The core counts in 64 bits; no step is longer than everything in a row.
    if sum(numbered.duration_ns) + sum(numbered.transfer_ns) > _LONGEST_NS:
        raise PlanError("the times add up to more than a century", where="devices and transfers")
    result = simulate_arrays(
        numbered.duration_ns,
        numbered.following,
        numbered.src,
        numbered.dst,
        numbered.transfer_ns,
        numbered.channel,
    )
    times = _Times(
        result.step_ns,
        result.start_ns.tolist(),
        result.finish_ns.tolist(),
        result.sent_ns.tolist(),
        result.arrival_ns.tolist(),
    )
    if not result.complete:
        raise _deadlock(plan, numbered, times)
    return times


def _number(plan: Plan) -> _Numbered:
    known = {device.name for device in plan.cluster.devices}
    ids: list[str] = []
    device: list[str] = []
    duration_ns: list[int] = []
    previous: list[int] = []
    for queue in plan.devices:
        if queue.device not in known:
            raise PlanError(f"{queue.device!r} has a queue and is no device of the cluster", where="devices")
        for position, segment in enumerate(queue.segments):
            previous.append(len(ids) - 1 if position else -1)
            ids.append(segment.id)
            device.append(queue.device)
            duration_ns.append(plan.dispatch_ns + segment.compute_ns)
    following = [-1] * len(ids)
    for index, before in enumerate(previous):
        if before >= 0:
            following[before] = index
    position_of = {name: index for index, name in enumerate(ids)}
    links = {
        (spec.src, spec.dst): Link(spec.src, spec.dst, spec.latency_ns, spec.bytes_per_s, spec.channel)
        for spec in plan.cluster.links
    }
    channels: dict[tuple[str, ...], int] = {}
    src, dst, transfer_ns, channel = [], [], [], []
    for transfer in plan.transfers:
        ends = [position_of.get(transfer.src), position_of.get(transfer.dst)]
        if ends[0] is None or ends[1] is None:
            missing = transfer.src if ends[0] is None else transfer.dst
            raise PlanError(f"{transfer.tensor!r} is for a segment {missing!r} that is not there", where="transfers")
        pair = (device[ends[0]], device[ends[1]])
        link = links.get(pair)
        if link is None:
            raise PlanError(
                f"{transfer.tensor!r} goes from {pair[0]!r} to {pair[1]!r} without a link",
                where="transfers",
                expected="a link in cluster.links",
            )
        src.append(ends[0])
        dst.append(ends[1])
        transfer_ns.append(link.transfer_ns(transfer.nbytes))
        channel.append(channels.setdefault(link.queue(len(src)), len(channels)))
    names = ["->".join(key[:2]) for key in channels]
    return _Numbered(ids, device, duration_ns, previous, following, src, dst, transfer_ns, channel, names)


def _transfers(plan: Plan, numbered: _Numbered, run: _Times) -> tuple[SimulatedTransfer, ...]:
    return tuple(
        SimulatedTransfer(
            transfer.tensor,
            transfer.src,
            transfer.dst,
            numbered.device[src],
            numbered.device[dst],
            numbered.channel_names[channel],
            transfer.nbytes,
            run.finish_ns[src],
            sent,
            arrival,
        )
        for transfer, src, dst, channel, sent, arrival in zip(
            plan.transfers, numbered.src, numbered.dst, numbered.channel, run.sent_ns, run.arrival_ns, strict=True
        )
    )


def _check_dependencies(
    plan: Plan, numbered: _Numbered, dependencies: Mapping[str, Sequence[tuple[str, int, str]]]
) -> None:
    position_of = {name: index for index, name in enumerate(numbered.ids)}
    arrives: dict[tuple[str, str], int] = {}
    for transfer, dst in zip(plan.transfers, numbered.dst, strict=True):
        arrives[transfer.tensor, numbered.device[dst]] = dst
    for reader, reads in dependencies.items():
        for maker, _, tensor in reads:
            if reader not in position_of or maker not in position_of:
                raise PlanError(f"{tensor!r} goes from {maker!r} to {reader!r}, which the plan lacks", where="devices")
            index = position_of[reader]
            device = numbered.device[index]
            if numbered.device[position_of[maker]] == device:
                there = position_of[maker]
                problem = "is made later on the same device"
                sound = there < index
            else:
                there = arrives.get((tensor, device), -1)
                problem = "has no transfer" if there < 0 else f"is sent to the later segment {numbered.ids[there]!r}"
                sound = 0 <= there <= index
            if not sound:
                raise PlanError(f"{tensor!r}, which the segment {reader!r} reads, {problem}", where="transfers")


def _deadlock(plan: Plan, numbered: _Numbered, run: _Times) -> PlanError:
    blocked = [name for name, start in zip(numbered.ids, run.start_ns, strict=True) if start < 0]
    names = ", ".join(blocked[:_SHOWN]) + (f" and {len(blocked) - _SHOWN} more" if len(blocked) > _SHOWN else "")
    cycle = find_cycle(plan)
    round_trip = " -> ".join([*cycle[:_SHOWN], *(["..."] if len(cycle) > _SHOWN else []), *cycle[:1]])
    return PlanError(
        f"deadlock: {len(blocked)} segments never start ({names})",
        where="devices and transfers",
        expected=f"no cycle such as {round_trip}",
        next_step="plan again, or change the order of the segments",
    )
