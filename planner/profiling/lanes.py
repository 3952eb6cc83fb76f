"""Running the lanes of a split graph at the same time, as its devices would.

Each lane is one session with everything that lane computes; values that other lanes make are random
inputs, so nothing waits, and what is measured is computation under the contention of all devices at work.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any, Final

import onnxruntime as ort

from planner.graph.op_graph import Array, Op
from planner.model.serialize import build_model
from planner.model.types import LoadedModel
from planner.partition.free import FreeIndex
from planner.partition.split_graph import SplitGraph
from planner.partition.types import SegmentModel
from planner.profiling.kernels import kernel_times
from planner.runtime.devices import LocalDevice
from planner.runtime.feeds import random_feeds
from planner.runtime.session import SegmentSession, WeightStore, execution_error, stub_folder
from planner.runtime.threads import run_in_threads
from planner.runtime.values import ORT_ERRORS, own

_LONG_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class LaneTimes:
    """What one lane took.

    Attributes:
        step_ns: lower quartile of a step, all lanes running, without the profiler.
        repeats: of how many steps.
        kernels: node of the optimised graph -> nanoseconds a step, with it.
    """

    step_ns: int
    repeats: int
    kernels: Mapping[str, int]


class _ProfiledSession(SegmentSession):
    """A session whose kernels are timed."""

    prefix = ""

    def _options(self, stubs: Path, share_weights: bool) -> ort.SessionOptions:
        options = super()._options(stubs, share_weights)
        options.enable_profiling = True
        options.profile_file_prefix = self.prefix
        return options

    def end_profiling(self) -> Path:
        """Write the profile."""
        return Path(self._session.end_profiling())


def lane_model(model: LoadedModel, split: SplitGraph, ops: Sequence[Op], name: str) -> SegmentModel:
    """Some tasks of a split graph as one model; what they do not make themselves is an input."""
    graph = split.graph
    every = FreeIndex(graph).with_needed(ops)
    made = {value for op in every for value in op.writes}
    reads = tuple(dict.fromkeys(value for op in every for value in op.reads))
    inside = {op.name for op in every}
    consumers = graph.consumers()
    inputs = tuple(value for value in reads if value not in made and value not in split.weights)
    outputs = tuple(
        value
        for op in ops
        for value in op.writes
        if graph.tensors[value].kind == "tensor"
        and (value in graph.outputs or any(reader.name not in inside for reader in consumers.get(value, ())))
    )
    # A lane that nobody reads still has to compute something.
    outputs = outputs or tuple(value for value in ops[-1].writes[:1])
    data, weights = build_model(
        every,
        tensors=graph.tensors,
        inputs=inputs,
        outputs=outputs,
        weights={value: split.weights[value] for value in reads if value in split.weights},
        opsets=model.opsets,
        ir_version=model.ir_version,
        functions=model.functions,
    )
    infos = graph.tensors
    return SegmentModel(name, name, tuple(infos[v] for v in inputs), tuple(infos[v] for v in outputs), data, weights)


def time_lanes(
    lanes: Sequence[SegmentModel],
    devices: Sequence[LocalDevice],
    feeds: Mapping[str, Array],
    *,
    seconds: float,
    kernels_of: int = 0,
) -> list[LaneTimes]:
    """Run all lanes at once, each on its device, and time them.

    Args:
        lanes: one model a device.
        devices: where they run.
        feeds: values for some inputs; others are random.
        seconds: how long to repeat; at least three steps are run, two of those that take over a second.
        kernels_of: lane whose kernels are timed as well, afterwards.

    Raises:
        ExecutionError: if a lane cannot run.
    """
    store = WeightStore()
    values = [_inputs(lane, device, feeds) for lane, device in zip(lanes, devices, strict=True)]
    with stub_folder() as stubs:
        makers = [
            partial(SegmentSession, lane, device, store, stubs, alone=not device.shared)
            for lane, device in zip(lanes, devices, strict=True)
        ]
        steps = _together(makers, devices, values, seconds)
        kernels = _kernels(lanes[kernels_of], devices[kernels_of], store, stubs, values[kernels_of], seconds)
    return [
        LaneTimes(lower_quartile(found), len(found), kernels if number == kernels_of else {})
        for number, found in enumerate(steps)
    ]


def _inputs(lane: SegmentModel, device: LocalDevice, feeds: Mapping[str, Array]) -> list[Any]:
    random = random_feeds([info for info in lane.inputs if info.name not in feeds], 0, int_high=2)
    arrays = [feeds[info.name] if info.name in feeds else random[info.name] for info in lane.inputs]
    try:
        return [array if array.dtype.kind in "OUST" else own(array) for array in arrays]
    except ORT_ERRORS as problem:
        raise execution_error(problem, lane.id, device, "has an input that ONNX Runtime cannot hold") from None


def lower_quartile(times: Sequence[int]) -> int:
    """A steadier figure than the median on a busy machine: what disturbs a run only makes it longer."""
    return sorted(times)[len(times) // 4]


def _together(
    makers: Sequence[Callable[[], SegmentSession]],
    devices: Sequence[LocalDevice],
    values: Sequence[list[Any]],
    seconds: float,
    few: int = 2,
) -> list[list[int]]:
    """Nanoseconds of the steps of each lane, all starting each step together.

    Long steps spread less, and may be repeated just ``few`` times, others three times at least.
    """
    barrier = threading.Barrier(len(makers))
    times: list[list[int]] = [[] for _ in makers]
    problems: list[BaseException] = []
    repeats = [1]
    options = [ort.RunOptions() for _ in makers]

    def work(number: int) -> None:
        try:
            _pin(devices[number])
            session = makers[number]()
            barrier.wait()
            begin = time.perf_counter_ns()
            session.run(values[number], options[number])
            first = time.perf_counter_ns() - begin
            barrier.wait()
            if number == 0:
                least = few if first > _LONG_NS else 3
                repeats[0] = max(least, min(30, int(seconds * 1e9 / max(first, 1))))
            barrier.wait()
            for _ in range(repeats[0]):
                barrier.wait()
                begin = time.perf_counter_ns()
                session.run(values[number], options[number])
                times[number].append(time.perf_counter_ns() - begin)
        except threading.BrokenBarrierError:
            return
        except BaseException as problem:
            problems.append(problem)
            barrier.abort()

    def stop() -> None:
        barrier.abort()
        for option in options:
            option.terminate = True

    run_in_threads([partial(work, number) for number in range(len(makers))], stop)
    if problems:
        raise problems[0]
    return times


def _kernels(
    lane: SegmentModel,
    device: LocalDevice,
    store: WeightStore,
    stubs: Path,
    values: list[Any],
    seconds: float,
) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="fddps-") as folder:
        made: list[_ProfiledSession] = []

        def make() -> SegmentSession:
            kind = type("_Profiled", (_ProfiledSession,), {"prefix": os.path.join(folder, "kernels")})
            made.append(kind(lane, device, store, stubs))
            return made[0]

        _together([make], [device], [values], seconds / 2, few=1)
        found = kernel_times(made[0].end_profiling())
    # A kernel in a loop's body runs several times a step: the least-run one counts the steps.
    steps = max(min((len(runs) for runs in found.values()), default=1), 1)
    return {name: median_low(runs) * max(len(runs) // steps, 1) for name, runs in found.items()}


def _pin(device: LocalDevice) -> None:
    if device.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(device.cores[:1]))
