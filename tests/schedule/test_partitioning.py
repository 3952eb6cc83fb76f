"""The conversion of profiled networks (msr-fiddle/dnn-partitioning) to bare task graphs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InfeasibleError
from planner.schedule.bare import parse_bare
from tests.schedule.bare_checker import bare_problems
from tools import partitioning
from tools.optima import schedulers
from tools.partitioning import bare_line

MIB = 2**20
# 2**31 bytes a second.
MIB_A_MS = 2**31 / 1000 / MIB


def node(number: int, ms: float, mib: int, *, color: int | None = None, supported: bool = True) -> dict[str, Any]:
    found = {
        "id": number,
        "name": f"node{number}",
        "fpgaLatency": ms,
        "cpuLatency": 10 * ms,
        "size": float(mib * MIB),
        "supportedOnFpga": supported,
    }
    return found if color is None else {**found, "colorClass": color}


def edge(src: int, dst: int, ms: float) -> dict[str, Any]:
    # The cost is in another unit, as in some of their graphs.
    return {"sourceId": src, "destId": dst, "size": ms * MIB_A_MS * MIB, "cost": -1}


def graph(*nodes: dict[str, Any], edges: tuple[dict[str, Any], ...] = (), mib: int = 100) -> dict[str, Any]:
    return {"nodes": list(nodes), "edges": list(edges), "maxSizePerFPGA": float(mib * MIB), "maxFPGAs": 2}


def scheduled(line: dict[str, Any], planner: str = "auto") -> dict[str, Any]:
    """An answer that the independent checker has seen."""
    found = parse_bare(line)
    schedule = schedulers([planner])[planner](found.graph, found.comm, memory_limit=found.memory_limit)
    answer = found.answer(schedule)
    assert bare_problems(line, answer) == []
    return answer


def devices(answer: dict[str, Any]) -> list[int]:
    return [device for device, _, _ in answer["tasks"]]


def test_each_kind_has_its_own_costs() -> None:
    line = bare_line("g", graph(node(1, 2, 1), node(2, 3, 1)), 2, 1)
    assert (line["processors"], line["kinds"]) == (3, [0, 0, 1])
    assert line["weights"] == [[2, 3], [20, 30]]


def test_accelerators_are_limited_in_memory_and_cpus_are_not() -> None:
    given = graph(node(1, 1, 80), node(2, 1, 80), node(3, 1, 80), mib=100)
    line = bare_line("g", given, 2, 1)
    assert line["memory"] == [80 * MIB] * 3
    assert line["memory_limit"][:2] == [100 * MIB] * 2
    assert line["memory_limit"][2] > sum(line["memory"])
    # Two fit the accelerators, one each; the third takes ten times as long on the CPU, which is the only place left.
    answer = scheduled(line)
    assert sorted(devices(answer)) == [0, 1, 2]
    assert answer["makespan"] == 10


def test_without_a_cpu_what_does_not_fit_the_accelerators_fits_nowhere() -> None:
    line = bare_line("g", graph(node(1, 1, 80), node(2, 1, 80), node(3, 1, 80), mib=100), 2, 0)
    with pytest.raises(InfeasibleError):
        scheduled(line, "heft")


def test_a_class_is_colocated_and_operators_without_one_are_free() -> None:
    free = graph(node(1, 5, 1), node(2, 5, 1), node(3, 5, 1), node(4, 5, 1))
    tied = graph(node(1, 5, 1, color=7), node(2, 5, 1, color=7), node(3, 5, 1, color=7), node(4, 5, 1))
    assert bare_line("g", tied, 2, 0)["together"] == [7, 7, 7, None]
    assert scheduled(bare_line("g", free, 2, 0))["makespan"] == 10
    answer = scheduled(bare_line("g", tied, 2, 0))
    assert len(set(devices(answer)[:3])) == 1
    assert answer["makespan"] == 15


@pytest.mark.parametrize(("delay", "makespan"), [(1, 7), (9, 10)])
def test_delays_come_from_the_sizes_in_milliseconds(delay: float, makespan: float) -> None:
    """Two branches of 4 ms between operators of 1 ms: apart only if a delay is shorter than a branch."""
    edges = (edge(1, 2, delay), edge(1, 3, delay), edge(2, 4, 0), edge(3, 4, 0))
    line = bare_line("g", graph(node(1, 1, 1), node(2, 4, 1), node(3, 4, 1), node(4, 1, 1), edges=edges), 2, 0)
    assert [e[2] for e in line["edges"]] == pytest.approx([delay, delay, 0, 0])
    assert scheduled(line)["makespan"] == pytest.approx(makespan)


def test_ids_are_names_not_positions() -> None:
    given = graph(node(12, 1, 1), node(40, 1, 1), node(7, 1, 1), edges=(edge(40, 7, 1), edge(7, 12, 2)))
    assert [e[:2] for e in bare_line("g", given, 1, 1)["edges"]] == [[1, 2], [2, 0]]


def test_what_an_accelerator_cannot_run_goes_to_the_cpu() -> None:
    line = bare_line("g", graph(node(1, 1, 1), node(2, 1, 1, supported=False), node(3, 1, 1)), 2, 1)
    assert devices(scheduled(line))[1] == 2


def test_what_only_a_cpu_can_run_needs_one() -> None:
    with pytest.raises(ValueError, match="CPU only"):
        bare_line("g", graph(node(1, 1, 1, supported=False)), 2, 0)


def test_the_table_has_a_row_for_each_graph_and_planner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a", "other"):
        (tmp_path / f"{name}.json").write_text(json.dumps(graph(node(1, 2, 60), node(2, 2, 60), mib=100)))
    # Pinning the test run itself to one core would outlast this test.
    monkeypatch.setattr(partitioning.os, "sched_setaffinity", lambda *_: None)
    options = ["--graphs", str(tmp_path), "--pattern", "?.json", "--planner", "heft", "--planner", "auto"]
    monkeypatch.setattr(sys, "argv", ["partitioning", *options, "--cpus", "0"])
    partitioning.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    # Two accelerators, one operator each: as short as the bound says.
    assert [(row[0], row[2], row[3], row[4]) for row in rows] == [
        (f"| {name}", planner, "2.00", "1.000") for name in ("a", "b") for planner in ("heft", "auto")
    ]
