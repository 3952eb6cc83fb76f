"""A simulated step as bars for the Gantt chart and the trace."""

from __future__ import annotations

from planner.report.types import TimelineBar
from planner.simulate.simulator import SimulationResult


def device_bars(result: SimulationResult) -> tuple[TimelineBar, ...]:
    """One bar a segment, on its device's row."""
    return tuple(TimelineBar(s.device, s.id, s.start_ns, s.finish_ns) for s in result.segments)


def link_bars(result: SimulationResult) -> tuple[TimelineBar, ...]:
    """One bar a transfer, on its link's row."""
    return tuple(
        TimelineBar(f"{t.src_device} -> {t.dst_device}", t.tensor, t.start_ns, t.finish_ns) for t in result.transfers
    )
