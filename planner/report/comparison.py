"""Planners side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from planner.report.text import printable
from planner.units import NS_PER_S, format_size, format_time


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a planner; the fastest is bold.

    Args:
        rows: as ``fddps compare`` writes them.
    """
    table = Table("planner", title="Planners", title_justify="left")
    for heading in ("predicted step", "speed-up", "above bound", "peak memory", "moved", "planning"):
        table.add_column(heading, justify="right")
    table.add_column("")
    steps = [row["predicted_step_s"] for row in rows if row["predicted_step_s"] is not None]
    for row in rows:
        step, planning = row["predicted_step_s"], f"{row['planning_s']:.2f} s"
        if step is None:
            table.add_row(row["planner"], "-", "-", "-", "-", "-", planning, Text(printable(row["infeasible"])))
            continue
        gap, speedup = row["gap_to_lower_bound"], row["speedup"]
        table.add_row(
            row["planner"],
            format_time(round(step * NS_PER_S)),
            "-" if speedup is None else f"{speedup:.2f}x",
            "-" if gap is None else f"{100 * gap:.1f}%",
            _peaks(row["peak_bytes"]),
            format_size(row["bytes_moved"]),
            planning,
            "",
            style="bold" if step == min(steps) else "",
        )
    return table


def _peaks(peaks: Mapping[str, int]) -> str:
    """The largest peak; all of them where there are few devices."""
    sizes = [format_size(nbytes) for nbytes in peaks.values()]
    if len(sizes) <= 4:
        return " ".join(sizes)
    return f"up to {format_size(max(peaks.values()))}"
