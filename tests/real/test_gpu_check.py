"""The script for machines with GPUs, on CPU devices: its steps and its report, not the GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import gpu_check


def test_one_gpu_is_planned_for_as_two_and_several_as_themselves() -> None:
    one, four = gpu_check.gpu_target(1), gpu_check.gpu_target(4)
    assert (one.plan, one.apply, one.alone) == (("--gpus", "2"), ("--map", "cuda:1=cuda:0"), True)
    assert (four.plan, four.apply, four.alone) == (("--gpus", "4"), (), False)


@pytest.mark.long
def test_its_steps_on_cpu_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--cpus", "2", "--model", "squeezenet", "--out", str(tmp_path)])
    assert gpu_check.main() == 0
    report = (tmp_path / "REPORT.md").read_text(encoding="utf-8")
    assert "| squeezenet | 1 |" in report
    assert "| yes |" in report
    assert "| conv |" in report


def test_without_gpus_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    answer = {"devices": [{"name": "cpu:0", "kind": "cpu-generic-1c", "type": "cpu"}], "driver": ""}
    monkeypatch.setattr(gpu_check, "run_fddps", lambda *_: answer)
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--out", str(tmp_path)])
    assert gpu_check.main() == 1
    assert "no GPU found" in capsys.readouterr().err


def test_what_fails_is_in_the_report_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> object:
        if arguments[0] == "devices":
            return {"devices": [{"name": "cuda:0", "kind": "t4", "type": "cuda"}], "driver": "1"}
        raise gpu_check.CommandFailed(f"fddps {arguments[0]} ended with exit code 2")

    monkeypatch.setattr(gpu_check, "run_fddps", run)
    monkeypatch.setattr(gpu_check, "gpu_devices", lambda spec: gpu_check.cpu_devices("1"))
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--out", str(tmp_path)])
    for name, _ in gpu_check.CASES:
        (tmp_path / f"{name}.onnx").touch()
    assert gpu_check.main() == 1
    report = (tmp_path / "REPORT.md").read_text(encoding="utf-8")
    for name, batch in gpu_check.CASES:
        assert f"FAILED: {name}, batch {batch}: fddps profile ended with exit code 2" in report
