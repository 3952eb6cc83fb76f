from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import OutputError
from planner.report.trace import chrome_trace, write_trace
from planner.report.types import TimelineBar

DEVICES = [
    TimelineBar("cpu:0", "s0", 0, 1500),
    TimelineBar("cpu:1", "s1", 2000, 2001),
    TimelineBar("cpu:0", "s2", 1500, 1509),
]
LINKS = [TimelineBar("cpu:0 -> cpu:1", "t", 1500, 2000)]


def test_one_track_a_device_and_one_a_link_in_microseconds() -> None:
    events = chrome_trace({"devices": DEVICES, "links": LINKS, "idle": []})["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(tracks.values()) == ["cpu:0", "cpu:0 -> cpu:1", "cpu:1"]
    work = {e["name"]: e for e in events if e["ph"] == "X"}
    assert {name: tracks[e["pid"], e["tid"]] for name, e in work.items()} == {
        "s0": "cpu:0",
        "s1": "cpu:1",
        "s2": "cpu:0",
        "t": "cpu:0 -> cpu:1",
    }
    assert (work["s0"]["ts"], work["s0"]["dur"]) == (0, 1.5)
    assert (work["t"]["ts"], work["t"]["dur"]) == (1.5, 0.5)
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"devices", "links"}


def test_what_overlaps_without_nesting_has_a_track_of_its_own() -> None:
    link = "cpu:0 -> cpu:1"
    bars = [
        TimelineBar(link, "inside", 10, 20),
        TimelineBar(link, "long", 0, 30),
        TimelineBar(link, "twin", 0, 30),
        TimelineBar(link, "across", 15, 40),
        TimelineBar(link, "also across", 25, 50),
        TimelineBar(link, "after", 30, 35),
    ]
    events = chrome_trace({"links": bars})["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, list[str]] = {}
    for e in events:
        if e["ph"] == "X":
            found.setdefault(tracks[e["tid"]], []).append(e["name"])
    assert found == {
        link: ["long", "twin", "inside", "after"],
        f"{link} (2)": ["across"],
        f"{link} (3)": ["also across"],
    }


def test_the_file_is_json_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    write_trace(path, {"devices": DEVICES})
    assert json.loads(path.read_text()) == chrome_trace({"devices": DEVICES})
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def test_where_nothing_can_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        write_trace(tmp_path / "no" / "trace.json", {"devices": DEVICES})
