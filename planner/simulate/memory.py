"""Peak memory of each device by liveness, on the times of a simulated step.

Resident from start to end: the weights of a device's segments, each key once. A segment's outputs exist from its
start (the launcher binds them beforehand) until the last reader on that device and the last transfer out of it are
done; graph outputs to the end of the step. A received tensor exists from the moment its transfer starts, a graph input
from the start of the step, until the last reader on that device is done. While a segment runs it also has its inner
activations. Devices that share memory are each charged for what they read: an upper estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from planner.errors import PlanError
from planner.simulate.simulator import SimulationResult

_FREE, _ALLOCATE, _FREE_INSTANT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SegmentMemory:
    """What one segment needs.

    Attributes:
        weights: weight key -> bytes; segments with the same key on one device hold it once.
        reads: value name -> bytes, of values made by other segments and of graph inputs.
        writes: value name -> bytes, of values that leave the segment.
        inner_bytes: most that its inner activations and workspace take at one time.
    """

    weights: Mapping[str, int]
    reads: Mapping[str, int]
    writes: Mapping[str, int]
    inner_bytes: int = 0


def peak_bytes(
    result: SimulationResult, memory: Mapping[str, SegmentMemory], *, graph_outputs: Collection[str] = ()
) -> dict[str, int]:
    """Most bytes that each device holds at one time.

    Args:
        result: when segments run and tensors travel.
        memory: one entry a segment.
        graph_outputs: values that stay where they are made until the step ends.

    Returns:
        Device name -> bytes, for every device of the cluster.

    Raises:
        PlanError: if a segment has no entry in ``memory``.
    """
    missing = next((segment.id for segment in result.segments if segment.id not in memory), None)
    if missing is not None:
        raise PlanError(f"nothing is known of the memory of the segment {missing!r}", where="devices")
    resident: dict[str, dict[str, int]] = {device: {} for device in result.busy_ns}
    events: dict[str, list[tuple[int, int, int]]] = {device: [] for device in result.busy_ns}
    for segment in result.segments:
        resident[segment.device].update(memory[segment.id].weights)
        _add(events[segment.device], segment.start_ns, segment.finish_ns, memory[segment.id].inner_bytes)
    for (device, _), (start_ns, finish_ns, nbytes) in _lifetimes(result, memory, graph_outputs).items():
        _add(events[device], start_ns, finish_ns, nbytes)
    return {device: sum(resident[device].values()) + _peak(events[device]) for device in events}


def _lifetimes(
    result: SimulationResult, memory: Mapping[str, SegmentMemory], graph_outputs: Collection[str]
) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(device, value) -> from, to, bytes."""
    begin: dict[tuple[str, str], int] = {}
    end: dict[tuple[str, str], int] = {}
    nbytes: dict[tuple[str, str], int] = {}
    kept = frozenset(graph_outputs)
    for segment in result.segments:
        for name, size in memory[segment.id].writes.items():
            key = (segment.device, name)
            begin[key] = segment.start_ns
            end[key] = result.step_ns if name in kept else segment.finish_ns
            nbytes[key] = size
    for transfer in result.transfers:
        key = (transfer.dst_device, transfer.tensor)
        begin[key] = min(begin.get(key, transfer.start_ns), transfer.start_ns)
        end[key] = max(end.get(key, 0), transfer.finish_ns)
        nbytes.setdefault(key, transfer.nbytes)
        source = (transfer.src_device, transfer.tensor)
        if source in end:
            end[source] = max(end[source], transfer.finish_ns)
    for segment in result.segments:
        for name, size in memory[segment.id].reads.items():
            key = (segment.device, name)
            begin.setdefault(key, 0)
            end[key] = max(end.get(key, 0), segment.finish_ns)
            nbytes.setdefault(key, size)
    return {key: (begin[key], end[key], nbytes[key]) for key in begin}


def _add(events: list[tuple[int, int, int]], start_ns: int, finish_ns: int, nbytes: int) -> None:
    """At one moment memory is freed before it is taken, but what lives for no time at all is still counted."""
    if nbytes:
        events.append((start_ns, _ALLOCATE, nbytes))
        events.append((finish_ns, _FREE if finish_ns > start_ns else _FREE_INSTANT, -nbytes))


def _peak(events: list[tuple[int, int, int]]) -> int:
    now = most = 0
    for _, _, change in sorted(events):
        now += change
        most = max(most, now)
    return most
