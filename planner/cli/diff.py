"""``fddps diff``: what changed between two plans."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from planner.cli.options import FILE, with_terminal
from planner.cli.terminal import Terminal

_EPILOG = """\b
Examples:
  fddps diff old.yaml new.yaml
  fddps diff old.yaml new.yaml --json
"""


@click.command("diff", epilog=_EPILOG, short_help="Compare two plans: moved tasks, splits, predicted time.")
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Changes shown of each sort.")
@with_terminal
def command(terminal: Terminal, before: Path, after: Path, limit: int) -> None:
    """Compare the decisions of two plans; exit 0 if they are the same, 1 if not."""
    from planner.plan.diff import diff_lines, diff_plans
    from planner.plan.files import read_plan

    difference = diff_plans(read_plan(before), read_plan(after))
    if terminal.json:
        terminal.result({"same_decisions": difference.same_decisions, **asdict(difference)})
    else:
        terminal.say("\n".join(diff_lines(difference, limit=limit)))
    if not difference.same_decisions:
        click.get_current_context().exit(1)
