"""A Gantt chart for the terminal: one row a device, time from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from planner.report.text import printable
from planner.report.types import TimelineBar
from planner.units import format_time

_MIN_WIDTH: Final = 40
_MAX_LABEL: Final = 24


@dataclass(frozen=True, slots=True)
class _Marks:
    """Neighbouring bars take turns with two marks, so that cuts are seen."""

    bars: tuple[str, str]
    partly: str
    idle: str
    edge: str
    cut: str


_UNICODE: Final = _Marks(("█", "▓"), "░", " ", "│", "…")
_ASCII: Final = _Marks(("#", "="), ":", " ", "|", "~")


def gantt(
    bars: Sequence[TimelineBar],
    *,
    width: int,
    rows: Sequence[str] = (),
    step_ns: int | None = None,
    ascii_only: bool = False,
) -> Text:
    """Draw bars as text.

    A cell at least half busy shows its bar, one less busy a lighter mark.

    Args:
        bars: the work; bars of one row should not overlap.
        width: columns of the terminal; under 40 counts as 40.
        rows: row names in order, for those without work too; rows that it lacks follow in order of first use.
        step_ns: where the time axis ends; by default where the last bar does.
        ascii_only: for terminals without block characters.
    """
    marks = _ASCII if ascii_only else _UNICODE
    names = tuple(dict.fromkeys((*rows, *(bar.device for bar in bars))))
    end_ns = max(step_ns or 0, max((bar.finish_ns for bar in bars), default=0))
    labels = {name: _label(printable(name), marks.cut, ascii_only) for name in names}
    label_width = max(map(cell_len, labels.values()), default=0)
    # Label, two edges, a space before the label's edge, and the share of time in use.
    cells = max(width, _MIN_WIDTH) - label_width - len("  " + " 100%") - 1
    lines = []
    for name in names:
        own = sorted((bar for bar in bars if bar.device == name), key=lambda bar: (bar.start_ns, bar.finish_ns))
        busy_ns = sum(bar.finish_ns - bar.start_ns for bar in own)
        share = busy_ns * 100 // end_ns if end_ns else 0
        chart = _row(own, cells, end_ns, marks)
        lines.append(f"{set_cell_size(labels[name], label_width)} {marks.edge}{chart}{marks.edge} {share:>3}%")
    end = format_time(end_ns)
    lines.append(f"{'':<{label_width}}  0{end:>{cells - 1}}")
    return Text("\n".join(lines), no_wrap=True)


def _label(name: str, cut: str, ascii_only: bool) -> str:
    text = name.encode("ascii", "replace").decode("ascii") if ascii_only else name
    return text if cell_len(text) <= _MAX_LABEL else set_cell_size(text, _MAX_LABEL - 1) + cut


def _row(bars: Sequence[TimelineBar], cells: int, end_ns: int, marks: _Marks) -> str:
    """The cells of one row; integers only: in units of ``1 / cells`` ns a cell is ``end_ns`` wide."""
    busy = [0] * cells
    most = [(0, 0)] * cells  # the bar that takes most of a cell: (time, mark)
    for position, bar in enumerate(bars):
        start, finish = bar.start_ns * cells, bar.finish_ns * cells
        if finish <= start or end_ns == 0:
            continue
        for cell in range(start // end_ns, min(-(-finish // end_ns), cells)):
            time = min(finish, (cell + 1) * end_ns) - max(start, cell * end_ns)
            busy[cell] += time
            if time > most[cell][0]:
                most[cell] = (time, position % 2)
    return "".join(
        marks.idle if not time else marks.bars[mark] if 2 * time >= end_ns else marks.partly
        for time, (_, mark) in zip(busy, most, strict=True)
    )
