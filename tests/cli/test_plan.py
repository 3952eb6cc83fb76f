"""``fddps plan``: what it writes, prints and refuses to overwrite."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from planner.plan.files import read_plan
from tests.cli.support import CPUS, V100, data, listing, refused, run

MLP = ("plan", "mlp.onnx", "--batch", "4", "--planner", "one-device")


def test_the_plan_is_written_and_summed_up(folder: Path) -> None:
    result = run(*MLP, *V100, "-o", "new.yaml", "--json")
    summary = data(result)
    plan = read_plan("new.yaml")
    assert summary["planner"] == plan.planner == "one-device"
    assert summary["predicted_step_s"] == plan.predictions.step_ns / 1e9
    assert 0 < summary["lower_bound_s"] <= summary["predicted_step_s"] == summary["one_device_step_s"]
    assert {c["name"] for c in summary["candidates"]} >= {"one-device", "data-parallel"}
    assert summary["planning_s"] > 0
    assert (summary["measured"], summary["estimated"]) == (0, plan.costs.estimated)
    assert summary["estimated"] > 0
    assert plan.costs.profiles["v100-sxm2-16gb"].startswith("sha256:")


def test_the_best_of_all_is_the_default(folder: Path) -> None:
    summary = data(run("plan", "mlp.onnx", "--batch", "4", *V100, "--json"))
    steps = {c["name"]: c["predicted_step_s"] for c in summary["candidates"]}
    assert {"one-device", "data-parallel", "heft", "pipeline", "fd-dps", "auto"} <= set(steps)
    assert summary["predicted_step_s"] <= min(s for s in steps.values() if s) * 1.021
    assert summary["lower_bound_s"] <= min(s for s in steps.values() if s)


def test_the_default_file_is_plan_yaml_and_an_older_plan_is_replaced(folder: Path) -> None:
    before = Path("plan.yaml").read_text()
    assert run(*MLP, *V100).exit_code == 0
    assert read_plan("plan.yaml").planner == "one-device"
    assert Path("plan.yaml").read_text() != before


def test_another_file_is_replaced_only_by_force(folder: Path) -> None:
    Path("notes.txt").write_text("mine")
    refused(run(*MLP, *V100, "-o", "notes.txt"), "notes.txt", "not a plan", "--force")
    assert Path("notes.txt").read_text() == "mine"
    assert run(*MLP, *V100, "-o", "notes.txt", "--force").exit_code == 0
    assert read_plan("notes.txt").planner == "one-device"


def test_a_dash_is_standard_output(folder: Path) -> None:
    before = listing(folder)
    result = run(*MLP, *V100, "-o", "-")
    assert yaml.safe_load(result.stdout)["schema"] == "fddps/plan/v1"
    assert listing(folder) == before


def test_the_command_is_recorded_without_folders_and_output(folder: Path) -> None:
    Path("sub").mkdir()
    run("plan", folder / "mlp.onnx", "--batch=4", "--planner", "one-device", *V100, "-o", "sub/a.yaml", "-q")
    run("plan", "mlp.onnx", "--batch=4", "--planner", "one-device", *V100, "-ob.yaml", "--cache", "c")
    first, second = read_plan("sub/a.yaml"), read_plan("b.yaml")
    assert (
        first.command
        == second.command
        == ("fddps plan mlp.onnx --batch=4 --planner one-device --gpus 2 --profile v100-sxm2-16gb")
    )


def test_a_model_outside_the_plans_folder_is_noted(folder: Path) -> None:
    Path("sub").mkdir()
    result = run(*MLP, *V100, "-o", "sub/plan.yaml")
    assert "--model" in result.stderr
    refused(run("apply", "sub/plan.yaml", "--on", "cpu"), "leaves the plan's folder", "--model")
    assert run("apply", "sub/plan.yaml", "--on", "cpu", "--model", "mlp.onnx", "--verify").exit_code == 0


def test_more_devices_than_tasks_leaves_some_idle_and_says_so(folder: Path) -> None:
    result = run(*MLP, "--gpus", "64", "--profile", "t4")
    assert result.exit_code == 0
    assert "idle devices: cuda:1" in result.stderr


@pytest.mark.parametrize("quiet", ["-q", "--quiet"])
def test_quiet_says_nothing(folder: Path, quiet: str) -> None:
    result = run(*MLP, *V100, quiet)
    assert (result.stdout, result.stderr) == ("", "")


def test_inputs_give_shapes_and_are_checked(folder: Path) -> None:
    np.savez("in.npz", x=np.zeros((6, 16), np.float32))
    assert run("plan", "mlp.onnx", "--inputs", "in.npz", "--planner", "one-device", *V100).exit_code == 0
    assert read_plan("plan.yaml").inputs["x"].shape == (6, 16)
    np.savez("in.npz", z=np.zeros((6, 16), np.float32))
    refused(run("plan", "mlp.onnx", "--batch", "2", "--inputs", "in.npz", *V100), "'z'", "'x'".strip("'"))
    np.savez("in.npz", x=np.zeros((6, 16), np.float64))
    refused(run("plan", "mlp.onnx", "--inputs", "in.npz", *V100), "float64", "float32", "'x'")
    np.savez("in.npz", x=np.zeros((6, 17), np.float32))
    refused(run("plan", "mlp.onnx", "--inputs", "in.npz", *V100), "6x17", "'x'")


def test_a_shape_is_given_by_name(folder: Path) -> None:
    assert run("plan", "mlp.onnx", "--input-shape", "x=3x16", "--planner", "one-device", *V100).exit_code == 0
    assert read_plan("plan.yaml").inputs["x"].shape == (3, 16)


def test_check_accepts_the_same_decisions(folder: Path) -> None:
    before = listing(folder), Path("plan.yaml").read_bytes()
    text = Path("plan.yaml").read_text()
    Path("plan.yaml").write_text(text.replace('tool: {version: "', 'tool: {version: "9'))
    result = run("plan", "model.onnx", *CPUS, "--planner", "heft", "--check")
    assert result.exit_code == 0, result.stdout
    assert "the decisions are the same" in result.stdout
    assert listing(folder) == before[0]


def test_check_refuses_other_decisions_and_writes_nothing(folder: Path) -> None:
    before = listing(folder), Path("plan.yaml").read_bytes()
    result = run("plan", "model.onnx", *CPUS, "--planner", "one-device", "--check", "--json")
    assert result.exit_code == 1
    assert "tasks moved" in result.stderr
    assert data(result)["same_decisions"] is False
    assert (listing(folder), Path("plan.yaml").read_bytes()) == before


def test_check_with_a_slowdown_minds_only_the_step(folder: Path) -> None:
    slower = ("plan", "model.onnx", *CPUS, "--planner", "one-device", "--check", "--json", "--max-slowdown")
    result = run(*slower, "0%")
    ratio = data(result)["slowdown"]
    assert ratio > 0
    assert result.exit_code == 1
    assert run(*slower, f"{ratio * 100 + 1:.1f}%").exit_code == 0


def test_what_is_measured_is_kept_and_not_measured_again(folder: Path) -> None:
    options = (*MLP, "--cpus", "2x1", "--cache", "cache/p.yaml", "--json")
    first = data(run(*options))
    assert first["measured"] > 0
    kept, plan = Path("cache/p.yaml").read_bytes(), Path("plan.yaml").read_bytes()
    data(run(*options))
    assert Path("cache/p.yaml").read_bytes() == kept
    assert Path("plan.yaml").read_bytes() == plan


def test_what_a_plan_rests_on_is_the_same_when_it_is_made_again(folder: Path) -> None:
    command = ("plan", "model.onnx", "--cpus", "2x1", "--cache", "costs.yaml", "-o")
    run(*command, "first.yaml")
    run(*command, "second.yaml")
    first, second = read_plan("first.yaml"), read_plan("second.yaml")
    assert first.costs.profiles["measured"]
    assert first.costs == second.costs
    assert Path("first.yaml").read_bytes() == Path("second.yaml").read_bytes()


def test_a_measured_profile_plans_without_measuring(folder: Path) -> None:
    made = data(run("profile", "mlp.onnx", "--batch", "4", "--cpus", "2x1", "-o", "p.yaml", "--json"))
    assert made["new"] == made["entries"] > 0
    again = data(run("profile", "mlp.onnx", "--batch", "4", "--cpus", "2x1", "-o", "p.yaml", "--json"))
    assert (again["new"], again["entries"]) == (0, made["entries"])
    before = Path("p.yaml").read_bytes()
    summary = data(run(*MLP, "--cpus", "2x1", "--profile", "p.yaml", "--json"))
    assert summary["measured"] > 0 == summary["estimated"]
    # Another batch size was not measured: estimated, and counted.
    other = data(run("plan", "mlp.onnx", "--batch", "5", "--cpus", "2x1", "--profile", "p.yaml", "--json"))
    assert other["estimated"] > 0
    assert Path("p.yaml").read_bytes() == before


def test_costs_of_another_onnxruntime_are_noted(folder: Path) -> None:
    run("profile", "mlp.onnx", "--batch", "4", "--cpus", "2x1", "-o", "p.yaml")
    old = re.sub(r"ort: [^,}]+", 'ort: "1.1.0"', Path("p.yaml").read_text(encoding="utf-8"))
    Path("old.yaml").write_text(old, encoding="utf-8")
    notes = [data(run(*MLP, "--cpus", "2x1", "--profile", name, "--json"))["notes"] for name in ("p.yaml", "old.yaml")]
    assert [any("measured with ONNX Runtime 1.1.0" in note for note in found) for found in notes] == [False, True]


def test_a_profile_of_several_kinds_of_cpu_must_have_this_one(folder: Path) -> None:
    run("profile", "mlp.onnx", "--batch", "4", "--cpus", "2x1", "-o", "p.yaml")
    lines = Path("p.yaml").read_text(encoding="utf-8")
    (own,) = set(re.findall(r"kind: (cpu-[^,}]+-1c)", lines))
    head, *entries = re.split(r"(?m)^(?=- )", lines)
    others = [entry.replace(own, f"cpu-other-{n}-1c") for n in "ab" for entry in entries if f"kind: {own}" in entry]
    Path("p.yaml").write_text(head + "".join(others), encoding="utf-8")
    refused(run(*MLP, "--cpus", "2x1", "--profile", "p.yaml"), "cpu-other-a-1c", "cpu-other-b-1c")


def test_a_plan_from_a_profile_does_not_depend_on_the_cores_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("profile", "mlp.onnx", "--batch", "4", "--cpus", "2x1", "-o", "p.yaml")
    for profile, devices in (("cpu-generic", "2x1"), ("p.yaml", "2x1"), ("p.yaml", "2x3")):
        command = (*MLP, "--cpus", devices, "--profile", profile, "--memory", "1GiB", "-o", "plan.yaml", "--force")
        with monkeypatch.context() as elsewhere:
            run(*command)
            here = Path("plan.yaml").read_bytes()
            elsewhere.setattr("planner.cluster.cpu.usable_cores", lambda: (16, 17, 18))
            elsewhere.setattr("planner.cluster.cpu.total_memory_bytes", lambda: 1 << 30)
            elsewhere.setattr("planner.cluster.cpu.cpu_model_name", lambda: "Another CPU")
            run(*command)
            assert Path("plan.yaml").read_bytes() == here


def test_a_profile_of_other_operators_is_noted(folder: Path) -> None:
    run("profile", "mlp.onnx", "--batch", "4", "--cpus", "2x1", "-o", "p.yaml")
    found = data(run("plan", "model.onnx", "--cpus", "2x1", "--profile", "p.yaml", "-o", "out.yaml", "--json"))
    assert found["measured"] == 0
    assert any("all its costs are estimated" in note for note in found["notes"])


def test_planning_twice_gives_the_same_bytes(folder: Path) -> None:
    before = Path("plan.yaml").read_bytes()
    run("plan", "model.onnx", *CPUS, "--planner", "heft")
    assert Path("plan.yaml").read_bytes() == before


def test_the_python_function_plans_as_the_command_does(folder: Path) -> None:
    import planner
    from planner.plan.diff import same_decisions

    run(*MLP, *V100)
    made = planner.plan("mlp.onnx", gpus=2, profile="v100-sxm2-16gb", batch=4, planner="one-device")
    assert same_decisions(made, read_plan("plan.yaml"))
    assert planner.plan.__name__ == "planner.plan"
    assert {"cpus", "input_shapes", "batch"} <= set(inspect.signature(planner.plan).parameters)
