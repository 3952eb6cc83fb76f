"""``fddps schedule``: schedule bare task graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.cli.options import FILE, check_new_file, refuse_same_file, with_terminal
from planner.cli.terminal import Terminal

_EPILOG = """\b
Examples:
  fddps schedule tasks.jsonl --planner auto --effort thorough -o schedules.jsonl
  fddps schedule tasks.jsonl --processors 4 --planner heft -o -

\b
TASKS: a file, or - for standard input. A line is a JSON object:
  {"name": "a", "processors": 2, "weights": [3, 4], "edges": [[0, 1, 5]]}
The delay of an edge counts between processors. Optional: weights as one list a device kind, with
kinds (of each processor); memory (of each task) and memory_limit; node_of (of each processor) and
remote_factor (of delays between nodes); together (a number of each task, or null: tasks of the same
number run on one processor). Passed over: optimal_length, optimum, best_known, lower_bound, seed,
source and comment.
"""


@click.command("schedule", epilog=_EPILOG, short_help="Schedule bare task graphs (JSON lines).")
@click.argument("tasks", type=FILE)
@click.option("--planner", default="auto", show_default=True, help="A name of fddps planners.")
@click.option(
    "--effort",
    type=click.Choice(["quick", "normal", "thorough"]),
    default="normal",
    show_default=True,
    help="How much work the search of auto may do.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random choices of auto.")
@click.option("--processors", type=click.IntRange(1), help="Number of processors where a line has none.")
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    help="File for one line a schedule: name, makespan, tasks as [device, start, finish]; - for standard output.",
)
@click.option("--force", is_flag=True, help="Replace a file.")
@with_terminal
def command(terminal: Terminal, tasks: Path, output: str, force: bool, **given: Any) -> None:
    """Schedule each task graph of TASKS, one a line; the same input gives the same schedules."""
    import json

    from planner.bare_tasks import schedule_file
    from planner.errors import UsageError
    from planner.plan.atomic import write_text_atomically

    to_file = output != "-"
    if terminal.json and not to_file:
        raise UsageError("--json and -o - both want standard output", expected="one of them")
    if to_file:
        refuse_same_file(Path(output), "name another one with -o", tasks)
        check_new_file(Path(output), force=force)
    lines: list[str] = []
    makespans: list[Any] = []
    failed = 0
    with terminal.progress() as progress:
        for answer in schedule_file(tasks, progress=progress, **given):
            line = json.dumps(answer, separators=(",", ":"))
            makespans.append({key: answer[key] for key in answer if key != "tasks"})
            failed += answer["makespan"] is None
            if to_file:
                lines.append(line)
            else:
                click.echo(line)
    if to_file:
        write_text_atomically(Path(output), "".join(f"{line}\n" for line in lines))
        terminal.say(f"{len(lines)} schedules written to {output}")
    if terminal.json:
        terminal.result({"planner": given["planner"], "output": output, "schedules": makespans})
    if failed:
        terminal.note(f"{failed} of {len(makespans)} have no schedule")
        if failed == len(makespans):
            click.get_current_context().exit(1)
