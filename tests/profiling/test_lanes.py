"""Lanes are run at the same time, and one that fails stops the others instead of leaving them waiting."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from planner.cluster.cpu import usable_cores
from planner.errors import ExecutionError
from planner.partition.split_graph import build_split_graph
from planner.partition.types import SegmentModel
from planner.profiling import lanes
from planner.profiling.lanes import lane_model, time_lanes
from planner.runtime.devices import LocalDevice
from planner.split.propagate import AxisCache, batch_layouts, spread
from tests.partition.support import loaded

DEVICES = [
    LocalDevice(f"cpu:{i}", "cpu", (usable_cores()[i % len(usable_cores())],), 0, 1 << 34, False) for i in range(2)
]
EMPTY = [SegmentModel(f"lane{i}", f"cpu:{i}", (), (), b"", {}) for i in range(2)]


def fake_sessions(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    """Sessions that only call ``run(lane)``."""

    class Session:
        def __init__(self, lane: SegmentModel, *_: Any, alone: bool) -> None:
            self.name = lane.id

        def run(self, *_: Any) -> None:
            run(self.name)

    monkeypatch.setattr(lanes, "SegmentSession", Session)
    monkeypatch.setattr(lanes, "_kernels", lambda *_: {"k": 1})


def test_all_lanes_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2, timeout=30)
    fake_sessions(monkeypatch, lambda name: meeting.wait())
    times = time_lanes(EMPTY, DEVICES, {}, seconds=0.001, kernels_of=1)
    assert [dict(lane.kernels) for lane in times] == [{}, {"k": 1}]
    assert all(lane.step_ns > 0 for lane in times)


def test_every_lane_runs_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"lane0": 0, "lane1": 0}

    def run(name: str) -> None:
        counts[name] += 1

    fake_sessions(monkeypatch, run)
    time_lanes(EMPTY, DEVICES, {}, seconds=0.001)
    assert counts["lane0"] == counts["lane1"] >= 4  # a warm-up, then three at least


def test_a_lane_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str) -> None:
        if name == "lane1":
            raise ExecutionError("no such kernel", where=name)

    fake_sessions(monkeypatch, run)
    before = threading.active_count()
    with pytest.raises(ExecutionError, match="lane1"):
        time_lanes(EMPTY, DEVICES, {}, seconds=0.001)
    assert threading.active_count() == before


def test_a_real_lane_reads_what_other_lanes_make_and_times_its_kernels() -> None:
    model, _, _ = loaded("tiny_cnn")
    splits = spread(AxisCache(model.graph), batch_layouts(model.graph, (1, 1), {}), shares=(1, 1))
    split = build_split_graph(model, splits)
    shard = [op for op in split.graph.ops if split.origin.get(op.name, ("", -1))[1] == 1]
    lane = lane_model(model, split, shard, "cpu:1")
    made = {name for op in shard for name in op.writes}
    assert lane.inputs
    assert not made & {info.name for info in lane.inputs}
    assert {info.name for info in lane.outputs} <= made
    (times,) = time_lanes([lane], DEVICES[:1], {}, seconds=0.01)
    assert times.step_ns > 0
    assert times.kernels


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Hypothesis watches the garbage collector; what a signal raises in there is lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_after_ctrl_c_no_lane_is_left_inside_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter that ends meanwhile would end in an abort, not in exit code 130."""
    began, ended = [], []

    class Session:
        def __init__(self, *_: Any, alone: bool) -> None:
            pass

        def run(self, values: Any, options: Any) -> None:
            began.append(self)
            if len(began) == len(DEVICES) and began[-1] is self:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            deadline = time.monotonic() + 5
            while not options.terminate and time.monotonic() < deadline:
                time.sleep(0.01)
            assert options.terminate
            time.sleep(0.1)  # the kernel that it is at
            ended.append(self)

    monkeypatch.setattr(lanes, "SegmentSession", Session)
    with pytest.raises(KeyboardInterrupt):
        time_lanes(EMPTY, DEVICES, {}, seconds=0.01)
    assert len(ended) == len(began) == len(DEVICES)
