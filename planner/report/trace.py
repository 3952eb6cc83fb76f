"""Chrome traces (chrome://tracing, Perfetto): one track a device, one a link.

Source of the format: "Trace Event Format", Google, complete events (``ph: X``) and metadata (``ph: M``); ``ts`` and
``dur`` are microseconds. Events of one track have to lie one after the other or one inside the other: Perfetto drops
what overlaps otherwise. Transfers over one link may: such a one goes to a further track, "cpu:0 -> cpu:1 (2)".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.plan.atomic import write_text_atomically
from planner.report.types import TimelineBar

Tracks = Mapping[str, Sequence[TimelineBar]]
"""Title of a group of tracks (a process of the trace) -> its bars; groups without bars are left out."""


def chrome_trace(groups: Tracks) -> dict[str, Any]:
    """The trace as JSON data.

    Args:
        groups: by title; in each one track a device or link, in order of first use, and more where bars overlap.
    """
    events: list[dict[str, Any]] = []
    shown = [(title, bars) for title, bars in groups.items() if bars]
    for process, (title, bars) in enumerate(shown, start=1):
        events.append(_metadata("process_name", process, 0, {"name": title}))
        events.append(_metadata("process_sort_index", process, 0, {"sort_index": process}))
        for track, (name, own) in enumerate(_tracks(bars), start=1):
            events.append(_metadata("thread_name", process, track, {"name": name}))
            events.append(_metadata("thread_sort_index", process, track, {"sort_index": track}))
            events += [
                {
                    "name": bar.name,
                    "ph": "X",
                    "pid": process,
                    "tid": track,
                    "ts": bar.start_ns / 1000,
                    "dur": (bar.finish_ns - bar.start_ns) / 1000,
                }
                for bar in own
            ]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def write_trace(path: Path, groups: Tracks) -> None:
    """Write a trace file; a file of that name is replaced.

    Raises:
        OutputError: if it cannot be written.
    """
    write_text_atomically(path, json.dumps(chrome_trace(groups)) + "\n")


def _tracks(bars: Sequence[TimelineBar]) -> Iterator[tuple[str, list[TimelineBar]]]:
    """Name and bars of each track; a device or link has a second one only if its bars overlap without nesting."""
    for name in dict.fromkeys(bar.device for bar in bars):
        lanes: list[list[TimelineBar]] = []
        # Of each lane the finishes of the bars that are open, the innermost last.
        open_ns: list[list[int]] = []
        # What starts together nests only if the longest comes first.
        for bar in sorted((b for b in bars if b.device == name), key=lambda b: (b.start_ns, -b.finish_ns)):
            for finishes in open_ns:
                while finishes and finishes[-1] <= bar.start_ns:
                    finishes.pop()
            fits = (lane for lane, finishes in enumerate(open_ns) if not finishes or bar.finish_ns <= finishes[-1])
            lane = next(fits, len(lanes))
            if lane == len(lanes):
                lanes.append([])
                open_ns.append([])
            lanes[lane].append(bar)
            open_ns[lane].append(bar.finish_ns)
        for number, lane_bars in enumerate(lanes, start=1):
            yield name if number == 1 else f"{name} ({number})", lane_bars


def _metadata(name: str, process: int, track: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": track, "args": args}
