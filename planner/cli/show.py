"""``fddps show``: a plan in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.cli.options import FILE, refuse_files_of_plan, with_terminal
from planner.cli.terminal import Terminal, chart_width

_EPILOG = """\b
Examples:
  fddps show plan.yaml
  fddps show plan.yaml --trace plan.trace.json    # for chrome://tracing or ui.perfetto.dev
"""


@click.command("show", epilog=_EPILOG, short_help="Show a plan: shares, Gantt chart, why it won.")
@click.argument("plan", type=FILE)
@click.option("--trace", type=FILE, help="Write a trace for Chrome or Perfetto, too.")
@click.option("--width", type=click.IntRange(40, 1000), help="Columns of the chart; by default the terminal's.")
@with_terminal
def command(terminal: Terminal, plan: Path, trace: Path | None, width: int | None) -> None:
    """Show each device's share of PLAN, its Gantt chart, and why it won; read-only, no model needed."""
    import shutil
    import sys

    from planner.plan.files import read_plan
    from planner.report.gantt import gantt
    from planner.report.tables import summary
    from planner.report.trace import write_trace
    from planner.simulate.simulator import simulate
    from planner.simulate.timeline import device_bars, link_bars

    if trace is not None:
        refuse_files_of_plan(trace, "name another one with --trace", plan)
    loaded = read_plan(plan)
    result = simulate(loaded)
    if trace is not None:
        write_trace(trace, {"predicted devices": device_bars(result), "predicted links": link_bars(result)})
        terminal.note(f"trace written to {trace}")
    if terminal.json:
        terminal.result(_data(loaded))
        return
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    chart = gantt(
        device_bars(result),
        width=width or chart_width(shutil.get_terminal_size().columns),
        rows=[device.name for device in loaded.cluster.devices],
        step_ns=result.step_ns,
        ascii_only=not encoding.startswith("utf"),
    )
    terminal.show(summary(loaded), chart)


def _data(plan: Any) -> dict[str, Any]:
    """The plan's predictions as data; times in seconds."""
    from planner.units import to_s

    predictions = plan.predictions
    segments = {queue.device: len(queue.segments) for queue in plan.devices}
    return {
        "planner": plan.planner,
        "why": plan.why,
        "predicted_step_s": to_s(predictions.step_ns),
        "splits": len(plan.splits),
        "transfers": len(plan.transfers),
        "devices": [
            {
                "name": load.device,
                "busy_s": to_s(load.busy_ns),
                "peak_bytes": load.peak_bytes,
                "segments": segments.get(load.device, 0),
            }
            for load in predictions.devices
        ],
        "critical_path": list(predictions.critical_path),
        "notes": list(plan.notes),
    }
