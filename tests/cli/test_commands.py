"""The other commands on a sound plan: show, diff, validate, apply, export, devices, help."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import planner
from planner.cli.apply import _choice, _show_throughput
from planner.cli.main import COMMANDS
from planner.cli.terminal import Terminal
from planner.launcher.throughput import Throughput
from planner.model.export import save_with_weights
from planner.model.serialize import build_model
from planner.plan.files import read_plan
from tests.cli.support import V100, data, listing, refused, run
from tests.models.small import nasnet_cell_like


def test_every_command_has_help_with_examples() -> None:
    overview = run("--help").stdout
    for name in COMMANDS:
        assert name in overview
        text = run(name, "--help").stdout
        assert "Examples:" in text
        assert f"fddps {name}" in text


def test_the_version_is_printed() -> None:
    from planner.version import __version__

    assert __version__ in run("--version").stdout


def test_show_has_shares_chart_and_reason(folder: Path) -> None:
    text = run("show", "plan.yaml", "--trace", "t.json").stdout
    for word in ("cpu:0", "cpu:1", "Candidates", "heft", "%", "predicted step"):
        assert word in text
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) > len(read_plan("plan.yaml").transfers)


def test_show_as_data(folder: Path) -> None:
    shown, plan = data(run("show", "plan.yaml", "--json")), read_plan("plan.yaml")
    assert shown["predicted_step_s"] == plan.predictions.step_ns / 1e9
    assert [device["name"] for device in shown["devices"]] == ["cpu:0", "cpu:1"]


def test_show_needs_no_model(folder: Path) -> None:
    Path("model.onnx").unlink()
    assert run("show", "plan.yaml").exit_code == 0


def test_diff_of_the_same_and_of_another(folder: Path) -> None:
    shutil.copy("plan.yaml", "same.yaml")
    assert run("diff", "plan.yaml", "same.yaml").exit_code == 0
    run("plan", "model.onnx", "--cpus", "2x1", "--profile", "cpu-generic", "--planner", "one-device", "-o", "one.yaml")
    result = run("diff", "plan.yaml", "one.yaml", "--limit", "2")
    assert result.exit_code == 1
    assert "tasks moved" in result.stdout
    assert "predicted step" in result.stdout
    assert data(run("diff", "plan.yaml", "one.yaml", "--json"))["moved"]


def test_validate_says_valid(folder: Path) -> None:
    assert run("validate", "plan.yaml").exit_code == 0
    assert data(run("validate", "plan.yaml", "--json")) == {"valid": True, "violations": []}


def test_apply_verifies_and_times(folder: Path) -> None:
    result = data(run("apply", "plan.yaml", "--verify-deep", "--repeat", "2", "--json"))
    assert result["verified"] is True
    plan = read_plan("plan.yaml")
    assert result["predicted_step_s"] == plan.predictions.step_ns / 1e9
    assert result["segments"] == sum(len(queue.segments) for queue in plan.devices)
    assert result["step_s"] > 0
    assert result["one_device_step_s"] > 0
    assert [device["name"] for device in result["devices"]] == ["cpu:0", "cpu:1"]
    assert all(device["busy_s"] > 0 and device["peak_bytes"] > 0 for device in result["devices"])


def test_bare_apply_claims_no_verification(folder: Path) -> None:
    result = data(run("apply", "plan.yaml", "--json"))
    assert (result["verified"], result["max_abs_diff"], result["one_device_step_s"]) == (None, None, None)


def test_apply_prints_a_comparison(folder: Path) -> None:
    text = run("apply", "plan.yaml", "--verify", "--repeat", "2").stdout
    for word in ("predicted", "measured", "one device", "x", "verified"):
        assert word in text


def test_apply_traces_the_run_beside_the_prediction(folder: Path) -> None:
    assert run("apply", "plan.yaml", "--repeat", "3", "--trace", "t.json").exit_code == 0
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, dict[str, list[Any]]] = {}
    for e in events:
        if e["ph"] == "X":
            found.setdefault(groups[e["pid"]], {}).setdefault(tracks[e["pid"], e["tid"]], []).append(e)
    plan = read_plan("plan.yaml")
    assert list(found) == ["measured devices", "measured links", "predicted devices", "predicted links"]
    for queue in plan.devices:
        for side in ("measured", "predicted"):
            bars = found[f"{side} devices"][queue.device]
            assert [bar["name"] for bar in bars] == [segment.id for segment in queue.segments]
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in itertools.pairwise(bars))
    sent = sorted(t.tensor for t in plan.transfers)
    for side in ("measured", "predicted"):
        assert sorted(bar["name"] for bars in found[f"{side} links"].values() for bar in bars) == sent
    refused(run("apply", "plan.yaml", "--trace", "nowhere/t.json"), "nowhere", "folder")
    refused(run("apply", "plan.yaml", "--trace", "plan.yaml"), "plan.yaml", "--trace")
    refused(run("apply", "plan.yaml", "--on", "cpu", "--trace", "t.json"), "--trace", "--on cpu")


def test_apply_measures_the_throughput_of_requests_in_flight(folder: Path) -> None:
    found = data(run("apply", "plan.yaml", "--requests", "6", "--in-flight", "3", "--json"))["throughput"]
    assert (found["requests"], found["in_flight"], found["replicas"]) == (6, 3, 2)
    assert min(found["planned_per_s"], found["replicas_per_s"], found["one_device_per_s"]) > 0
    assert found["choose"] in ("plan", "replicas")
    text = run("apply", "plan.yaml", "--requests", "4").stdout
    for word in ("requests/s", "2 in flight", "2 replicas", "choose"):
        assert word in text
    refused(run("apply", "plan.yaml", "--in-flight", "3"), "--in-flight", "--requests")
    few = data(run("apply", "plan.yaml", "--requests", "2", "--in-flight", "99", "--json"))["throughput"]
    assert few["in_flight"] == 2


def test_a_step_that_takes_too_long_is_an_error_that_names_the_segment(folder: Path) -> None:
    refused(run("apply", "plan.yaml", "--timeout", "0.000001"), "takes longer", "more time")


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "1e300"])
def test_a_timeout_is_a_number(folder: Path, seconds: str) -> None:
    result = run("apply", "plan.yaml", "--timeout", seconds)
    assert result.exit_code == 2
    assert "--timeout" in result.stderr


def test_many_requests_a_second_are_a_plain_number(capsys: pytest.CaptureFixture[str]) -> None:
    _show_throughput(Terminal(), Throughput(10, 2, 2584.4, 2, 99.26, 3150.0), 0.0003)
    shown = capsys.readouterr().out
    assert "2584" in shown
    assert "99.3" in shown
    assert "e+" not in shown


@pytest.mark.parametrize(
    ("planned", "replicas", "one", "step_s", "words"),
    [
        (100.0, 150.0, 80.0, 0.010, "choose replicas if many requests wait; this plan answers a single one sooner"),
        (60.0, 150.0, 80.0, 0.020, "choose replicas: they serve more requests, and answer a single one no later"),
        (150.0, 100.0, 80.0, 0.010, "choose this plan: replicas do not serve more requests, and answer each later"),
        (150.0, None, None, 0.010, "choose this plan: replicas do not run here"),
    ],
)
def test_what_to_choose_follows_from_what_was_measured(
    planned: float, replicas: float | None, one: float | None, step_s: float, words: str
) -> None:
    assert _choice(Throughput(10, 2, planned, 2, replicas, one), step_s).startswith(words)


def test_apply_reads_inputs_and_writes_outputs(folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 48, 48)).astype(np.float32)
    np.savez("in.npz", x=x)
    assert run("apply", "plan.yaml", "--inputs", "in.npz", "--outputs", "out.npz").exit_code == 0
    (expected,) = ort.InferenceSession("model.onnx").run(None, {"x": x})
    with np.load("out.npz", allow_pickle=False) as found:
        assert found.files == ["y"]
        np.testing.assert_allclose(found["y"], expected, rtol=1e-3, atol=1e-4)


def test_a_gpu_plan_on_the_cpu_claims_no_times(folder: Path) -> None:
    run("plan", "model.onnx", *V100, "--planner", "data-parallel", "-o", "gpu.yaml")
    refused(run("apply", "gpu.yaml"), "--on cpu", "v100")
    result = data(run("apply", "gpu.yaml", "--on", "cpu", "--verify", "--json"))
    assert result["verified"] is True
    assert (result["step_s"], result["one_device_step_s"]) == (None, None)
    assert [device["busy_s"] for device in result["devices"]] == [None, None]
    assert "measured" not in run("apply", "gpu.yaml", "--on", "cpu").stdout


def test_wrong_outputs_are_a_negative_answer_that_names_the_tensor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner.launcher.planned_session import PlannedSession

    right = PlannedSession.run
    monkeypatch.setattr(PlannedSession, "run", lambda *given: [value + np.float32(1) for value in right(*given)])
    refused(run("apply", "plan.yaml", "--verify", "--repeat", "1"), "'y'", "unsplit model", code=1)


def _run_parts(folder: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """What the manifest says, and nothing of fddps."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [info["name"] for info in manifest["inputs"]] == list(feeds)
    values = dict(feeds)
    for segment in manifest["segments"]:
        session = ort.InferenceSession(str(folder / segment["file"]))
        names = [info["name"] for info in segment["outputs"]]
        given = {info["name"]: values[info["name"]] for info in segment["inputs"]}
        values.update(zip(names, session.run(names, given), strict=True))
    return {info["name"]: values[info["name"]] for info in manifest["outputs"]}


def test_exported_parts_run_by_the_manifest_alone(folder: Path) -> None:
    assert run("export", "plan.yaml", "-o", "parts").exit_code == 0
    Path("model.onnx").rename("gone.onnx")
    x = np.random.default_rng(1).standard_normal((2, 3, 48, 48)).astype(np.float32)
    (expected,) = ort.InferenceSession("gone.onnx").run(None, {"x": x})
    np.testing.assert_allclose(_run_parts(Path("parts"), {"x": x})["y"], expected, rtol=1e-3, atol=1e-4)


def test_the_manifest_lists_devices_transfers_and_types(folder: Path) -> None:
    run("export", "plan.yaml", "-o", "parts")
    manifest, plan = json.loads(Path("parts/manifest.json").read_text()), read_plan("plan.yaml")
    assert manifest["inputs"] == [{"name": "x", "type": "tensor(float)", "shape": [2, 3, 48, 48]}]
    assert [device["name"] for device in manifest["devices"]] == ["cpu:0", "cpu:1"]
    assert len(manifest["transfers"]) == len(plan.transfers) > 0
    assert listing(Path("parts")) == sorted(["manifest.json", *(s["file"] for s in manifest["segments"])])


def test_outputs_that_no_segment_makes_are_exported(tmp_path: Path) -> None:
    """One output is a weight, one an input passed through."""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [info("x", 1, [2])],
        [info("y", 1, [2]), info("w", 1, [3]), info("x", 1, [2])],
        [onnx.numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    assert run("plan", tmp_path / "m.onnx", *V100, "-o", tmp_path / "p.yaml").exit_code == 0
    assert run("export", tmp_path / "p.yaml", "-o", tmp_path / "parts").exit_code == 0
    x = np.array([1, -2], np.float32)
    outputs = _run_parts(tmp_path / "parts", {"x": x})
    assert {name: list(value) for name, value in outputs.items()} == {"y": [-1, 2], "w": [0, 1, 2], "x": [1, -2]}


def test_export_replaces_only_its_own(folder: Path) -> None:
    Path("parts").mkdir()
    assert run("export", "plan.yaml", "-o", "parts").exit_code == 0
    refused(run("export", "plan.yaml", "-o", "parts"), "not empty", "--force")
    Path("parts/stale.onnx").touch()
    assert run("export", "plan.yaml", "-o", "parts", "--force").exit_code == 0
    assert not Path("parts/stale.onnx").exists()
    Path("photos").mkdir()
    Path("photos/me.jpg").touch()
    refused(run("export", "plan.yaml", "-o", "photos", "--force"), "not an earlier export")
    # Web pages have a file of that name too.
    Path("photos/manifest.json").write_text('{"name": "my page"}')
    refused(run("export", "plan.yaml", "-o", "photos", "--force"), "not an earlier export")
    assert listing(Path("photos")) == ["manifest.json", "me.jpg"]
    assert [name for name in listing(folder) if "tmp" in name] == []


def test_weights_beyond_the_limit_go_into_data_files(tmp_path: Path) -> None:
    """The limit of 2 GB, scaled down."""
    from planner.model.load import load_model

    onnx.save(nasnet_cell_like(channels=64, cells=1), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    graph = model.graph
    built, weights = build_model(
        graph.ops,
        tensors=graph.tensors,
        inputs=graph.inputs,
        outputs=graph.outputs,
        weights=model.weights,
        opsets=model.opsets,
        ir_version=model.ir_version,
        embed_limit_bytes=1024,
    )
    names = save_with_weights(built, weights, tmp_path / "out.onnx", max_file_bytes=40_000)
    assert len(names) > 1
    assert all((tmp_path / name).stat().st_size <= 40_000 for name in names)
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)
    expected, found = (ort.InferenceSession(tmp_path / n).run(None, {"x": x})[0] for n in ("m.onnx", "out.onnx"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_devices_lists_core_groups_with_memory_and_links() -> None:
    found = data(run("devices", "--cpus", "2x1", "--json"))
    cpus = [device for device in found["devices"] if device["type"] == "cpu"]
    assert [device["name"] for device in cpus] == ["cpu:0", "cpu:1"]
    assert all(device["memory_bytes"] > 0 and len(device["cores"]) == 1 for device in cpus)
    assert {"src": "cpu:0", "dst": "cpu:1", "kind": "shared-memory"} in found["links"]
    assert "shared-memory" in run("devices", "--cpus", "2x1").stdout


def test_devices_that_share_a_core_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.cluster.cpu.paid_cores", lambda: (0, 1))
    assert "cpu:0, cpu:2 share cores" in run("devices", "--cpus", "3").stderr
    assert "share cores" not in run("devices", "--cpus", "2").stderr
    found = data(run("devices", "--cpus", "3", "--json"))["devices"]
    assert [d["shares_cores"] for d in found if d["type"] == "cpu"] == [True, False, True]


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(0, True).result({"step": math.inf, "rows": [{"slowdown": math.nan}, 1.5]})
    assert json.loads(capsys.readouterr().out) == {"step": None, "rows": [{"slowdown": None}, 1.5]}


@pytest.mark.parametrize("at", [1, 2, 3], ids=["after-the-old-one", "after-the-new-one", "while-removing"])
def test_an_interrupted_export_leaves_one_whole_folder(at: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("export", "plan.yaml", "-o", "parts").exit_code == 0
    files = listing(folder / "parts")
    done = [0]

    def interrupted(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            result = function(*given, **named)
            if str(given[0]).endswith(("parts", ".tmp", ".old")):
                done[0] += 1
                if done[0] == at:
                    raise KeyboardInterrupt
            return result

        return call

    with monkeypatch.context() as stopped:
        stopped.setattr("planner.launcher.export.os.replace", interrupted(os.replace))
        stopped.setattr("planner.launcher.export.shutil.rmtree", interrupted(shutil.rmtree))
        assert run("export", "plan.yaml", "-o", "parts", "--force").exit_code == 130
    assert listing(folder / "parts") == files
    assert [name for name in listing(folder) if name.startswith(".parts")] == []


def test_standard_output_that_cannot_be_written_is_an_error(folder: Path) -> None:
    command = [sys.executable, "-m", "planner.cli.main", "validate", "plan.yaml", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(planner.__file__).parent.parent)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("fddps: error: ")
    assert "Traceback" not in done.stderr
