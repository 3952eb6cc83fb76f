"""Several requests in flight, steps that take too long, and timing that must not matter."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from planner.errors import ExecutionError, InputError
from planner.launcher.planned_session import PlannedSession
from tests.launcher.helpers import chain, cpus, info, node, partitioned, ramp, segment


def wrap_runs(session: PlannedSession, around: Callable[[int, Callable[[], Any]], Any]) -> None:
    """Every segment's run goes through ``around(worker, run)``."""
    for number, worker in enumerate(session._executor._workers):
        for inner in worker._sessions:
            inner.run = _wrapped(number, inner.run, around)  # type: ignore[method-assign]


def _wrapped(number: int, run: Callable[..., Any], around: Callable[[int, Callable[[], Any]], Any]) -> Any:
    return lambda values, options: around(number, lambda: run(values, options))


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("in_flight", [1, 2, 5, 50])
def test_requests_in_flight_are_answered_in_order(devices: int, in_flight: int) -> None:
    got: list[Any] = []
    with PlannedSession.from_partition(chain(7, devices), cpus(devices)) as session:
        requests = ({"x": ramp() * k} for k in range(20))
        session.run_many(None, requests, got.append, in_flight=in_flight)
        for k, (value,) in enumerate(got):
            np.testing.assert_array_equal(value, ramp() * k * 8)
        assert len(got) == 20
        np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp() * 8)


def test_a_device_begins_the_next_request_while_another_is_at_the_last() -> None:
    second_began = threading.Event()
    steps = {0: 0, 1: 0}
    overlapped = []

    def around(worker: int, run: Callable[[], Any]) -> Any:
        steps[worker] += 1
        if worker == 0 and steps[0] == 2:
            second_began.set()
        if worker == 1 and steps[1] == 1:
            overlapped.append(second_began.wait(timeout=20))
        return run()

    with PlannedSession.from_partition(chain(2), cpus(2)) as session:
        wrap_runs(session, around)
        session.run_many(None, [{"x": ramp()}, {"x": ramp()}], lambda _: None, in_flight=2)
    assert overlapped == [True]


def test_requests_are_taken_only_when_there_is_room() -> None:
    taken, answered = [], []

    def requests() -> Iterator[dict[str, Any]]:
        for number in range(9):
            assert len(taken) - len(answered) < 3
            taken.append(number)
            yield {"x": ramp()}

    with PlannedSession.from_partition(chain(4), cpus(2)) as session:
        session.run_many(None, requests(), answered.append, in_flight=3)
    assert len(answered) == 9


def failing() -> Any:
    """Gather on cpu:0, Neg on cpu:1: an index out of range fails on the first."""
    x, i, a, y = info("x"), info("i", (1,), "int64"), info("a", (1,)), info("y", (1,))
    first = segment("s0", "cpu:0", [node("Gather", ["x", "i"], ["a"])], [x, i], [a])
    second = segment("s1", "cpu:1", [node("Neg", ["a"], ["y"])], [a], [y])
    return partitioned([first, second], [x, i], [y])


@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_failing_request_ends_the_run_and_the_session_goes_on(in_flight: int) -> None:
    got: list[Any] = []
    requests = [{"x": ramp(), "i": np.array([k if k != 2 else 99])} for k in (0, 1, 2, 3, 0, 1)]
    with PlannedSession.from_partition(failing(), cpus(2)) as session:
        for _ in range(3):
            with pytest.raises(ExecutionError, match=r"segment s0 on cpu:0: failed in Gather"):
                session.run_many(None, requests, got.append, in_flight=in_flight)
            assert [float(value[0]) for (value,) in got] == [0.0, -1.0][: len(got)]
            got.clear()
            (value,) = session.run(None, {"x": ramp(), "i": np.array([3])})
            assert float(value[0]) == -3.0


def test_errors_of_the_caller_leave_the_session_usable() -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield {"x": ramp()}
        raise RuntimeError("no more")

    def refuse(_: list[Any]) -> None:
        raise RuntimeError("not this one")

    with PlannedSession.from_partition(chain(4), cpus(2)) as session:
        for requests, deliver in ((broken(), lambda _: None), ([{"x": ramp()}] * 5, refuse)):
            with pytest.raises(RuntimeError, match=r"no more|not this one"):
                session.run_many(None, requests, deliver, in_flight=2)
            np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp() * 5)
        with pytest.raises(InputError, match="no value for 'x'"):
            session.run_many(None, [{}], lambda _: None)
        with pytest.raises(InputError, match="0 requests in flight"):
            session.run_many(None, [{"x": ramp()}], lambda _: None, in_flight=0)
        np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp() * 5)


def test_a_step_that_takes_too_long_is_called_off_and_the_next_one_runs() -> None:
    slow = threading.Event()
    slow.set()

    def around(worker: int, run: Callable[[], Any]) -> Any:
        if worker == 1 and slow.is_set():
            time.sleep(0.5)
        return run()

    with PlannedSession.from_partition(chain(4), cpus(2), timeout_s=0.1) as session:
        wrap_runs(session, around)
        with pytest.raises(ExecutionError, match=r"segment s1 on cpu:1: the step takes longer than 0\.1 s"):
            session.run(None, {"x": ramp()})
        slow.clear()
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp() * 5)


def test_a_segment_that_hangs_ends_the_session_but_not_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.launcher.executor._PATIENCE_S", 0.1)
    monkeypatch.setattr("planner.launcher.executor._JOIN_S", 0.1)
    release = threading.Event()

    def around(worker: int, run: Callable[[], Any]) -> Any:
        if worker == 1:
            release.wait(timeout=30)
        return run()

    with PlannedSession.from_partition(chain(4), cpus(2), timeout_s=0.1) as session:
        wrap_runs(session, around)
        try:
            with pytest.raises(ExecutionError, match=r"segment s1 on cpu:1"):
                session.run(None, {"x": ramp()})
            with pytest.raises(ExecutionError, match="closed"):
                session.run(None, {"x": ramp()})
        finally:
            release.set()
    for worker in session._executor._workers:
        worker.thread.join(timeout=10)
        assert not worker.thread.is_alive()


@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_worker_that_dies_is_named_with_its_segment_and_all_stop(in_flight: int) -> None:
    def around(worker: int, run: Callable[[], Any]) -> Any:
        if worker == 1:
            raise LookupError("no such thing")
        return run()

    message = r"segment s1 on cpu:1: the worker died: LookupError: no such thing"
    with PlannedSession.from_partition(chain(4), cpus(2)) as session:
        wrap_runs(session, around)
        with pytest.raises(ExecutionError, match=message) as caught:
            session.run_many(None, [{"x": ramp()}] * 5, lambda _: None, in_flight=in_flight)
        assert isinstance(caught.value.__cause__, LookupError)
        with pytest.raises(ExecutionError, match="closed"):
            session.run(None, {"x": ramp()})
        for worker in session._executor._workers:
            assert not worker.thread.is_alive()
    with PlannedSession.from_partition(chain(4), cpus(2)) as session:
        np.testing.assert_array_equal(session.run(None, {"x": ramp()})[0], ramp() * 5)


@pytest.mark.parametrize("seed", range(4))
def test_delays_of_producers_and_consumers_change_no_output(seed: int) -> None:
    pauses = random.Random(seed)

    def around(worker: int, run: Callable[[], Any]) -> Any:
        time.sleep(pauses.choice((0, 0, 0.0005, 0.003)))
        made = run()
        time.sleep(pauses.choice((0, 0, 0.0005, 0.003)))
        return made

    got: list[Any] = []
    with PlannedSession.from_partition(chain(9, 3, size=1000), cpus(3)) as session:
        wrap_runs(session, around)
        session.run_many(None, ({"x": ramp(1000) + k} for k in range(12)), got.append, in_flight=4)
    for k, (value,) in enumerate(got):
        np.testing.assert_array_equal(value, (ramp(1000) + k) * 10)


def test_handovers_are_between_what_makes_a_value_and_what_reads_it() -> None:
    with PlannedSession.from_partition(chain(4), cpus(2)) as session:
        session.run(None, {"x": ramp()})
        result = session.step({"x": ramp()})
    ends = {timing.segment: timing.end_ns for timing in result.timings}
    starts = {timing.segment: timing.start_ns for timing in result.timings}
    assert [(h.src, h.dst, h.names) for h in result.handovers] == [
        ("cpu:0", "cpu:1", ("v0",)),
        ("cpu:1", "cpu:0", ("v1",)),
        ("cpu:0", "cpu:1", ("v2",)),
    ]
    for number, handover in enumerate(result.handovers):
        assert ends[f"s{number}"] <= handover.start_ns <= handover.end_ns <= starts[f"s{number + 1}"]


def test_a_step_may_wait_for_the_others_in_flight_longer_than_it_may_take() -> None:
    def around(worker: int, run: Callable[[], Any]) -> Any:
        time.sleep(0.04)
        return run()

    got: list[Any] = []
    # Twenty steps begun at once, 80 ms a device: the last waits for 1.5 s, and takes no longer than the others.
    with PlannedSession.from_partition(chain(4), cpus(2), timeout_s=1.0) as session:
        wrap_runs(session, around)
        session.run_many(None, [{"x": ramp()}] * 20, got.append, in_flight=20)
    assert len(got) == 20
