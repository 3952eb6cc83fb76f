"""Runs the steps of a partitioned model on its workers: what a :class:`PlannedSession` is made of."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from planner.errors import ExecutionError
from planner.launcher.routes import routes_by_device
from planner.launcher.steps import HandoverTiming, Request, SegmentTiming, StepResult
from planner.launcher.worker import Inbox, SegmentRoute, SegmentTime, StepReport, StopFlag, Worker
from planner.partition.types import PartitionedModel
from planner.runtime.devices import LocalDevice
from planner.runtime.heap import give_back
from planner.runtime.session import SegmentSession, WeightStore, stub_folder

_ENDLESS_NS: Final = 1 << 62
_JOIN_S: Final = 10.0
_EXIT_JOIN_S: Final = 0.5
# What a segment gets to end at its next operator, when a step has taken too long.
_PATIENCE_S: Final = 5.0
# Where one device runs all, and a step takes no longer than this, it runs in the caller's thread: waking a worker and
# being woken cost 0.1 to 0.7 ms on idle cores. A longer step stays with the worker, so that Ctrl-C can end it.
HERE_NS: Final = 20_000_000
_abandoned: list[Any] = []


@dataclass(slots=True, eq=False)
class _Open:
    """A step that has begun: how many workers got it, and what came back."""

    step: int
    owners: Any
    begun_s: float
    started: int = 0
    reports: list[StepReport] = field(default_factory=list)


class Executor:
    """Sessions and workers of a partitioned model.

    Args:
        model: what to run.
        devices: every device that its segments name.
        timeout_s: a step that takes longer is called off; None: wait for ever.

    Attributes:
        lock: held during a step, so that concurrent callers take turns.
        last_ns: how long the last step took; as good as endless once the session is of no use any more. Whoever runs a
            step sets it, holding ``lock``.

    Raises:
        ExecutionError: if a session cannot be created.
    """

    def __init__(
        self, model: PartitionedModel, devices: Mapping[str, LocalDevice], *, timeout_s: float | None = None
    ) -> None:
        self._segments = [(segment.id, segment.device) for segment in model.segments]
        routes = routes_by_device(model)
        self._devices = [devices[name] for name in routes]
        self._feeds = [_feeds_of(model, name) for name in routes]
        self._reports: SimpleQueue[StepReport] = SimpleQueue()
        self._called_off = StopFlag()
        self._inboxes: list[Inbox] = [SimpleQueue() for _ in routes]
        self.lock = threading.Lock()
        self._timeout_s = timeout_s
        self._process = os.getpid()
        self._step = 0
        self.last_ns = _ENDLESS_NS
        self.weight_bytes = {name: _weight_bytes(model, name) for name in routes}
        weights = WeightStore()
        with stub_folder() as stubs:
            self._workers = []
            for index, (name, device_routes) in enumerate(routes.items()):
                # While a session is made its weights are there twice.
                needed = self.weight_bytes[name] + _copied_bytes(model, name)
                share = needed > devices[name].memory_bytes > 0
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

    def run(self, request: Request, *, traced: bool = False) -> StepResult:
        """Run one step; concurrent callers take turns.

        Args:
            request: its inputs.
            traced: keep every value that a segment makes, and measure the memory they take.

        Raises:
            ExecutionError: if a segment fails, or the executor is closed.
        """
        results: list[StepResult] = []
        self.run_many([request], results.append, in_flight=1, traced=traced)
        return results[0]

    def run_many(
        self,
        requests: Iterable[Request],
        deliver: Callable[[StepResult], None],
        *,
        in_flight: int,
        traced: bool = False,
    ) -> None:
        """Run a step for each request, several at a time: a device begins the next while others are at the last.

        Args:
            requests: taken one by one, as there is room for them.
            deliver: gets the results in the order of the requests, in the calling thread. Neither it nor ``requests``
                may run a step of this executor.
            in_flight: most steps begun and not delivered; at least 1.
            traced: as in :meth:`run`.

        Raises:
            ExecutionError: if a segment fails, or the executor is closed; steps begun after it are called off.
        """
        with self.lock:
            if not self._finalizer.alive:
                raise ExecutionError("the session is closed", next_step="open the plan again")
            for worker in self._workers:
                worker.run_options.terminate = False
            if self._here():
                for request in requests:
                    self._step += 1
                    report = self._workers[0].run_here(self._step, self._parcels(request)[0], traced)
                    deliver(self._noted([report]))
                return
            self._stream(iter(requests), deliver, in_flight, traced)

    def _parcels(self, request: Request) -> list[dict[str, Any]]:
        """What each worker gets from outside."""
        return [{name: request.feeds[name] for name in names} for names in self._feeds]

    def _noted(self, reports: list[StepReport]) -> StepResult:
        result = self._result(reports)
        if result.timings:
            self.last_ns = result.timings[-1].end_ns - result.timings[0].start_ns
        return result

    def _stream(
        self, requests: Iterator[Request], deliver: Callable[[StepResult], None], in_flight: int, traced: bool
    ) -> None:
        """Start steps and collect a report from every worker for each.

        The first error, or Ctrl-C at any point, calls all begun steps off and is raised when all workers have stopped.
        """
        if os.getpid() != self._process:
            raise ExecutionError(
                "the workers did not come along into this process", next_step="open the plan after the fork"
            )
        window: dict[int, _Open] = {}
        more, broken = True, False
        try:
            while more or window:
                while more and len(window) < in_flight:
                    request = next(requests, None)
                    more = request is not None
                    if request is not None:
                        self._begin(request, window, traced)
                while window and len((first := next(iter(window.values()))).reports) == len(self._workers):
                    del window[first.step]
                    if window:
                        # It waited for this one's turn, and may take its own time from now on.
                        next(iter(window.values())).begun_s = time.monotonic()
                    deliver(self._noted(first.reports))
                if not window or (more and len(window) < in_flight):
                    continue
                report = self._next_report(next(iter(window.values())))
                if report.step in window:
                    window[report.step].reports.append(report)
                    if report.error is not None:
                        broken = report.died
                        raise report.error
        except BaseException:
            self._call_off(self._step)
            self._settle(window)
            if broken:
                self._give_up()
            raise

    def _next_report(self, oldest: _Open) -> StepReport:
        """Interruptible by Ctrl-C in the main thread, with or without a timeout.

        Raises:
            ExecutionError: if the oldest step takes too long.
        """
        if self._timeout_s is None:
            return self._reports.get()
        try:
            return self._reports.get(timeout=max(oldest.begun_s + self._timeout_s - time.monotonic(), 0.0))
        except Empty:
            where = self._doing()
            raise ExecutionError(
                f"the step takes longer than {self._timeout_s:g} s",
                where=where,
                next_step="give it more time" + (", or look at that segment with fddps show" if where else ""),
            ) from None

    def _doing(self) -> str:
        """Which segments run now, and where; nothing where none does."""
        running = [self._segments[worker.running] for worker in self._workers if worker.running >= 0]
        return ", ".join(f"segment {segment} on {device}" for segment, device in running)

    def _begin(self, request: Request, window: dict[int, _Open], traced: bool) -> None:
        parcels = self._parcels(request)
        self._step += 1
        opened = window[self._step] = _Open(self._step, request.owners, time.monotonic())
        for inbox, parcel in zip(self._inboxes, parcels, strict=True):
            # Counted first: CPython looks for signals after the call, so a worker that got the step counts.
            opened.started += 1
            inbox.put(("run", self._step, parcel, traced))

    def _settle(self, window: Mapping[int, _Open]) -> None:
        """Wait until no worker is at a step that was called off.

        Not by counting reports: Ctrl-C takes away the one that ``get`` was about to return. A worker that is busy puts
        another, so that ``get`` returns.
        """
        last: dict[int, int] = {}
        for opened in window.values():
            last.update(dict.fromkeys(range(opened.started), opened.step))
        patience = None if self._timeout_s is None else _PATIENCE_S
        while any(self._workers[worker].finished_step < step for worker, step in last.items()):
            try:
                self._reports.get(timeout=patience)
            except BaseException as problem:
                # A second Ctrl-C while a segment does not end, or an operator that hangs: leave; the session is of no
                # use any more, but the segment still reads its inputs.
                _abandoned.extend(opened.owners for opened in window.values())
                self._give_up()
                if isinstance(problem, Empty):
                    return
                raise

    @property
    def may_run_here(self) -> bool:
        """Whether the calling thread may run steps: it could not be stopped when one takes too long."""
        return self._timeout_s is None

    @property
    def only_worker(self) -> Worker:
        """The worker of the only device."""
        (worker,) = self._workers
        return worker

    def _here(self) -> bool:
        """Whether a step should run in the calling thread."""
        if len(self._workers) != 1 or self._timeout_s is not None:
            return False
        return self.last_ns <= HERE_NS and self._devices[0].type == "cpu"

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
        give_back()

    def _give_up(self) -> None:
        self.last_ns = _ENDLESS_NS
        self._finalizer()

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
        arrivals = sorted((a for report in reports for a in report.arrivals), key=lambda a: a.sent_ns)
        handovers = tuple(
            HandoverTiming(self._devices[a.src].name, self._devices[a.dst].name, a.names, a.sent_ns, a.taken_ns)
            for a in arrivals
        )
        return StepResult(values, timings, peaks, handovers)


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


def _copied_bytes(model: PartitionedModel, device: str) -> int:
    """Bytes that the sessions of a device take if each has its weights for itself."""
    own = [segment for segment in model.segments if segment.device == device]
    return sum(len(s.model) + sum(weight.info.nbytes for weight in s.weights.values()) for s in own)


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
