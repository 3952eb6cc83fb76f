"""``fddps validate``: what is wrong with a plan, one line each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import FILE, with_terminal
from planner.cli.terminal import Terminal, one_line

if TYPE_CHECKING:
    from planner.plan.schema import Plan

_EPILOG = """\b
Examples:
  fddps validate plan.yaml
  fddps validate plan.yaml --model elsewhere/model.onnx
  fddps validate plan.yaml --no-model --json
"""


@click.command("validate", epilog=_EPILOG, short_help="Check a plan: schema, coverage, order, deadlock, digest.")
@click.argument("plan", type=FILE)
@click.option("--model", "model_path", type=FILE, help="The model, if it is not where the plan says.")
@click.option("--no-model", is_flag=True, help="Check schema, order and deadlock only.")
@click.option("--allow-outside", is_flag=True, help="Let the model or its weights lie outside their folders.")
@with_terminal
def command(terminal: Terminal, plan: Path, model_path: Path | None, no_model: bool, allow_outside: bool) -> None:
    """Check PLAN and print what is wrong, one line each; exit 1 if anything is."""
    from planner.plan.check import violations
    from planner.plan.files import plan_model_path, read_plan

    loaded = read_plan(plan)
    found = violations(loaded)
    if not no_model:
        path = model_path or plan_model_path(loaded, plan, allow_outside=allow_outside)
        found += _against_model(loaded, path, allow_outside)
    if terminal.json:
        terminal.result({"valid": not found, "violations": found})
    else:
        for line in found:
            click.echo(one_line(line))
        if not found:
            terminal.say(f"{plan}: valid")
    if found:
        click.get_current_context().exit(1)


def _against_model(plan: Plan, path: Path, allow_outside: bool) -> list[str]:
    from planner.errors import PlanError
    from planner.partition.coverage import coverage_violations, digest_violations, file_violations
    from planner.partition.handovers import transfer_violations
    from planner.partition.segments import load_plan_model, plan_splits
    from planner.partition.split_graph import build_split_graph

    try:
        model = load_plan_model(plan, path, allow_outside=allow_outside)
        if changed := digest_violations(plan, model):
            # Whatever else does not fit follows from this.
            return changed
        split = build_split_graph(model, plan_splits(plan))
    except PlanError as problem:
        return [str(problem)]
    uncovered = coverage_violations(plan, model, split)
    # Where tasks are not what and where they should be, transfers are wrong for that reason.
    return [*file_violations(plan, path), *(uncovered or transfer_violations(plan, split.graph))]
