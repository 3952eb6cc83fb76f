"""What goes into a step and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SegmentTiming:
    """When a segment ran, by ``time.perf_counter_ns``."""

    segment: str
    device: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class HandoverTiming:
    """When values went from one device to another, by ``time.perf_counter_ns``.

    Attributes:
        src: device that sent them.
        dst: device that took them.
        names: of the values.
        start_ns: when they were sent.
        end_ns: when the receiver took them, which it does when it has nothing else to do.
    """

    src: str
    dst: str
    names: tuple[str, ...]
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """One executed step.

    Attributes:
        values: graph outputs that segments made; in a traced step all values that segments made. Values of ONNX
            Runtime, or numpy arrays of strings.
        timings: one entry a segment, in the partitioned model's order.
        peak_bytes: by device, most bytes of values alive at one time; only in a traced step, else 0.
        handovers: between devices, in the order in which they were sent.
    """

    values: Mapping[str, Any]
    timings: tuple[SegmentTiming, ...]
    peak_bytes: Mapping[str, int]
    handovers: tuple[HandoverTiming, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One step to run.

    Attributes:
        feeds: graph input -> inner C value of ONNX Runtime, or a numpy array of strings.
        owners: what keeps the memory behind ``feeds`` alive; inner values do not.
    """

    feeds: Mapping[str, Any]
    owners: Any
