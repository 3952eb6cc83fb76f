"""The stage of the pipeline that runs candidates before one is chosen, with sessions and a clock that are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from planner.choice import FAILED_BEFORE
from planner.cost.profile import ProfileTable, parse_profile
from planner.errors import ExecutionError
from planner.launcher.steps import SegmentTiming
from planner.pipeline import RACE, make_plan
from planner.plan.diff import same_decisions
from planner.plan.schema import Plan
from planner.request import Outcome, Request
from tests.schedule.settings import CLUSTERS, model_path

MS = 1_000_000


@dataclass
class World:
    """What plans take, by planner, and which fail; the clock moves only while one runs."""

    step_ns: Mapping[str, int]
    fails_at: Mapping[str, int] = field(default_factory=dict)
    now_ns: int = 0
    ran: list[str] = field(default_factory=list)

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def session(self, plan: Plan, **options: object) -> Session:
        if self.fails_at.get(plan.planner) == 0:
            raise ExecutionError("no such operator")
        return Session(self, plan)


class Session:
    """Stands in for a planned session; fails from some step on."""

    inputs = ()

    def __init__(self, world: World, plan: Plan) -> None:
        self._world, self._plan, self._steps = world, plan, 0
        self.timings: tuple[SegmentTiming, ...] = ()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def run(self, names: Any, feeds: Any) -> list[Any]:
        world, plan = self._world, self._plan
        world.ran.append(plan.planner)
        self._steps += 1
        if self._steps == world.fails_at.get(plan.planner):
            raise ExecutionError("out of memory")
        world.now_ns += world.step_ns.get(plan.planner, 100 * MS)
        self.timings = tuple(
            SegmentTiming(segment.id, queue.device, 0, segment.compute_ns)
            for queue in plan.devices
            for segment in queue.segments
        )
        return []


def planned(
    monkeypatch: pytest.MonkeyPatch, world: World, model: str = "cnn", cluster: str = "3-cpus", **options: Any
) -> Outcome:
    """Plan in a made-up world, where profiling measures nothing."""
    monkeypatch.setattr("planner.finalists.time", world)
    monkeypatch.setattr("planner.finalists.pause_until_idle", lambda: None)
    monkeypatch.setattr("planner.pipeline.PlannedSession", world.session)
    monkeypatch.setattr("planner.pipeline.profile_model", lambda request, model: (request.profile, ()))
    path = model_path(model)
    request = Request(path, CLUSTERS[cluster](), effort="quick", plan_dir=path.parent)
    return make_plan(replace(request, **options))


def infeasible(plan: Plan) -> dict[str, str]:
    return {c.planner: c.infeasible for c in plan.predictions.candidates if c.infeasible}


def reread(table: ProfileTable) -> ProfileTable:
    return parse_profile(table.to_text(), "profile.yaml")


# What is predicted best where nothing is measured: it runs first, whatever else does.
@pytest.fixture(scope="module")
def favourite() -> str:
    path = model_path("cnn")
    request = Request(path, CLUSTERS["3-cpus"](), measure=False, effort="quick", plan_dir=path.parent)
    return make_plan(request).plan.planner


def test_what_was_seen_to_be_fastest_wins_and_wins_again_without_running(
    monkeypatch: pytest.MonkeyPatch, favourite: str
) -> None:
    for winner in (favourite, "one-device"):
        world = World({winner: 50 * MS})
        kept: list[ProfileTable] = []
        first = planned(monkeypatch, world, keep=kept.append)
        assert first.plan.planner == winner
        assert first.plan.predictions.step_ns == pytest.approx(50 * MS, rel=0.02)
        assert kept and kept[-1].entries == first.profile.entries
        ran = len(world.ran)
        for measure in (False, True):
            again = planned(monkeypatch, world, profile=reread(first.profile), measure=measure)
            assert same_decisions(first.plan, again.plan) and len(world.ran) == ran


@pytest.mark.parametrize("fails_at", [0, 1, 4])
@pytest.mark.parametrize("measure", [False, True])
def test_one_that_fails_is_out_and_stays_out_with_the_same_profile(
    monkeypatch: pytest.MonkeyPatch, favourite: str, fails_at: int, measure: bool
) -> None:
    slow = dict.fromkeys(RACE, 200 * MS)
    world = World({**slow, "one-device": 80 * MS, favourite: 50 * MS}, {favourite: fails_at})
    first = planned(monkeypatch, world)
    assert first.plan.planner == "one-device" != favourite
    why = infeasible(first.plan)[favourite]
    assert why.startswith("its plan cannot be run: ") and f"{favourite}: {why}" in first.notes
    again = planned(monkeypatch, world, profile=reread(first.profile), measure=measure)
    assert same_decisions(first.plan, again.plan)
    assert infeasible(again.plan)[favourite] == (why if measure else FAILED_BEFORE)


def test_one_that_failed_is_tried_again_where_plans_run(monkeypatch: pytest.MonkeyPatch, favourite: str) -> None:
    failed = planned(monkeypatch, World({favourite: 50 * MS}, {favourite: 2})).profile
    better = planned(monkeypatch, World({favourite: 50 * MS}), profile=reread(failed))
    assert better.plan.planner == favourite
    # A file of costs only grows.
    merged = failed.merged(reread(better.profile))
    assert same_decisions(planned(monkeypatch, World({}), profile=merged, measure=False).plan, better.plan)


@pytest.mark.parametrize(
    ("simple_us", "pieces_us", "wins"),
    [(100_000, 94_000, False), (100_000, 88_000, True), (10_000, 9_000, False), (10_000, 8_600, True)],
    ids=["6% of a long step", "12%", "10% of a short step", "14%"],
)
def test_pieces_that_ran_must_beat_simple_choices_that_ran_by_more_than_noise(
    monkeypatch: pytest.MonkeyPatch, simple_us: int, pieces_us: int, wins: bool
) -> None:
    pieces = dict.fromkeys(RACE, pieces_us * 1000)  # All of them: they share segments.
    simple = dict.fromkeys(("one-device", "all-cores"), simple_us * 1000)
    world = World({**pieces, **simple})
    plan = planned(monkeypatch, world, "nasnet", "2-sockets").plan
    assert {"one-device", "all-cores"} <= set(world.ran)
    assert (plan.planner not in simple) == wins
    assert ("many pieces" in plan.why) != wins


@pytest.mark.parametrize(("every_us", "winner"), [(9_720, "one-device"), (9_680, "all-cores")])
def test_all_cores_that_ran_must_beat_one_device_by_more_than_noise_where_steps_are_short(
    monkeypatch: pytest.MonkeyPatch, every_us: int, winner: str
) -> None:
    slow = dict.fromkeys(RACE, 20 * MS)
    world = World({**slow, "one-device": 10 * MS, "all-cores": every_us * 1000})
    assert planned(monkeypatch, world, "nasnet", "2-sockets").plan.planner == winner
    long = World({**dict.fromkeys(RACE, 200 * MS), "one-device": 100 * MS, "all-cores": every_us * 10_000})
    assert planned(monkeypatch, long, "nasnet", "2-sockets").plan.planner == "all-cores"
