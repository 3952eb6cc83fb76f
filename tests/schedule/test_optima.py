"""Schedulers against public instances with a known optimum (../shared/benchmarks)."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.schedule.bare import load_bare
from planner.schedule.bounds import lower_bound_ns
from tools.optima import Instance, constructed, instances, measure, schedulers


def collection(shared_dir: Path, kind: str) -> list[Instance]:
    folder = shared_dir / "benchmarks"
    if not (folder / f"optimal_schedules_{kind}_communication.jsonl").is_file():
        pytest.skip(f"no schedules {kind} communication in ../shared/benchmarks")
    return list(instances(folder, kind))


def quality(chosen: list[Instance], name: str) -> tuple[float, float]:
    """(Share of optimal schedules, mean ratio to the optimum); all are checked, and none is below its optimum."""
    (scheduler,) = schedulers([name]).values()
    ratios, _ = measure(chosen, scheduler)
    return sum(ratio == 1 for ratio in ratios) / len(ratios), sum(ratios) / len(ratios)


# Measured: see tests/bench/SCHEDULES.md.
@pytest.mark.parametrize(
    ("planner", "mean"), [("heft", 1.17), ("peft", 1.21), ("etf", 1.2), ("dcp", 1.06), ("fd-dps", 1.055)]
)
def test_one_pass_is_near_the_optimum_with_communication(shared_dir: Path, planner: str, mean: float) -> None:
    assert quality(collection(shared_dir, "with"), planner)[1] <= mean


def test_the_bound_is_none_above_an_optimum(shared_dir: Path) -> None:
    # Not those without communication: some of the lengths stored there are below what any schedule can have.
    for name, line, optimum in collection(shared_dir, "with"):
        assert lower_bound_ns(load_bare(line)[0]) <= optimum, name


def test_normal_effort_finds_four_of_five_optima(shared_dir: Path) -> None:
    optimal, mean = quality(collection(shared_dir, "with")[::3], "auto:normal")
    assert optimal >= 0.8
    assert mean <= 1.01


@pytest.mark.long
def test_thorough_effort_finds_nearly_all_optima_with_communication(shared_dir: Path) -> None:
    optimal, mean = quality(collection(shared_dir, "with")[::2], "auto:thorough")
    assert optimal >= 0.99
    assert mean <= 1.0005


@pytest.mark.long
def test_thorough_effort_finds_nearly_all_optima_without_communication(shared_dir: Path) -> None:
    chosen = collection(shared_dir, "without")[::5]
    optimal, mean = quality(chosen, "auto:thorough")
    # Of 48 stored lengths that were not reached, CP-SAT proved 37 to be none that can be: see tests/bench/SCHEDULES.md.
    assert optimal >= 0.92
    assert mean <= 1.003


@pytest.mark.long
@pytest.mark.parametrize(("tasks", "processors", "mean"), [(200, 4, 1.02), (1_000, 8, 1.05)])
def test_perfect_packings_are_nearly_found(shared_dir: Path, tasks: int, processors: int, mean: float) -> None:
    folder = shared_dir / "benchmarks"
    if not (folder / "make_known_optimum.py").is_file():
        pytest.skip("no make_known_optimum.py in ../shared/benchmarks")
    chosen = [next(constructed(folder, tasks, processors, ccr)) for ccr in ("0.1", "1", "5")]
    assert quality(chosen, "auto:thorough")[1] <= mean
