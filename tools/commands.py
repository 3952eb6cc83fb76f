"""Runs the ``fddps`` command as a user would, and reads what it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CommandFailed(RuntimeError):
    """The command ended with an exit code other than 0; its own message is already on the terminal."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model on one machine: what was predicted and what was measured, in seconds.

    Attributes:
        model: its name.
        planner: whose plan won.
        candidates: planner and predicted step of every choice that was weighed; None where there was no plan.
        predicted_s: predicted step of the plan.
        measured_s: median measured step of the plan.
        one_device_s: median measured step of the unsplit model on one device.
        verified: whether outputs agreed.
    """

    model: str
    planner: str
    candidates: tuple[tuple[str, float | None], ...]
    predicted_s: float
    measured_s: float
    one_device_s: float | None
    verified: bool

    @property
    def speedup(self) -> float | None:
        """Over one device; None if that was not measured."""
        return self.one_device_s / self.measured_s if self.one_device_s else None


def run_fddps(*arguments: str) -> Any:
    """Run ``fddps`` with ``--json`` and return what it prints.

    Raises:
        CommandFailed: if it does not end with 0.
    """
    command = [sys.executable, "-m", "planner.cli.main", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CommandFailed(f"fddps {arguments[0]} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def plan_and_apply(name: str, model: Path, plan: Path, options: Sequence[str]) -> Comparison:
    """Plan a model, run the plan against the unsplit model, and put both side by side.

    Args:
        name: to show.
        model: ONNX file.
        plan: plan file to write.
        options: of ``fddps plan``, e.g. ``--cpus 2 --batch 8``.
    """
    # Imported here: this module must also explain itself in an environment where the package does not import.
    from planner.plan.files import read_plan
    from planner.units import to_s

    run_fddps("plan", str(model), *options, "-o", str(plan))
    measured = run_fddps("apply", str(plan), "--verify")
    planned = read_plan(plan)
    candidates = tuple(
        (candidate.planner, None if candidate.step_ns is None else to_s(candidate.step_ns))
        for candidate in planned.predictions.candidates
    )
    return Comparison(
        model=name,
        planner=planned.planner,
        candidates=candidates,
        predicted_s=measured["predicted_step_s"],
        measured_s=measured["step_s"],
        one_device_s=measured["one_device_step_s"],
        verified=measured["verified"],
    )


def milliseconds(seconds: float | None) -> str:
    """``0.0123`` -> ``12.3``; a dash for what is not known."""
    return "-" if seconds is None else f"{seconds * 1000:.1f}"


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns, the first being the heading; the first column is text, the others numbers."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
