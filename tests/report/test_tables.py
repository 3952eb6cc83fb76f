from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from planner.plan.schema import Candidate, DevicePrediction, Plan
from planner.report.tables import candidates_table, device_table, replica_line, summary, verdict
from tests.plan.builders import make_plan, make_predictions


def shown(renderable: Any) -> str:
    console = Console(width=160, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def line_of(text: str, word: str) -> str:
    (line,) = [line for line in text.splitlines() if word in line]
    return " ".join(line.replace("│", " ").split())


def plan_with(**predictions: Any) -> Plan:
    return make_plan({"cpu:0": [("a", 1), ("b", 1)], "cpu:1": []}, predictions=make_predictions(**predictions))


def test_each_device_shows_its_share() -> None:
    text = shown(device_table(plan_with()))
    assert line_of(text, "cpu:0") == "cpu:0 cpu-test-1c 500 ns 50% 1.0 MiB 0% 2 2"
    assert line_of(text, "cpu:1") == "cpu:1 cpu-test-1c 0 ns 0% 0 B 0% 0 0"


def test_a_step_of_no_time_divides_by_nothing() -> None:
    idle = (DevicePrediction(device="cpu:0", busy_ns=0, peak_bytes=0),)
    text = shown(summary(plan_with(step_ns=0, one_device_step_ns=0, devices=idle)))
    assert "cpu:0" in text


def test_candidates_are_sorted_by_time_with_speed_ups_over_one_device() -> None:
    text = shown(candidates_table(plan_with()))
    rows = [line for line in text.splitlines() if any(name in line for name in ("dcp", "heft", "single"))]
    assert ["dcp" in rows[0], "heft" in rows[1], "single" in rows[2]] == [True] * 3
    assert line_of(text, "dcp") == "dcp 1.000 us 2.00x this plan"
    assert line_of(text, "heft") == "heft 1.500 us 1.33x"
    assert line_of(text, "single") == "single - - too big"


def test_the_plan_itself_is_listed_once() -> None:
    candidates = (Candidate(planner="dcp", step_ns=1000), Candidate(planner="heft", step_ns=900))
    text = shown(candidates_table(plan_with(candidates=candidates)))
    assert text.count("dcp") == 1
    assert text.index("heft") < text.index("dcp")


def test_the_verdict_says_why_and_how_near_the_bounds() -> None:
    text = shown(verdict(plan_with()))
    for part in ("1.000 us, by dcp", "why: the fastest", "speed-up 2.00x", "less than 900 ns", "800 ns", "3 measured"):
        assert part in text


def test_names_are_neither_markup_nor_commands() -> None:
    plan = make_plan({"[red]x": [("a", 1)]}, why="[bold]because\x1b[2J", notes=("[/]",))
    text = shown(summary(plan))
    assert "[red]x" in text
    assert "[bold]because" in text
    assert "[/]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("one_ns", "step_ns", "words"),
    [
        (2_000_000, 1_000_000, "2 replicas give 1000.0 steps/s, as many as this plan's 1000.0"),
        (1_999_999, 1_000_000, "2 replicas give 1000.0 steps/s, as many as this plan's 1000.0"),
        (1_500_000, 1_000_000, "2 replicas give 1333.3 steps/s, more than this plan's 1000.0"),
        (2_500_000, 1_000_000, "2 replicas give 800.0 steps/s, fewer than this plan's 1000.0"),
    ],
)
def test_replicas_are_said_to_give_more_only_if_it_shows(one_ns: int, step_ns: int, words: str) -> None:
    assert words in replica_line(plan_with(step_ns=step_ns, one_device_step_ns=one_ns))
