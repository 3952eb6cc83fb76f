"""``fddps tune``: rounds, duels, roll-back, going on where it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from planner import tuning
from planner.api import DeviceChoice, _with_hardware, find_hardware
from planner.cluster.types import Cluster
from planner.cost.profile import ProfileKey, ProfileTable
from planner.errors import ExecutionError
from planner.launcher.planned_session import PlannedSession
from planner.model.load import load_model
from planner.model.types import LoadedModel
from planner.pipeline import make_setting
from planner.plan.files import read_plan
from planner.plan.schema import Plan
from planner.request import Request
from planner.schedule.drafts import one_device_draft, remeasured
from planner.schedule.from_plan import draft_from_plan
from tests.cli.support import data, listing, refused, run


def test_tuning_writes_the_best_plan_and_says_what_each_round_showed(folder: Path) -> None:
    result = run("tune", "model.onnx", "--cpus", "2x1", "-o", "t.yaml", "--cache", "c.yaml", "--rounds", "2", "--json")
    found = data(result)
    plan = read_plan("t.yaml")
    assert plan.predictions.step_ns / 1e9 == found["step_s"]
    assert found["rounds"][0]["number"] == 1
    assert found["rounds"][0]["best_step_s"] is None
    assert found["rounds"][0]["kept"]
    assert all(entry["step_s"] > 0 for entry in found["rounds"])
    assert "round 1" in result.stderr
    assert data(run("apply", "t.yaml", "--verify", "--json"))["verified"] is True


def test_a_plan_that_is_there_is_the_one_to_beat_and_wins_if_it_is_faster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("tune", "model.onnx", "--cpus", "2x1", "-o", "t.yaml", "--cache", "c.yaml", "--rounds", "1", "--json")
    run("plan", "model.onnx", "--cpus", "2x1", "--planner", "heft", "-o", "t.yaml", "--cache", "c.yaml")
    before = read_plan("t.yaml")
    real = tuning._duel

    def duel(request: Any, plans: Any) -> Any:
        """The newcomer takes twice as long."""
        results = real(request, plans)
        assert [plan.planner for plan in plans][1:] == ["heft"]
        slow = replace(results[0], steps_ns=[2 * ns for ns in results[1].steps_ns])
        return [slow, *results[1:]]

    monkeypatch.setattr(tuning, "_duel", duel)
    found = data(run(*command, "--planner", "one-device"))
    assert [entry["kept"] for entry in found["rounds"]] == [False]
    assert read_plan("t.yaml").devices == before.devices
    assert read_plan("t.yaml").splits == before.splits


def _tuned(folder: Path, planner: str) -> tuple[Request, LoadedModel, Plan]:
    """A request with measured costs, its model, and a planner's plan."""
    run("plan", "model.onnx", "--cpus", "2x1", "--planner", planner, "-o", "t.yaml", "--cache", "c.yaml")
    hardware = find_hardware(DeviceChoice(cpus="2x1"))
    request = _with_hardware(Request(Path("model.onnx"), Cluster((), ())), hardware, Path("c.yaml"), lambda _: None)
    return request, load_model(request.model, request.load), read_plan("t.yaml")


def test_operators_are_scaled_until_they_add_up_to_their_segment(folder: Path) -> None:
    request, model, plan = _tuned(folder, "one-device")
    setting = make_setting(request, model, request.profile)
    before = one_device_draft(setting).step_ns - setting.dispatch_ns
    took = before * 3 // 2 + setting.dispatch_ns
    ran = tuning.Ran([took], {"s0": took}, {})
    table = tuning.fed_back(request, model, _operators_only(request.profile), plan, ran)
    after = one_device_draft(make_setting(request, model, table)).step_ns - setting.dispatch_ns
    assert after == pytest.approx(before * 1.5, rel=0.02)


@pytest.mark.parametrize("known", ["all", "operators"])
@pytest.mark.parametrize("lost_percent", [-10, 0, 60])
def test_a_plan_that_ran_is_predicted_to_take_what_it_took(folder: Path, lost_percent: int, known: str) -> None:
    request, model, plan = _tuned(folder, "heft")
    before = request.profile if known == "all" else _operators_only(request.profile)
    segments = [segment for queue in plan.devices for segment in queue.segments]
    assert len(segments) > 3
    # Segments of one key that take different times are among them, and what is lost in waiting is in none.
    taken = {segment.id: segment.compute_ns * (2 + k % 3) + 50_000 for k, segment in enumerate(segments)}
    waits = {("cpu:0", "cpu:1"): 20_000, ("cpu:1", "cpu:0"): 60_000}
    raw = tuning.fed_back(request, model, before, plan, tuning.Ran([1], taken, waits))
    step = sum(taken.values()) * (100 + lost_percent) // 100
    table = tuning.fed_back(request, model, before, plan, tuning.Ran([step], taken, waits))
    assert table.entries != raw.entries
    setting = make_setting(request, model, table)
    again = remeasured(draft_from_plan(setting, plan), setting.costs)
    assert again.step_ns == pytest.approx(step, rel=1e-5)


class _Failing(PlannedSession):
    """Plans of some planners cannot be opened, or fail at their third step."""

    at_opening: ClassVar[set[str]] = set()
    at_running: ClassVar[set[str]] = set()
    steps = 0

    def __init__(self, plan: Any, **options: Any) -> None:
        if plan.planner in self.at_opening:
            raise ExecutionError("no such operator")
        super().__init__(plan, **options)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> list[Any]:
        self.steps += 1
        assert self.plan is not None
        if self.plan.planner in self.at_running and self.steps == 3:
            raise ExecutionError("out of memory")
        return super().run(output_names, input_feed, run_options)


@pytest.mark.parametrize("when", ["at_opening", "at_running"])
@pytest.mark.parametrize("fails", ["one-device", "heft", "both"])
def test_an_entrant_that_cannot_be_run_has_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch, when: str, fails: str
) -> None:
    run("plan", "model.onnx", "--cpus", "2x1", "--planner", "heft", "-o", "t.yaml", "--cache", "c.yaml")
    before = read_plan("t.yaml")
    monkeypatch.setattr(_Failing, when, {"one-device", "heft"} if fails == "both" else {fails})
    monkeypatch.setattr(tuning, "PlannedSession", _Failing)
    command = ("--planner", "one-device", "-o", "t.yaml", "--cache", "c.yaml", "--rounds", "1", "--json")
    result = run("tune", "model.onnx", "--cpus", "2x1", *command)
    if fails == "both":
        refused(result, "neither", "by heft", "can be run")
        assert read_plan("t.yaml") == before
        return
    found = data(result)
    assert any(f"by {fails}, has lost" in note for note in found["notes"])
    assert found["planner"] == ("heft" if fails == "one-device" else "one-device")
    (only,) = found["rounds"]
    assert only["kept"] == (fails == "heft")
    assert (only["step_s"] is None, only["best_step_s"] is None) == (fails == "one-device", fails == "heft")


def _operators_only(table: ProfileTable) -> ProfileTable:
    def is_operator(key: ProfileKey) -> bool:
        return not key.key.startswith(("segment:", "dispatch", "link:"))

    return ProfileTable({key: entry for key, entry in table.entries.items() if is_operator(key) or "dispatch" in key})


def test_what_cannot_be_tuned(folder: Path) -> None:
    before = listing(folder)
    refused(run("tune", "model.onnx", "--cluster", "two-v100-two-t4"), "--cluster", "--cpus")
    refused(run("tune", "model.onnx", "--cpus", "2", "-o", "-"), "-o", "file")
    refused(run("tune", "model.onnx", "--cpus", "2", "-o", "model.onnx"), "model.onnx")
    refused(run("tune", "model.onnx"), "--cpus")
    assert listing(folder) == before
    Path("t.yaml").write_text(json.dumps({"mine": 1}))
    refused(run("tune", "model.onnx", "--cpus", "2", "-o", "t.yaml"), "t.yaml", "--force")


def test_devices_that_share_cores_are_not_tuned(folder: Path) -> None:
    before = listing(folder)
    refused(
        run("tune", "model.onnx", "--cpus", "256x1", "-o", "t.yaml", "--cache", "c.yaml"), "--cpus", "share", "fewer"
    )
    assert listing(folder) == before


def test_a_plan_for_something_else_is_not_one_to_beat(folder: Path) -> None:
    command = ("--cpus", "2x1", "--cache", "c.yaml", "--rounds", "1", "-o", "plan.yaml")
    before = Path("plan.yaml").read_text()
    refused(run("tune", "mlp.onnx", "--batch", "2", *command), "another model", "-o", "--force")
    refused(run("tune", "model.onnx", "--cpus", "1x1", *command[2:]), "other devices", "-o", "--force")
    assert Path("plan.yaml").read_text() == before
    assert "over" in run("tune", "mlp.onnx", "--batch", "2", *command, "--force").stdout
    assert Path("plan.yaml").read_text() != before


def test_memory_limits_hold_while_tuning(folder: Path) -> None:
    limits = ("--max-memory", "cpu:0=1KiB", "--max-memory", "cpu:1=1KiB")
    result = run("tune", "model.onnx", "--cpus", "2x1", "-o", "t.yaml", "--cache", "c.yaml", "--rounds", "1", *limits)
    refused(result, "memory", code=1)
    assert not Path("t.yaml").exists()


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf"])
def test_a_time_limit_is_a_number(folder: Path, seconds: str) -> None:
    result = run("tune", "model.onnx", "--cpus", "2x1", "--time-limit", seconds)
    assert result.exit_code == 2
    assert "--time-limit" in result.stderr
