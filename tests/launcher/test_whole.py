from __future__ import annotations

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
