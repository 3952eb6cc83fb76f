"""``fddps tune``: rounds, duels, roll-back, going on where it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import tuning
from planner.cost.profile import ProfileKey, ProfileTable
from planner.plan.files import read_plan
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


def test_operators_are_scaled_until_they_add_up_to_their_segment(folder: Path) -> None:
    run("plan", "model.onnx", "--cpus", "2x1", "--planner", "one-device", "-o", "t.yaml", "--cache", "c.yaml")
    from planner.api import DeviceChoice, _with_hardware, find_hardware
    from planner.cluster.types import Cluster
    from planner.model.load import load_model
    from planner.pipeline import make_setting
    from planner.request import Request
    from planner.schedule.drafts import one_device_draft

    plan = read_plan("t.yaml")
    hardware = find_hardware(DeviceChoice(cpus="2x1"))
    request = _with_hardware(Request(Path("model.onnx"), Cluster((), ())), hardware, Path("c.yaml"), lambda _: None)
    model = load_model(request.model, request.load)
    setting = make_setting(request, model, request.profile)
    before = one_device_draft(setting).step_ns - setting.dispatch_ns
    took = {"s0": before * 3 // 2 + setting.dispatch_ns}
    table = tuning.fed_back(request, model, _operators_only(request.profile), plan, took, {})
    after = one_device_draft(make_setting(request, model, table)).step_ns - setting.dispatch_ns
    assert after == pytest.approx(before * 1.5, rel=0.02)


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
