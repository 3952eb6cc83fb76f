"""Candidates that are run before one wins: what they take is kept, and one that fails spoils no other."""

from __future__ import annotations

import time
from typing import Any

from planner.errors import ExecutionError
from planner.finalists import run_finalists
from planner.launcher.steps import SegmentTiming
from planner.schedule.drafts import Draft, list_draft, one_device_draft, segment_keys
from planner.schedule.heft import heft
from tests.schedule.settings import setting_of


class Session:
    """Stands in for a planned session: every segment takes a millisecond; fails from some step on."""

    inputs = ()

    def __init__(self, draft: Draft, fails_at: int = 1 << 30) -> None:
        self._segments = [f"s{number}" for number in range(len(draft.cut.segments))]
        self._left = fails_at
        self.timings: tuple[SegmentTiming, ...] = ()

    def run(self, names: Any, feeds: Any) -> list[Any]:
        self._left -= 1
        if self._left < 0:
            raise ExecutionError("out of memory")
        time.sleep(0.001)
        self.timings = tuple(SegmentTiming(name, "cpu:0", 0, 1_000_000) for name in self._segments)
        return []


def test_one_that_fails_later_is_out_and_the_others_are_timed() -> None:
    setting = setting_of("cnn", "3-cpus")
    good, bad = one_device_draft(setting), list_draft(setting, "heft", heft)
    entrants: Any = [(good, Session(good)), (bad, Session(bad, fails_at=3))]
    table, failed = run_finalists(entrants, {}, setting.dispatch_ns)
    assert failed == {"heft": "out of memory"}
    assert set(table.entries) == set(segment_keys(good))
    # The segments together are as long as the measured steps, which sleep for a millisecond at least.
    assert sum(entry.ns for entry in table.entries.values()) >= 1_000_000 - setting.dispatch_ns
    assert all(entry.repeats > 1 for entry in table.entries.values())
