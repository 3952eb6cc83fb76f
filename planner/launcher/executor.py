"""Runs the steps of a partitioned model on its workers: what a :class:`PlannedSession` is made of."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from planner.errors import ExecutionError, FddpsError
from planner.launcher.routes import routes_by_device
from planner.launcher.worker import Inbox, SegmentRoute, SegmentTime, StepReport, StopFlag, Worker
from planner.partition.types import PartitionedModel
from planner.runtime.devices import LocalDevice
from planner.runtime.session import SegmentSession, WeightStore, stub_folder

_ENDLESS_NS: Final = 1 << 62
_JOIN_S: Final = 10.0
_EXIT_JOIN_S: Final = 0.5
# Where one device runs all, and a step takes no longer than this, it runs in the caller's thread: waking a worker and
# being woken cost 0.1 to 0.7 ms on idle cores. A longer step stays with the worker, so that Ctrl-C can end it.
HERE_NS: Final = 20_000_000
_abandoned: list[Any] = []


@dataclass(frozen=True, slots=True)
class SegmentTiming:
    """When a segment ran, by ``time.perf_counter_ns``."""

    segment: str
    device: str
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
    """

    values: Mapping[str, Any]
    timings: tuple[SegmentTiming, ...]
    peak_bytes: Mapping[str, int]


class Executor:
    """Sessions and workers of a partitioned model.

    Args:
        model: what to run.
        devices: every device that its segments name.

    Attributes:
        lock: held during a step, so that concurrent callers take turns.
        last_ns: how long the last step took; as good as endless once the session is of no use any more. Whoever runs a
            step sets it, holding ``lock``.

    Raises:
        ExecutionError: if a session cannot be created.
    """

    def __init__(self, model: PartitionedModel, devices: Mapping[str, LocalDevice]) -> None:
        self._segments = [(segment.id, segment.device) for segment in model.segments]
        routes = routes_by_device(model)
        self._devices = [devices[name] for name in routes]
        self._feeds = [_feeds_of(model, name) for name in routes]
        self._reports: SimpleQueue[StepReport] = SimpleQueue()
        self._called_off = StopFlag()
        self._inboxes: list[Inbox] = [SimpleQueue() for _ in routes]
        self.lock = threading.Lock()
        self._step = 0
        self._process = os.getpid()
        self.last_ns = _ENDLESS_NS
        self.weight_bytes = {name: _weight_bytes(model, name) for name in routes}
        weights = WeightStore()
        with stub_folder() as stubs:
            self._workers = []
            for index, (name, device_routes) in enumerate(routes.items()):
                share = 2 * self.weight_bytes[name] > devices[name].memory_bytes > 0
                build = partial(_build, model, device_routes, devices[name], weights, stubs, share)
                worker = Worker(
                    index, devices[name], build, device_routes, self._inboxes, self._reports, self._called_off
                )
                self._workers.append(worker)
            # At interpreter exit too, and before that when nobody holds this object any more.
            self._finalizer = weakref.finalize(
                self, _stop, self._workers, self._inboxes, self._called_off, _EXIT_JOIN_S
            )
            self._start()

    def run(self, feeds: Mapping[str, Any], *, owners: Any, traced: bool = False) -> StepResult:
        """Run one step; concurrent callers take turns.

        Args:
            feeds: graph input -> inner C value of ONNX Runtime, or a numpy array of strings.
            owners: what keeps the memory behind ``feeds`` alive; inner values do not.
            traced: keep every value that a segment makes, and measure the memory they take.

        Raises:
            ExecutionError: if a segment fails, or the executor is closed.
        """
        with self.lock:
            if not self._finalizer.alive:
                raise ExecutionError("the session is closed", next_step="open the plan again")
            self._step += 1
            step = self._step
            for worker in self._workers:
                worker.run_options.terminate = False
            parcels = [{name: feeds[name] for name in names} for names in self._feeds]
            if self._here():
                reports = [self._workers[0].run_here(step, parcels[0], traced)]
            else:
                reports = self._wait(step, parcels, traced, owners)
            result = self._result(reports)
            if result.timings:
                self.last_ns = result.timings[-1].end_ns - result.timings[0].start_ns
        return result

    @property
    def only_worker(self) -> Worker:
        """The worker of the only device."""
        (worker,) = self._workers
        return worker

    def _here(self) -> bool:
        """Whether a step should run in the calling thread."""
        return len(self._workers) == 1 and self.last_ns <= HERE_NS and self._devices[0].type == "cpu"

    def close(self) -> None:
        """Stop the workers and free their sessions; may be called again."""
        with self.lock:
            self.last_ns = _ENDLESS_NS
            if self._finalizer.detach() is not None:
                _stop(self._workers, self._inboxes, self._called_off, _JOIN_S)

    def _start(self) -> None:
        """Start the workers and wait until all sessions exist."""
        try:
            for worker in self._workers:
                worker.thread.start()
            reports = sorted((self._reports.get() for _ in self._workers), key=lambda report: report.worker)
        except BaseException:
            self._finalizer()
            raise
        for report in reports:
            if report.error is not None:
                self._finalizer.detach()
                _stop(self._workers, self._inboxes, self._called_off, _JOIN_S)
                raise report.error

    def _wait(self, step: int, parcels: list[dict[str, Any]], traced: bool, owners: Any) -> list[StepReport]:
        """Start a step and collect a report from every worker.

        The first error, or Ctrl-C or what another signal's handler raises at any point, calls the step off and is
        raised when all workers have stopped.
        """
        if os.getpid() != self._process:
            raise ExecutionError(
                "the workers did not come along into this process", next_step="open the plan after the fork"
            )
        reports: list[StepReport] = []
        first: BaseException | None = None
        broken = False
        started = 0
        while len(reports) < len(parcels) if first is None else self._busy(step, started):
            try:
                if first is None and started < len(parcels):
                    # Counted first: CPython looks for signals after the call, so a worker that got the step counts.
                    started += 1
                    self._inboxes[started - 1].put(("run", step, parcels[started - 1], traced))
                    continue
                # Without a timeout, and interruptible by Ctrl-C in the main thread all the same.
                report = self._reports.get()
            except BaseException as problem:
                if first is not None:
                    # A second Ctrl-C while a segment does not end: leave; the session is of no use any more, but
                    # the segment still reads its inputs.
                    _abandoned.append(owners)
                    self._give_up()
                    raise
                first = problem
                self._call_off(step)
                continue
            if report.step != step:
                continue
            reports.append(report)
            if report.error is not None and first is None:
                first = report.error
                # Anything else is a defect, and has ended that worker's thread.
                broken = not isinstance(first, FddpsError)
                self._call_off(step)
        if broken:
            self._give_up()
        if first is not None:
            raise first
        return reports

    def _give_up(self) -> None:
        self.last_ns = _ENDLESS_NS
        self._finalizer()

    def _busy(self, step: int, started: int) -> bool:
        """Whether a worker is still at a step that was called off.

        Not by counting reports: Ctrl-C takes away the one that ``get`` was about to return. A worker that is busy puts
        another, so that ``get`` returns.
        """
        return any(worker.finished_step < step for worker in self._workers[:started])

    def _call_off(self, step: int) -> None:
        _call_off(self._workers, self._inboxes, self._called_off, step)

    def _result(self, reports: list[StepReport]) -> StepResult:
        values: dict[str, Any] = {}
        times: list[SegmentTime] = []
        for report in reports:
            values.update(report.outputs)
            times += report.times
        times.sort(key=lambda entry: entry.position)
        timings = tuple(SegmentTiming(*self._segments[t.position], t.start_ns, t.end_ns) for t in times)
        peaks = {self._devices[report.worker].name: report.peak_bytes for report in reports}
        return StepResult(values, timings, peaks)


def _build(
    model: PartitionedModel,
    routes: tuple[SegmentRoute, ...],
    device: LocalDevice,
    weights: WeightStore,
    stubs: Any,
    share_weights: bool,
) -> list[SegmentSession]:
    results = frozenset(info.name for info in model.outputs)
    return [
        SegmentSession(
            model.segments[route.position],
            device,
            weights,
            stubs,
            share_weights=share_weights,
            alone=len(routes) == 1 and not device.shared,
            host_outputs=results,
        )
        for route in routes
    ]


def _feeds_of(model: PartitionedModel, device: str) -> tuple[str, ...]:
    """Graph inputs that segments of a device read."""
    graph_inputs = {info.name for info in model.inputs}
    reads = [info.name for segment in model.segments if segment.device == device for info in segment.inputs]
    return tuple(name for name in dict.fromkeys(reads) if name in graph_inputs)


def _weight_bytes(model: PartitionedModel, device: str) -> int:
    """Bytes of the distinct weights of a device, and of the segment models that have the small ones inside."""
    sizes: dict[str, int] = {}
    for segment in model.segments:
        if segment.device == device:
            sizes[f"model of {segment.id}"] = len(segment.model)
            for name, weight in segment.weights.items():
                sizes[weight.key or f"{segment.id}/{name}"] = weight.info.nbytes
    return sum(sizes.values())


def _call_off(workers: list[Worker], inboxes: list[Inbox], flag: StopFlag, step: int) -> None:
    flag.step = max(flag.step, step)
    for worker, inbox in zip(workers, inboxes, strict=True):
        # Ends a run in progress at its next operator.
        worker.run_options.terminate = True
        inbox.put(("look", step))


def _stop(workers: list[Worker], inboxes: list[Inbox], flag: StopFlag, join_s: float) -> None:
    """Stop all workers; refers to no executor, so that a forgotten one can be collected."""
    for worker, inbox in zip(workers, inboxes, strict=True):
        worker.run_options.terminate = True
        inbox.put(("stop",))
    flag.step = max(flag.step, 1 << 62)
    deadline = time.monotonic() + join_s
    for worker in workers:
        # A garbage collection may come to run this in a worker itself.
        if worker.thread.is_alive() and worker.thread is not threading.current_thread():
            worker.thread.join(max(0.0, deadline - time.monotonic()))
