"""``fddps planners``: what there is to choose from."""

from __future__ import annotations

import click

from planner.cli.options import with_terminal
from planner.cli.terminal import Terminal

_EPILOG = """\b
Examples:
  fddps planners
  fddps plan model.onnx --cpus 2 --planner heft
"""


@click.command("planners", epilog=_EPILOG, short_help="List the planners, a line each.")
@with_terminal
def command(terminal: Terminal) -> None:
    """List the planners with a line of description."""
    from planner.schedule.planners import PLANNERS

    if terminal.json:
        rows = [{"name": p.name, "about": p.about, "bare_tasks": p.on_tasks is not None} for p in PLANNERS.values()]
        terminal.result({"planners": rows})
        return
    width = max(map(len, PLANNERS))
    terminal.say("\n".join(f"{p.name:<{width}}  {p.about}" for p in PLANNERS.values()))
