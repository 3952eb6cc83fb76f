"""``fddps schedule``, ``fddps compare`` and ``fddps planners``: what they print and write, and what they refuse."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli.main import main
from planner.schedule.planners import PLANNERS
from tests.cli.support import V100, data, listing, refused, run
from tests.schedule.bare_checker import bare_problems

DIAMOND = {
    "name": "diamond",
    "processors": 2,
    "weights": [2, 3, 4, 1],
    "edges": [[0, 1, 1], [0, 2, 1], [1, 3, 2], [2, 3, 2]],
}
LINES: list[dict[str, Any]] = [
    DIAMOND,
    {**DIAMOND, "name": "backwards", "edges": [[3, 1, 1], [3, 2, 1], [1, 0, 2], [2, 0, 2]]},
    {"name": "no delays", "weights": [5, 5, 5], "edges": [[0, 2]]},
    {**DIAMOND, "name": "kinds", "weights": [[2, 3, 4, 1], [20, 1, 20, 20]]},
    {**DIAMOND, "name": "named kinds", "kinds": [1, 0], "weights": [[2, 3, 4, 1], [20, 1, 20, 20]]},
    {**DIAMOND, "name": "memory", "memory": [5, 5, 5, 5], "memory_limit": [10, 10]},
    {**DIAMOND, "name": "halves", "processors": 1, "memory": [0.25, 0.25, 0.25, 0.25], "memory_limit": 1},
    {**DIAMOND, "name": "nodes", "processors": 3, "node_of": ["a", "a", "b"], "remote_factor": 10},
    {**DIAMOND, "name": "together", "together": [0, 7, 7, None], "edges": [[0, 1, 1], [0, 2, 1], [1, 3, 1], [2, 3, 1]]},
    {**DIAMOND, "name": "fractions", "weights": [0.5, 0.25, 1.5, 1e-3], "edges": [[0, 1, 0.125], [1, 3, 2.5]]},
    {"name": "empty", "weights": [], "edges": []},
]


def write(lines: list[Any], name: str = "tasks.jsonl") -> None:
    Path(name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize("planner", [p.name for p in PLANNERS.values() if p.on_tasks is not None])
def test_every_sort_of_line_gets_a_valid_schedule(folder: Path, planner: str) -> None:
    lines = LINES if planner != "one-device" else [line for line in LINES if "memory" not in line]
    write(lines)
    result = run("schedule", "tasks.jsonl", "--planner", planner, "--processors", "3", "--effort", "quick", "-q")
    assert result.exit_code == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["name"] for answer in answers] == [line["name"] for line in lines]
    for line, answer in zip(lines, answers, strict=True):
        assert bare_problems(line, answer, processors=3) == [], (line["name"], answer)


def test_the_best_schedule_is_found_and_written(folder: Path) -> None:
    write(LINES)
    before = listing(folder)
    result = run("schedule", "tasks.jsonl", "--processors", "3", "-o", "out.jsonl", "--json")
    makespans = {each["name"]: each["makespan"] for each in data(result)["schedules"]}
    # By hand: 0 and 1 on one device, 2 (from 3 to 7) and 3 on the other, where 1's result is at 7.
    assert (makespans["diamond"], makespans["no delays"], makespans["empty"]) == (8, 10, 0)
    assert makespans["backwards"] == 8
    written = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [answer["makespan"] for answer in written] == list(makespans.values())
    assert listing(folder) == sorted([*before, "out.jsonl"])
    again = run("schedule", "tasks.jsonl", "--processors", "3", "-q")
    assert again.stdout == Path("out.jsonl").read_text()


def test_a_line_that_does_not_fit_says_why_and_the_others_go_on(folder: Path) -> None:
    tight = {**DIAMOND, "name": "tight", "memory": [9, 9, 9, 9], "memory_limit": 10}
    write([tight, DIAMOND])
    result = run("schedule", "tasks.jsonl")
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert result.exit_code == 0 and first["makespan"] is None and "memory" in first["infeasible"]
    assert second["makespan"] == 8
    write([tight])
    assert run("schedule", "tasks.jsonl").exit_code == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", ("tasks.jsonl:1", "JSON")),
        ("[1]", ("tasks.jsonl:1", "JSON object")),
        ('{"weights": [1]}', ("edges",)),
        ('{"weights": [1], "edges": []}', ("processors", "--processors")),
        ('{"processors": 0, "weights": [1], "edges": []}', ("processors",)),
        ('{"processors": 1, "weights": [-1], "edges": []}', ("weights[0]", "-1")),
        ('{"processors": 1, "weights": [NaN], "edges": []}', ("weights[0]",)),
        ('{"processors": 1, "weights": ["1"], "edges": []}', ("weights[0]",)),
        ('{"processors": 1, "weights": 3, "edges": []}', ("weights",)),
        ('{"processors": 3, "weights": [[1], [2]], "edges": []}', ("weights", "kinds")),
        ('{"processors": 2, "weights": [[1], [2, 3]], "edges": []}', ("weights", "equal lengths")),
        ('{"processors": 2, "kinds": [0, 7], "weights": [[1], [2]], "edges": []}', ("kinds",)),
        ('{"processors": 1, "weights": [1, 1], "edges": [[0, 5]]}', ("edges[0]", "tasks 0 to 1")),
        ('{"processors": 1, "weights": [1, 1], "edges": [[0]]}', ("edges[0]",)),
        ('{"processors": 1, "weights": [1, 1], "edges": [[0, 1, -4]]}', ("edges[0]", "-4")),
        ('{"processors": 1, "weights": [1, 1], "edges": [[0, 1], [1, 0]]}', ("cycle",)),
        ('{"processors": 1, "weights": [1, 1], "edges": [[0, 1, 9007199254740992]]}', ("too long",)),
        ('{"processors": 1, "weights": [1], "edges": [], "memory": [1, 2]}', ("memory",)),
        ('{"processors": 2, "weights": [1], "edges": [], "memory": [1], "memory_limit": [1]}', ("memory_limit",)),
        ('{"processors": 2, "weights": [1], "edges": [], "node_of": [0]}', ("node_of",)),
        ('{"processors": 1, "weights": [9007199254740992, 0.5], "edges": []}', ("weights", "add up")),
        ('{"processors": 1, "weights": [' + "9" * 400 + '], "edges": []}', ("weights[0]",)),
        ('{"processors": 1, "weights": [1], "edges": [], "memory": [1], "memory_limits": 3}', ("memory_limit",)),
        ('{"processors": 2, "weights": [1], "edges": [], "node_of": [0, 1], "remote_factor": 1e13}', ("too long",)),
        ('{"processors": 1, "weights": [1, 2], "edges": [], "together": [0]}', ("together", "one a task")),
        ('{"processors": 1, "weights": [1], "edges": [], "together": ["a"]}', ("together[0]", "null")),
        ('{"processors": 1, "weights": ["' + "y" * 500 + '"], "edges": []}', ("weights[0]", "yyy...")),
        (
            json.dumps({"processors": 1, "weights": [1] * 1024, "edges": [], "memory": [2**53] * 1024}),
            ("memory", "add up"),
        ),
        (
            '{"name": "\\ud800", "processors": 1, "weights": [1], "edges": []}',
            ("tasks.jsonl:1:name", "ud800", "no text"),
        ),
        ('{"processors": 1, "weights": [1], "edges": [], "weights": [2]}', ("tasks.jsonl:1", "weights", "twice")),
        ('{"processors": 1, "weights": [1], "edges": [], "memory_limt": 3}', ("memory_limt", "perhaps 'memory_limit'")),
        ('{"processors": 1, "weights": [1], "edges": [], "colour": 3}', ("colour", "one of", "together", "optimum")),
        ("", ("no task graph",)),
    ],
)
def test_a_bad_line_is_named(folder: Path, line: str, words: tuple[str, ...]) -> None:
    Path("tasks.jsonl").write_text(line)
    before = listing(folder)
    refused(run("schedule", "tasks.jsonl", "-o", "out.jsonl"), *words)
    assert listing(folder) == before


def test_what_collections_say_about_a_line_is_passed_over(folder: Path) -> None:
    said = {"optimal_length": {"2": 8}, "optimum": 8, "seed": 3, "comment": "by hand"}
    write([{**DIAMOND, **said}])
    assert json.loads(run("schedule", "tasks.jsonl").stdout)["makespan"] == 8


def test_a_byte_order_mark_is_no_part_of_the_first_line(folder: Path) -> None:
    Path("tasks.jsonl").write_text(f"{json.dumps(DIAMOND)}\n", encoding="utf-8-sig")
    assert json.loads(run("schedule", "tasks.jsonl").stdout)["makespan"] == 8


def test_lines_from_standard_input() -> None:
    result = CliRunner().invoke(main, ["schedule", "-"], input=f"{json.dumps(DIAMOND)}\n")
    assert json.loads(result.stdout)["makespan"] == 8


def test_what_has_no_end_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo("pipe")
    for endless in ("/dev/zero", "pipe"):
        refused(run("schedule", endless), endless, "device or a pipe")
    monkeypatch.setattr("planner.bare_tasks.MAX_BYTES", 20)
    write([DIAMOND])
    refused(run("schedule", "tasks.jsonl"), "tasks.jsonl", "too large", "20 bytes")


def test_half_a_character_in_a_files_name_is_printed_as_its_escape(folder: Path) -> None:
    write([DIAMOND])
    assert data(run("schedule", "tasks.jsonl", "-o", "\udcff.jsonl", "--json", "-q"))["output"] == "\udcff.jsonl"


def test_options_of_schedule_that_make_no_sense(folder: Path) -> None:
    write([DIAMOND])
    refused(run("schedule", "nowhere.jsonl"), "nowhere.jsonl", "cannot be read")
    refused(run("schedule", "tasks.jsonl", "--planner", "magic"), "magic", "fd-dps")
    refused(run("schedule", "tasks.jsonl", "--planner", "data-parallel"), "data-parallel", "model", "heft")
    refused(run("schedule", "tasks.jsonl", "--json"), "--json")
    refused(run("schedule", "tasks.jsonl", "-o", "tasks.jsonl"), "tasks.jsonl")
    refused(run("schedule", "tasks.jsonl", "-o", "nowhere/out.jsonl"), "nowhere/out.jsonl", "check the path")
    Path("out.jsonl").write_text("mine")
    refused(run("schedule", "tasks.jsonl", "-o", "out.jsonl"), "out.jsonl", "--force")
    assert Path("out.jsonl").read_text() == "mine"
    assert run("schedule", "tasks.jsonl", "-o", "out.jsonl", "--force").exit_code == 0


def test_planners_are_listed_with_a_line_each() -> None:
    lines = run("planners").stdout.splitlines()
    names = [line.split()[0] for line in lines]
    expected = "one-device all-cores data-parallel heft peft etf m-topo m-etf m-sct dcp mp-dps fastt fastt-dp pipeline"
    assert names == [*expected.split(), "fd-dps", "auto"]
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)
    assert [row["name"] for row in data(run("planners", "--json"))["planners"]] == names


def test_all_planners_are_compared(folder: Path) -> None:
    command = ("compare", "mlp.onnx", "--batch", "4", *V100, "--effort", "quick")
    result = run(*command, "-o", "table.json", "--json")
    rows = json.loads(Path("table.json").read_text())
    assert data(result)["planners"] == rows
    assert [row["planner"] for row in rows] == list(PLANNERS)
    by_name = {row["planner"]: row for row in rows}
    keys = {"planner", "predicted_step_s", "speedup", "gap_to_lower_bound", "peak_bytes", "bytes_moved", "planning_s"}
    for row in rows:
        assert set(row) == keys | ({"infeasible"} if row["predicted_step_s"] is None else set())
        if row["predicted_step_s"] is not None:
            assert (
                row["gap_to_lower_bound"] >= 0
                and row["planning_s"] > 0
                and set(row["peak_bytes"])
                == {
                    "cuda:0",
                    "cuda:1",
                }
            )
    assert "CPU devices" in by_name["all-cores"]["infeasible"]
    assert by_name["one-device"]["speedup"] == 1 and by_name["one-device"]["bytes_moved"] == 0
    best = min(row["predicted_step_s"] for row in rows if row["predicted_step_s"])
    assert by_name["auto"]["predicted_step_s"] <= best * 1.021
    assert run(*command, "--planners", "heft,auto", "-o", "table.csv").exit_code == 0
    with open("table.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["planner"] for row in written] == ["heft", "auto"]
    assert float(written[0]["predicted_step_s"]) == by_name["heft"]["predicted_step_s"]


def test_comparing_fails_only_if_no_planner_has_a_plan(folder: Path) -> None:
    command = ("compare", "mlp.onnx", "--batch", "4", *V100)
    assert run(*command, "--planners", "all-cores").exit_code == 1
    assert run(*command, "--planners", "all-cores,heft").exit_code == 0


def test_options_of_compare_that_make_no_sense(folder: Path) -> None:
    command = ("compare", "mlp.onnx", *V100, "--batch", "4")
    refused(run(*command, "--planners", "heft,magic"), "magic", "fd-dps")
    refused(run(*command, "-o", "table.txt"), ".json or .csv")
    refused(run(*command, "-o", "nowhere/table.csv"), "nowhere")
    Path("table.csv").write_text("mine")
    refused(run(*command, "-o", "table.csv"), "table.csv", "--force")
    assert Path("table.csv").read_text() == "mine"
