from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from planner.errors import ExecutionError, InputError
from planner.launcher.planned_session import PlannedSession
from tests.launcher.helpers import cpus, info, node, partitioned, ramp, segment


def whole() -> Any:
    """One segment with two inputs and two outputs."""
    x, i, a, y = info("x"), info("i", (2,), "int64"), info("a", (2,)), info("y")
    nodes = [node("Gather", ["x", "i"], ["a"]), node("Neg", ["x"], ["y"])]
    return partitioned([segment("s0", "cpu:0", nodes, [x, i], [a, y])], [x, i], [a, y])


def test_one_segment_runs_as_one_call_of_onnxruntime_and_gives_what_the_long_way_gives() -> None:
    class Feeds(dict[str, Any]):
        """A mapping that ONNX Runtime need not know."""

    index = np.array([3, 0])
    with PlannedSession.from_partition(whole(), cpus(1)) as session:
        first = session.run(None, {"x": ramp(), "i": index})  # by the worker
        for _ in range(3):
            for feeds in ({"x": ramp(), "i": index}, Feeds(x=ramp(), i=index)):
                for got, expected in zip(session.run(None, feeds), first, strict=True):
                    np.testing.assert_array_equal(got, expected)
            assert [timing.segment for timing in session.timings] == ["s0"]
        (y,) = session.run(["y"], {"x": ramp(), "i": index})
        np.testing.assert_array_equal(y, first[1])
        wide = np.zeros((*ramp().shape, 2), np.float32)
        wide[..., 0] = ramp()
        np.testing.assert_array_equal(session.run(["y"], {"x": wide[..., 0], "i": index})[0], y)
        with pytest.raises(InputError, match="no output 'z'"):
            session.run(["z"], {"x": ramp(), "i": index})
        for odd in (["z"], [["y"]], 5):
            with pytest.raises(InputError):
                session.run(odd, {"x": ramp(), "i": index})  # type: ignore[arg-type]
        with pytest.raises(InputError, match="no value for 'i'"):
            session.run(None, {"x": ramp()})
        with pytest.raises(InputError, match="element type float64"):
            session.run(None, {"x": ramp().astype(np.float64), "i": index})
    with pytest.raises(ExecutionError, match="closed"):
        session.run(None, {"x": ramp(), "i": index})


def test_a_failing_operator_of_one_segment_is_named_and_the_session_goes_on() -> None:
    with PlannedSession.from_partition(whole(), cpus(1)) as session:
        for _ in range(3):
            with pytest.raises(ExecutionError, match=r"segment s0 on cpu:0: failed in Gather 'gather_a'"):
                session.run(None, {"x": ramp(), "i": np.array([0, 400])})
            np.testing.assert_array_equal(session.run(["y"], {"x": ramp(), "i": np.array([0, 1])})[0], -ramp())


def two_devices() -> Any:
    """A segment on each of two devices."""
    x, a, y = info("x"), info("a"), info("y")
    first = segment("s0", "cpu:0", [node("Neg", ["x"], ["a"])], [x], [a])
    return partitioned([first, segment("s1", "cpu:1", [node("Neg", ["a"], ["y"])], [a], [y])], [x], [y])


class Late(RuntimeError):
    """What a caller's time-out raises."""


@pytest.mark.parametrize("model", [whole, two_devices])
def test_what_the_callers_signal_handler_raises_comes_through_and_the_session_stays(model: Any) -> None:
    def too_late(*_: Any) -> None:
        raise Late

    feeds = {"x": ramp(), "i": np.array([3, 0])} if model is whole else {"x": ramp()}
    before = signal.signal(signal.SIGALRM, too_late)
    try:
        with PlannedSession.from_partition(model(), cpus(2)) as session:
            expected = session.run(None, feeds)
            for _ in range(5):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                with pytest.raises(Late):
                    while True:
                        session.run(None, feeds)
                for got, wanted in zip(session.run(None, feeds), expected, strict=True):
                    np.testing.assert_array_equal(got, wanted)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_workers_that_a_fork_left_behind_are_not_waited_for() -> None:
    with PlannedSession.from_partition(two_devices(), cpus(2)) as session:
        child = os.fork()
        if child == 0:
            try:
                session.run(None, {"x": ramp()})
            except ExecutionError as problem:
                os._exit(7 if "process" in str(problem) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
