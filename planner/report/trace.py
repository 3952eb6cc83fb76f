"""Chrome traces (chrome://tracing, Perfetto): one track a device, one a link.

Source of the format: "Trace Event Format", Google, complete events (``ph: X``) and metadata (``ph: M``); ``ts`` and
``dur`` are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.plan.atomic import write_text_atomically
from planner.report.types import TimelineBar

Tracks = Mapping[str, Sequence[TimelineBar]]
"""Title of a group of tracks (a process of the trace) -> its bars; groups without bars are left out."""


def chrome_trace(groups: Tracks) -> dict[str, Any]:
    """The trace as JSON data.

    Args:
        groups: by title; in each one track a device or link, in order of first use.
    """
    events: list[dict[str, Any]] = []
    shown = [(title, bars) for title, bars in groups.items() if bars]
    for process, (title, bars) in enumerate(shown, start=1):
        events.append(_metadata("process_name", process, 0, {"name": title}))
        events.append(_metadata("process_sort_index", process, 0, {"sort_index": process}))
        tracks = {name: number for number, name in enumerate(dict.fromkeys(bar.device for bar in bars), start=1)}
        for name, track in tracks.items():
            events.append(_metadata("thread_name", process, track, {"name": name}))
            events.append(_metadata("thread_sort_index", process, track, {"sort_index": track}))
        events += [
            {
                "name": bar.name,
                "ph": "X",
                "pid": process,
                "tid": tracks[bar.device],
                "ts": bar.start_ns / 1000,
                "dur": (bar.finish_ns - bar.start_ns) / 1000,
            }
            for bar in bars
        ]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def write_trace(path: Path, groups: Tracks) -> None:
    """Write a trace file; a file of that name is replaced.

    Raises:
        OutputError: if it cannot be written.
    """
    write_text_atomically(path, json.dumps(chrome_trace(groups)) + "\n")


def _metadata(name: str, process: int, track: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": track, "args": args}
