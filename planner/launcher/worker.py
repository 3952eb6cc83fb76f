"""One persistent, pinned thread a device: it creates its sessions, then runs its segments, step after step.

Workers share nothing but messages. Whoever has a value that another device needs puts it into that worker's inbox, a
C-level queue on which an idle worker blocks. Measured between two pinned threads on two cores: 8 us one way when the
receiver blocks, 31 us when it polls with ``sleep(0)`` first (the global interpreter lock is in its way), so nothing
polls.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

import numpy as np
import onnxruntime as ort

from planner.errors import ExecutionError, FddpsError
from planner.runtime.devices import LocalDevice
from planner.runtime.session import SegmentSession, execution_error
from planner.runtime.values import FOREIGN_TYPES, ORT_ERRORS, element_type, value_nbytes

Inbox = SimpleQueue[tuple[Any, ...]]
# A worker that died is through with every step.
_NO_MORE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class SegmentRoute:
    """Where the values of one segment come from and go to.

    Attributes:
        position: index of the segment in the partitioned model.
        sends: receiving workers, each with the values that it needs from this segment.
        drops: values that nothing on this device reads after this segment.
        results: graph outputs that this segment makes.
    """

    position: int
    sends: tuple[tuple[int, tuple[str, ...]], ...]
    drops: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """When a segment ran, by ``time.perf_counter_ns``."""

    position: int
    start_ns: int
    end_ns: int


class Arrival(NamedTuple):
    """Values from another worker, by ``time.perf_counter_ns``.

    Attributes:
        src: the worker that sent them.
        dst: the worker that took them.
        names: of the values.
        sent_ns: when the sender let go of them.
        taken_ns: when the receiver, having nothing else to do, took them.
    """

    src: int
    dst: int
    names: tuple[str, ...]
    sent_ns: int
    taken_ns: int


@dataclass(slots=True)
class StepReport:
    """What a worker did in one step.

    Attributes:
        worker: its index.
        step: number of the step.
        outputs: graph outputs that it made; in a traced step all values that it made.
        times: one entry a segment, in order.
        arrivals: what came from other workers, in order.
        peak_bytes: most bytes of values alive at one time; only in a traced step.
        error: why it stopped early; None also if it stopped because another worker failed.
        died: whether that ended the worker: it takes no more steps.
    """

    worker: int
    step: int
    outputs: dict[str, Any]
    times: list[SegmentTime]
    arrivals: list[Arrival] = field(default_factory=list)
    peak_bytes: int = 0
    error: BaseException | None = None
    died: bool = False


class StopFlag:
    """Number of the last step that was called off; workers look at it before each segment."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step = 0


class _CalledOff(Exception):
    """Leaves the segment loop of a step that was called off."""


class Worker:
    """One device's thread.

    It takes steps in order, one after the other; while it waits for values of one, messages of later steps may come.

    Args:
        index: its place among the workers.
        device: where it runs.
        build: creates the sessions of the device in order; called in the worker's thread, so that the memory of
            packed weights is first touched, hence placed, where it is used.
        routes: one entry a segment, in execution order.
        inboxes: one for each worker, this one's included.
        reports: where the caller waits.
        called_off: shared by all workers.
    """

    def __init__(
        self,
        index: int,
        device: LocalDevice,
        build: Callable[[], list[SegmentSession]],
        routes: tuple[SegmentRoute, ...],
        inboxes: list[Inbox],
        reports: SimpleQueue[StepReport],
        called_off: StopFlag,
    ) -> None:
        self.index = index
        self.device = device
        self.run_options = ort.RunOptions()
        self.run_options.log_severity_level = 4
        self._build: Callable[[], list[SegmentSession]] | None = build
        self._routes = routes
        self._inboxes = inboxes
        self._inbox = inboxes[index]
        self._reports = reports
        self._called_off = called_off
        self._sessions: list[SegmentSession] = []
        self._step = 0
        self.finished_step = 0
        # Position of the segment that runs, for whoever asks why a step does not end.
        self.running = -1
        # Messages that were taken from the inbox in an earlier step than theirs.
        self._early: list[tuple[Any, ...]] = []
        self._runs: deque[tuple[Any, ...]] = deque()
        # A daemon: an interpreter that exits without close() does not wait for a segment that hangs.
        self.thread = threading.Thread(target=self._main, name=f"fddps-{device.name}", daemon=True)

    def run_here(self, step: int, feeds: dict[str, Any], traced: bool) -> StepReport:
        """Run a step in the calling thread, pinned meanwhile as the worker's is; only while the worker is idle.

        Args:
            step: its number.
            feeds: every value from outside that the device's segments read.
            traced: as in :class:`StepReport`.

        Raises:
            ExecutionError: if a segment fails.
        """
        self._step = step
        report = StepReport(self.index, step, {}, [])
        with self._pinned():
            self._run_step(self._sessions, feeds, traced, report)
        return report

    @property
    def only_session(self) -> SegmentSession:
        """The session of the only segment."""
        (session,) = self._sessions
        return session

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        """The calling thread on the core of the worker's."""
        before = os.sched_getaffinity(0)
        cores = set(self.device.cores[:1]) or before
        if cores == before:
            yield
            return
        try:
            try:
                os.sched_setaffinity(0, cores)
            except OSError as problem:
                raise ExecutionError(
                    f"the core cannot be used: {problem.strerror}",
                    where=self.device.name,
                    next_step="open the plan again",
                ) from None
            yield
        finally:
            os.sched_setaffinity(0, before)

    def _main(self) -> None:
        report = StepReport(self.index, 0, {}, [])
        try:
            if self.device.cores:
                # Linux: 0 is the calling thread. ONNX Runtime pins the others.
                os.sched_setaffinity(0, self.device.cores[:1])
            if self._build is not None:
                self._sessions = self._build()
        except (FddpsError, OSError) as problem:
            report.error = problem
        except BaseException as problem:
            # Reported, so that the caller does not wait for ever, and raised, so that the defect is seen.
            report.error = problem
            raise
        finally:
            # It refers to weights that nothing needs any more.
            self._build = None
            self._reports.put(report)
        if report.error is None:
            self._serve()

    def _serve(self) -> None:
        while True:
            message = self._runs.popleft() if self._runs else self._inbox.get()
            if message[0] == "stop":
                self._sessions = []
                return
            if message[0] == "values" and message[1] > self._step:
                # Another worker was started, and faster, before this one was.
                self._early.append(message)
            if message[0] == "run":
                self._step = message[1]
                if not self._answer(message[2], message[3]):
                    self._sessions = []
                    return
            # Anything else was meant for a step that was called off.
            del message

    def _answer(self, feeds: dict[str, Any], traced: bool) -> bool:
        """Run a step and report; whether the worker lives."""
        report = StepReport(self.index, self._step, {}, [])
        try:
            self._run_step(self._sessions, feeds, traced, report)
        except _CalledOff:
            report.outputs.clear()
        except FddpsError as problem:
            report.error = problem
        except BaseException as problem:
            # A defect, of ours or of what ONNX Runtime calls: the caller gets it, and must not wait for ever.
            report.error, report.died = self._death(problem), True
        finally:
            self._early = [message for message in self._early if message[1] > self._step]
            # Before the report: who waits for one may lose it to a signal, and looks here then.
            self.finished_step = _NO_MORE if report.died else self._step
            self.running = -1
            self._reports.put(report)
        return not report.died

    def _death(self, problem: BaseException) -> ExecutionError:
        """What to tell of an error that nobody foresaw, with that error as its cause."""
        at = [s.id for s, route in zip(self._sessions, self._routes, strict=False) if route.position == self.running]
        error = ExecutionError(
            f"the worker died: {type(problem).__name__}: {problem}",
            where=f"segment {at[0]} on {self.device.name}" if at else self.device.name,
            next_step="open the plan again; if it comes back, report it with the plan",
        )
        error.__cause__ = problem
        return error

    def _run_step(
        self, sessions: list[SegmentSession], feeds: dict[str, Any], traced: bool, report: StepReport
    ) -> None:
        step = self._step
        values: dict[str, Any] = {}
        self._receive(values, feeds)
        for message in self._early:
            if message[1] == step:
                self._accept(message, values, report)
        for route, session in zip(self._routes, sessions, strict=True):
            self._wait_for(session.inputs, values, traced, report)
            given = [values[name] for name in session.inputs]
            self.running = route.position
            start_ns = perf_counter_ns()
            made = session.run(given, self.run_options)
            end_ns = perf_counter_ns()
            self.running = -1
            values.update(zip(session.outputs, made, strict=True))
            report.times.append(SegmentTime(route.position, start_ns, end_ns))
            for name in session.outputs if traced else route.results:
                report.outputs[name] = values[name]
            if traced:
                report.peak_bytes = max(report.peak_bytes, sum(map(value_nbytes, values.values())))
            parcels = [(target, {name: values[name] for name in names}) for target, names in route.sends]
            for name in route.drops:
                del values[name]
            # Before the worker blocks: what nothing reads any more must not stay alive meanwhile.
            del given, made
            # Last, so that the receiver that wakes up does not find this thread holding the interpreter lock.
            self._send(parcels)
            del parcels

    def _send(self, parcels: list[tuple[int, dict[str, Any]]]) -> None:
        for target, parcel in parcels:
            self._inboxes[target].put(("values", self._step, parcel, self.index, perf_counter_ns()))

    def _wait_for(self, names: tuple[str, ...], values: dict[str, Any], traced: bool, report: StepReport) -> None:
        """Block until all of a segment's inputs are here."""
        step = self._step
        while True:
            if self._called_off.step >= step:
                raise _CalledOff
            # Nearly always the first look succeeds, or one message brings all that was missing.
            if all(name in values for name in names):
                return
            message = self._inbox.get()
            if message[0] == "stop":
                self._inbox.put(message)
                raise _CalledOff
            if message[0] == "run":
                self._runs.append(message)
            elif message[0] == "values" and message[1] > step:
                self._early.append(message)
            elif message[0] == "values" and message[1] == step:
                self._accept(message, values, report)
                if traced:
                    report.peak_bytes = max(report.peak_bytes, sum(map(value_nbytes, values.values())))

    def _accept(self, message: tuple[Any, ...], values: dict[str, Any], report: StepReport) -> None:
        """Take over what another worker sent."""
        _, _, parcel, src, sent_ns = message
        self._receive(values, parcel)
        report.arrivals.append(Arrival(src, self.index, tuple(parcel), sent_ns, perf_counter_ns()))

    def _receive(self, values: dict[str, Any], sent: dict[str, Any]) -> None:
        """Take over values from outside: as they are on CPU devices, by one copy on GPUs."""
        if self.device.type == "cpu":
            values.update(sent)
            return
        try:
            for name, value in sent.items():
                values[name] = to_gpu(value, self.device.index)
        except ORT_ERRORS as problem:
            raise execution_error(problem, "inputs", self.device, f"could not receive '{name}'") from None


def to_gpu(value: Any, index: int) -> Any:
    """A value's copy on a GPU, by way of main memory.

    Strings stay where they are, as do types that numpy lacks: ONNX Runtime copies those itself when they are bound.
    """
    if isinstance(value, np.ndarray | list | dict) or not value.is_tensor():
        return value
    if element_type(value.data_type()) in FOREIGN_TYPES:
        return value
    return ort.OrtValue.ortvalue_from_numpy(value.numpy(), "cuda", index)._get_c_value()
