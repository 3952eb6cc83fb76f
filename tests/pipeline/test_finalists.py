"""Candidates that are run before one wins: what they take is kept, and one that fails spoils no other."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from planner.cost.profile import Measurement, ProfileTable
from planner.errors import ExecutionError
from planner.finalists import finalists, run_finalists, step_times
from planner.launcher.steps import SegmentTiming
from planner.schedule.cut import with_compute
from planner.schedule.drafts import Draft, all_cores_draft, list_draft, one_device_draft, remeasured, segment_keys
from planner.schedule.heft import heft
from planner.tried import draft_key, outcomes
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


def timed(draft: Draft, ns: int) -> Draft:
    return replace(draft, cut=with_compute(draft.cut, draft.cluster, draft.dispatch_ns, [ns]))


def test_single_sessions_run_too_but_only_once() -> None:
    setting = setting_of("cnn", "3-cpus")
    one, every = timed(one_device_draft(setting), 50_000_000), timed(all_cores_draft(setting), 52_000_000)
    assert finalists([every, one], ProfileTable()) == [one, every]
    far = timed(every, 80_000_000)
    assert finalists([one, far], ProfileTable()) == [one, far]  # a speed-up is never of a loop and a run
    assert finalists([one], ProfileTable()) == [one]
    known = {key: Measurement(1, 9, "") for draft in (one, every) for key in segment_keys(draft)}
    assert finalists([one, every], ProfileTable(known)) == []


def test_no_session_that_never_ran_wins_over_a_plan_that_did() -> None:
    setting = setting_of("cnn", "3-cpus")
    one, every = timed(one_device_draft(setting), 80_000_000), timed(all_cores_draft(setting), 50_000_000)
    ran = ProfileTable({key: Measurement(1, 9, "") for key in segment_keys(one)})
    assert finalists([one, every], ran) == [every, one]
    assert finalists([one, timed(every, 95_000_000)], ran) == []


def test_all_single_sessions_run_where_steps_are_short() -> None:
    setting = setting_of("cnn", "3-cpus")
    one, every = timed(one_device_draft(setting), 1_000_000), timed(all_cores_draft(setting), 4_000_000)
    assert finalists([every, one], ProfileTable()) == [one, every]


def test_one_that_failed_runs_again_though_it_is_alone_and_its_segments_are_known() -> None:
    setting = setting_of("cnn", "3-cpus")
    one = timed(one_device_draft(setting), 50_000_000)
    known = {key: Measurement(1, 9, "") for key in segment_keys(one)}
    failed = ProfileTable({**known, **outcomes([one], ["one-device"], ProfileTable())})
    assert finalists([one], failed) == [one]
    overcome = failed.merged(ProfileTable(outcomes([one], [], failed)))
    assert draft_key(one) in overcome.entries and finalists([one], overcome) == []
    assert outcomes([one], [], ProfileTable()) == {}


def test_others_take_what_the_standard_does_times_the_median_ratio_within_a_turn() -> None:
    # The machine slows down in the middle, for both alike; the other was disturbed once.
    standard, other = [100, 100, 100, 200, 200], [50, 50, 90, 100, 100]
    assert step_times([standard, other], 0) == [100, 50]
    assert step_times([other, standard], 1) == [50, 100]
    # In an earlier contest the standard took half as long: so would the other have.
    assert step_times([standard, other], 0, 50) == [50, 25]


def test_one_that_ran_before_keeps_its_times_and_others_are_timed_by_it() -> None:
    setting = setting_of("cnn", "3-cpus")
    one, other = one_device_draft(setting), list_draft(setting, "heft", heft)
    # All sessions here take the same time, so the new one's step is the old one's earlier.
    known = {key: Measurement(7_000_000, 9, "") for key in segment_keys(one)}
    one = timed(one, 7_000_000)
    entrants: Any = [(other, Session(other)), (one, Session(one))]
    table, _ = run_finalists(entrants, {}, setting.dispatch_ns, ProfileTable(known))
    assert set(table.entries) == set(segment_keys(other))
    costs = replace(setting.costs, profile=ProfileTable({**known, **table.entries}))
    assert 0.5 * one.step_ns < remeasured(other, costs).step_ns < 2 * one.step_ns
