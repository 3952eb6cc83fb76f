"""What Perfetto reads in the traces of ``apply`` and ``show``: every segment and transfer, when and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from planner.launcher import apply
from planner.plan.files import read_plan
from planner.simulate.simulator import simulate
from tests.cli.support import run
from tests.report.trace_processor import query

_SLICES: Final = """
    select process.name as part, thread.name as track, slice.name, slice.ts, slice.dur
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
"""
_PROBLEMS: Final = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"

Bar = tuple[str, str, str, int, int]


def _read(trace: str) -> list[Bar]:
    slices, problems = query(Path(trace), _SLICES, _PROBLEMS)
    assert problems == []
    # Transfers that overlap are on further tracks of their link: "cpu:0 -> cpu:1 (2)".
    return sorted((s["part"], s["track"].split(" (")[0], s["name"], s["ts"], s["dur"]) for s in slices)


def _predicted() -> list[Bar]:
    plan = read_plan("plan.yaml")
    result = simulate(plan)
    assert len(result.segments) == sum(len(queue.segments) for queue in plan.devices) > 3
    assert len(result.transfers) == len(plan.transfers) > 3
    return [
        *(("predicted devices", s.device, s.id, s.start_ns, s.finish_ns - s.start_ns) for s in result.segments),
        *(
            ("predicted links", f"{t.src_device} -> {t.dst_device}", t.tensor, t.start_ns, t.finish_ns - t.start_ns)
            for t in result.transfers
        ),
    ]


def _measured(timeline: Any) -> Sequence[Bar]:
    return [
        *(("measured devices", t.device, t.segment, t.start_ns, t.end_ns - t.start_ns) for t in timeline.segments),
        *(
            ("measured links", f"{h.src} -> {h.dst}", name, h.start_ns, h.end_ns - h.start_ns)
            for h in timeline.handovers
            for name in h.names
        ),
    ]


def test_the_trace_of_a_run_is_read_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    real = apply.run_plan

    def run_plan(*args: Any, **kwargs: Any) -> Any:
        results.append(real(*args, **kwargs))
        return results[-1]

    monkeypatch.setattr(apply, "run_plan", run_plan)
    assert run("apply", "plan.yaml", "--repeat", "3", "--trace", "t.json").exit_code == 0
    (result,) = results
    measured = _measured(result.timeline)
    plan = read_plan("plan.yaml")
    assert len(measured) == sum(len(queue.segments) for queue in plan.devices) + len(plan.transfers)
    assert _read("t.json") == sorted([*measured, *_predicted()])


def test_the_predicted_trace_is_read_whole(folder: Path) -> None:
    assert run("show", "plan.yaml", "--trace", "t.json").exit_code == 0
    assert _read("t.json") == sorted(_predicted())
