"""``fddps tune``: plan, run, plan again with what the run showed; keep what measured best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import (
    FILE,
    SecondsType,
    device_options,
    load_options,
    model_options,
    parse_sizes,
    parse_wishes,
    refuse_same_file,
    search_options,
    wish_options,
    with_terminal,
)
from planner.cli.plan import command_line
from planner.cli.terminal import ARGUMENTS, Terminal
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.plan.schema import Plan
    from planner.tuning import Round, Tuned

_EPILOG = """\b
Examples:
  fddps tune model.onnx --cpus 2
  fddps tune model.onnx --gpus 4 --batch 8 -o plan.yaml --rounds 8 --time-limit 600
"""


@click.command("tune", epilog=_EPILOG, short_help="Plan, run, and plan again, until runs stop getting faster.")
@click.argument("model", type=FILE)
@device_options
@click.option("-o", "--output", type=FILE, default="plan.yaml", show_default=True, help="The plan file.")
@click.option("--force", is_flag=True, help="Replace the file, whatever it is; it is not to be beaten.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="At most so many.")
@click.option("--time-limit", "time_limit_s", type=SecondsType(), help="After so long no round begins.")
@click.option("--planner", default="auto", show_default=True, help="A name of fddps planners; auto: the best of all.")
@search_options
@wish_options
@model_options
@click.option("--cache", type=FILE, help="File of measured costs, in place of the user's own.")
@with_terminal
def command(terminal: Terminal, model: Path, output: Path, **given: Any) -> None:
    """Tune the plan of MODEL on the devices of this machine.

    Each round's plan has to beat the best one so far in a duel, in turns, or is rolled back; a plan that is in the
    output file already is the first to beat. The best plan is written after every round, and what was measured is kept:
    run the same command again to go on.
    """
    from planner.api import DeviceChoice, find_hardware, tune_request
    from planner.cluster.types import Cluster
    from planner.plan.files import check_target, read_plan, write_plan
    from planner.request import Request

    if given["cluster"] is not None:
        raise UsageError("a description cannot be run", where="--cluster", expected="--cpus or --gpus")
    if output == Path("-"):
        raise UsageError("a plan is written after every round", where="-o -", expected="a file")
    refuse_same_file(output, "name another one with -o", given["inputs"], given["cache"], model=model)
    check_target(output, force=given["force"])
    before = read_plan(output) if output.exists() and not given["force"] else None
    most = parse_sizes(given["max_memory"])
    hardware = find_hardware(DeviceChoice(gpus=given["gpus"], cpus=given["cpus"], max_memory=most))
    request = Request(
        model,
        Cluster((), ()),
        load=load_options(**given),
        planner=given["planner"],
        effort=given["effort"],
        seed=given["seed"],
        start=before,
        wishes=parse_wishes(given["pins"], given["together"]),
        command=command_line(click.get_current_context().meta[ARGUMENTS]),
        plan_dir=output.parent,
    )

    def after(found: Round, best: Plan) -> None:
        write_plan(best, output, force=True)
        terminal.say(_line(found))

    with terminal.progress() as progress:
        tuned = tune_request(
            replace(request, progress=progress),
            hardware,
            given["cache"],
            rounds=given["rounds"],
            time_limit_s=given["time_limit_s"],
            on_round=after,
        )
    write_plan(tuned.plan, output, force=True)
    terminal.notes(tuned.notes)
    terminal.say(f"{tuned.why_stopped}; the best plan is in {output}")
    if terminal.json:
        terminal.result(_data(tuned, output))


def _line(found: Round) -> str:
    from planner.units import format_time

    text = f"round {found.number}: {found.planner}, predicted {format_time(found.predicted_ns)}"
    if found.measured_ns is None:
        best = "" if found.best_ns is None else f", {format_time(found.best_ns)}"
        return f"{text}, cannot be run: the best so far{best}, is kept"
    text = f"{text}, took {format_time(found.measured_ns)}"
    if found.best_ns is None:
        return text
    verdict = "better than" if found.kept else "not better than"
    return f"{text}: {verdict} the best so far, {format_time(found.best_ns)}{'' if found.kept else ', which is kept'}"


def _data(tuned: Tuned, output: Path) -> dict[str, Any]:
    """What ``--json`` prints; times in seconds."""
    from planner.units import to_s

    return {
        "planner": tuned.plan.planner,
        "step_s": to_s(tuned.plan.predictions.step_ns),
        "stopped": tuned.why_stopped,
        "rounds": [
            {
                "number": found.number,
                "planner": found.planner,
                "predicted_step_s": to_s(found.predicted_ns),
                "step_s": None if found.measured_ns is None else to_s(found.measured_ns),
                "best_step_s": None if found.best_ns is None else to_s(found.best_ns),
                "kept": found.kept,
            }
            for found in tuned.rounds
        ],
        "notes": list(tuned.notes),
        "output": str(output),
    }
