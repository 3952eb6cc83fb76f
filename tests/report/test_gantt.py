from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from planner.report.gantt import gantt
from planner.report.types import TimelineBar


def chart(bars: list[TimelineBar], **options: object) -> list[str]:
    settings = {"width": 60, "ascii_only": True, **options}
    return gantt(bars, **settings).plain.splitlines()  # type: ignore[arg-type]


def test_bars_lie_where_their_time_is() -> None:
    first, second, axis = chart([TimelineBar("d0", "a", 0, 500), TimelineBar("d1", "b", 500, 1000)])
    one, two = first.split("|")[1], second.split("|")[1]
    assert one == "#" * (len(one) // 2) + " " * (len(one) - len(one) // 2)
    assert two == one[::-1]
    assert first.endswith("50%")
    assert axis.endswith("1.000 us")


def test_neighbouring_bars_are_told_apart() -> None:
    row = chart([TimelineBar("d", "a", 0, 10), TimelineBar("d", "b", 10, 20)])[0].split("|")[1]
    assert set(row) == {"#", "="}
    assert row == "#" * row.count("#") + "=" * row.count("=")


def test_work_too_short_for_a_cell_is_still_seen() -> None:
    row = chart([TimelineBar("d", "a", 0, 1), TimelineBar("d", "b", 999_999, 1_000_000)])[0].split("|")[1]
    assert row[0] == row[-1] == ":"
    assert row[1:-1].strip() == ""


def test_devices_without_work_and_without_bars_are_shown_in_order() -> None:
    lines = chart([TimelineBar("d1", "a", 0, 5)], rows=["d0", "d1"])
    assert [line.split()[0] for line in lines[:2]] == ["d0", "d1"]
    assert lines[0].endswith("  0%")
    assert chart([], rows=["d0"])[0].split("|")[1].strip() == ""


def test_a_longer_step_leaves_room_at_the_end() -> None:
    row = chart([TimelineBar("d", "a", 0, 100)], step_ns=400)[0]
    assert row.endswith("25%")
    assert row.split("|")[1].rstrip() == "#" * row.count("#")


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("name", ["d", "x" * 500, "名前" * 50, "\x1b[31mred\n", "[bold]markup[/bold]"])
def test_every_line_has_the_terminals_width_and_nothing_that_moves_it(name: str, ascii_only: bool) -> None:
    bars = [TimelineBar(name, "a", 0, 10), TimelineBar("other", "b", 3, 9)]
    text = gantt(bars, width=80, ascii_only=ascii_only).plain
    lines = text.splitlines()
    assert len(lines) == 3
    assert all(cell_len(line) == 80 for line in lines[:2])
    assert all(cell_len(line) <= 80 for line in lines)
    assert all(line.isprintable() for line in lines)
    assert text.isascii() or not ascii_only


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8), st.integers(0, 200))
def test_any_bars_can_be_drawn(spans: list[tuple[int, int]], width: int) -> None:
    bars, now = [], 0
    for gap, length in spans:
        bars.append(TimelineBar("d", "a", now + gap, now + gap + length))
        now += gap + length
    lines = gantt(bars, width=width, rows=["d"]).plain.splitlines()
    assert len(lines) == 2
    assert cell_len(lines[0]) == max(width, 40)
