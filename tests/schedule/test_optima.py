"""Schedulers against public instances with a known optimum (../shared/benchmarks)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.graph.task_graph import Schedule
from planner.schedule.bare import load_bare
from planner.schedule.bounds import lower_bound_ns
from planner.schedule.checker import violations
from planner.schedule.dcp import dcp
from planner.schedule.dcp_plain import dcp_plain
from planner.schedule.heft import heft
from planner.schedule.improve import improve


def instances(shared_dir: Path, kind: str) -> list[dict[str, Any]]:
    path = shared_dir / "benchmarks" / f"optimal_schedules_{kind}_communication.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name} in ../shared/benchmarks")
    return [json.loads(line) for line in path.read_text().splitlines()]


def ratios(lines: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Makespan over optimum for each scheduler; every schedule is checked."""
    found: dict[str, list[float]] = {"heft": [], "dcp": [], "dcp_plain": [], "improved": []}
    for line in lines:
        graph, comm = load_bare(line)
        optimum = int(line["optimal_length"])
        assert lower_bound_ns(graph) <= optimum
        by_dcp = dcp(graph, comm)
        schedules: dict[str, Schedule] = {
            "heft": heft(graph, comm),
            "dcp": by_dcp,
            "dcp_plain": dcp_plain(graph, comm),
            "improved": improve(graph, comm, by_dcp, effort="quick"),
        }
        for name, schedule in schedules.items():
            assert violations(graph, comm, schedule) == []
            assert schedule.makespan_ns >= optimum
            found[name].append(schedule.makespan_ns / optimum)
    return found


def test_close_to_the_optimum_with_communication(shared_dir: Path) -> None:
    found = ratios(instances(shared_dir, "with"))
    mean = {name: sum(values) / len(values) for name, values in found.items()}
    # Measured: heft 1.163, dcp 1.050, dcp_plain 1.084, improved 1.020.
    assert mean["heft"] <= 1.17
    assert mean["dcp"] <= 1.06
    assert mean["dcp_plain"] <= 1.10
    assert mean["improved"] <= 1.03


def test_without_communication_never_below_the_optimum(shared_dir: Path) -> None:
    worst = 0.0
    for line in instances(shared_dir, "without")[::12]:
        lengths = line["optimal_length"]
        for processors, optimum in lengths.items():
            graph, comm = load_bare({**line, "processors": int(processors)})
            schedule = dcp(graph, comm)
            assert violations(graph, comm, schedule) == []
            assert lower_bound_ns(graph) <= optimum <= schedule.makespan_ns
            worst = max(worst, schedule.makespan_ns / optimum)
    assert worst <= 4 / 3
