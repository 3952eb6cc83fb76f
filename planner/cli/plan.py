"""``fddps plan``: find a plan for a model and write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import (
    FILE,
    PercentType,
    SizeType,
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
from planner.cli.terminal import ARGUMENTS, Terminal
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.plan.schema import Plan
    from planner.request import Outcome

_EPILOG = """\b
Examples:
  fddps plan model.onnx --cpus 2
  fddps plan model.onnx --gpus 4 --batch 8 -o plan.yaml
  fddps plan model.onnx --gpus 4 --profile v100-sxm2-16gb
  fddps plan model.onnx --cluster configs/clusters/two-v100-two-t4.yaml
  fddps plan model.onnx --gpus 4 --profile p.yaml -o plan.yaml --check --max-slowdown 2%
"""
_STDOUT = "-"


@click.command("plan", epilog=_EPILOG, short_help="Find the best plan for a model and devices.")
@click.argument("model", type=FILE)
@device_options
@click.option("--profile", metavar="KIND|FILE", help="A device kind or a profile file: nothing is measured.")
@click.option("--link", metavar="NAME", help="Link between GPUs, e.g. nvlink2, in place of the usual one.")
@click.option(
    "--memory",
    "memory_bytes",
    type=SizeType(),
    help="Most to use on one device, e.g. 8GiB (--cpus with --profile: what it has).",
)
@click.option("-o", "--output", default="plan.yaml", show_default=True, help="The plan file; - for standard output.")
@click.option("--force", is_flag=True, help="Replace a file that is no plan.")
@click.option("--planner", default="auto", show_default=True, help="A name of fddps planners; auto: the best of all.")
@search_options
@click.option("--from", "start", type=FILE, help="Start from this plan; it is kept unless another is 1% faster.")
@wish_options
@model_options
@click.option("--hash-file", is_flag=True, help="Note the SHA-256 of the .onnx file, to compare.")
@click.option("--cache", type=FILE, help="File of measured costs, in place of the user's own.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the plan in the file is another one.")
@click.option("--max-slowdown", type=PercentType(), help="With --check: exit 1 only if slower by more, e.g. 2%.")
@with_terminal
def command(terminal: Terminal, model: Path, output: str, **given: Any) -> None:
    """Find a plan for MODEL on exactly one of --gpus, --cpus and --cluster, and write it.

    Costs are measured here once and kept; with --profile nothing is measured, and what it lacks is estimated.
    """
    if given["max_slowdown"] is not None and not given["check"]:
        raise UsageError("it goes with --check only", where="--max-slowdown")
    if given["check"] and output == _STDOUT:
        raise UsageError("nothing to compare with on standard output", where="--check", expected="-o FILE")
    if terminal.json and output == _STDOUT:
        raise UsageError("--json and -o - both want standard output", expected="one of them")
    if output != _STDOUT and not given["check"]:
        profile = None if given["profile"] is None else Path(given["profile"])
        read = (given["inputs"], given["cluster"], profile, given["cache"])
        refuse_same_file(Path(output), "name another one with -o", *read, model=model)
    before = _before(Path(output), check=given["check"], force=given["force"], to_file=output != _STDOUT)
    outcome = _outcome(terminal, model, Path() if output == _STDOUT else Path(output).parent, given)
    # Those of the plan are said with it.
    shown = outcome.plan.notes if before is None and output != _STDOUT else ()
    terminal.notes(note for note in outcome.notes if note not in shown)
    if before is not None:
        _check(terminal, before, outcome, given["max_slowdown"])
        return
    _write(terminal, outcome, output, given["force"])
    if terminal.json:
        terminal.result(summary(outcome, None if output == _STDOUT else output))


def summary(outcome: Outcome, output: str | None) -> dict[str, Any]:
    """What ``--json`` prints; times in seconds."""
    from planner.units import to_s

    plan, predictions = outcome.plan, outcome.plan.predictions
    one = predictions.one_device_step_ns
    return {
        "planner": plan.planner,
        "predicted_step_s": to_s(predictions.step_ns),
        "one_device_step_s": None if one is None else to_s(one),
        "lower_bound_s": to_s(predictions.lower_bounds.any_ns),
        "candidates": [
            {"name": c.planner, "predicted_step_s": None if c.step_ns is None else to_s(c.step_ns)}
            for c in predictions.candidates
        ],
        "planning_s": outcome.planning_s,
        "measured": plan.costs.measured,
        "estimated": plan.costs.estimated,
        "notes": list(dict.fromkeys(outcome.notes)),
        "output": output,
    }


def command_line(arguments: Sequence[str]) -> str:
    """The command as the plan records it: without folders, output and cache, so that it is the same everywhere."""
    import re
    import shlex

    words, skip, named = ["fddps"], False, False
    # Their values begin with a name, which may have slashes in it.
    naming = ("--input-shape", "--batch-axis", "--pin", "--keep-together")
    dropped = ("-o", "--output", "--cache", "--max-slowdown")
    flags = ("--check", "--force", "--json", "--verbose", "--quiet")
    # Short flags may be put together, as in -qv.
    loudness = re.compile(r"-[vq]+")
    for word in arguments:
        if skip:
            skip = False
        elif not named and loudness.fullmatch(word):
            continue
        elif word in dropped:
            skip = True
        elif named or word.startswith(tuple(f"{name}=" for name in naming)):
            words.append(word)
        elif word not in flags and not word.startswith(("-o", *(f"{name}=" for name in dropped[1:]))):
            head, equals, tail = word.rpartition("=") if word.startswith("--") else ("", "", word)
            words.append(head + equals + (Path(tail).name if "/" in tail else tail))
        named = word in naming
    return shlex.join(words)


def _before(path: Path, *, check: bool, force: bool, to_file: bool) -> Plan | None:
    """The plan to compare with; where a file is to be written, whether that can be done, before any work."""
    from planner.plan.files import check_target, read_plan

    if check:
        return read_plan(path)
    if to_file:
        check_target(path, force=force)
    return None


def _outcome(terminal: Terminal, model: Path, plan_dir: Path, given: dict[str, Any]) -> Outcome:
    from planner.api import DeviceChoice, find_hardware, run_request
    from planner.cluster.types import Cluster
    from planner.plan.files import read_plan
    from planner.request import Request

    names = ("gpus", "cpus", "cluster", "profile", "link", "memory_bytes")
    most = parse_sizes(given["max_memory"])
    hardware = find_hardware(DeviceChoice(**{name: given[name] for name in names}, max_memory=most))
    request = Request(
        model,
        Cluster((), ()),
        load=load_options(**given),
        planner=given["planner"],
        effort=given["effort"],
        seed=given["seed"],
        start=None if given["start"] is None else read_plan(given["start"]),
        wishes=parse_wishes(given["pins"], given["together"]),
        command=command_line(click.get_current_context().meta[ARGUMENTS]),
        hash_file=given["hash_file"],
        plan_dir=plan_dir,
    )
    with terminal.progress() as progress:
        return run_request(replace(request, progress=progress), hardware, given["cache"])


def _check(terminal: Terminal, before: Plan, outcome: Outcome, max_slowdown: float | None) -> None:
    from planner.plan.diff import diff_lines, diff_plans, slowdown

    difference = diff_plans(before, outcome.plan)
    slower = slowdown(before, outcome.plan)
    bad = slower > max_slowdown if max_slowdown is not None else not difference.same_decisions
    terminal.say("\n".join(diff_lines(difference)))
    if terminal.json:
        data = {"same_decisions": difference.same_decisions, "slowdown": slower, "passed": not bad}
        terminal.result({**summary(outcome, None), **data})
    if bad:
        click.get_current_context().exit(1)


def _write(terminal: Terminal, outcome: Outcome, output: str, force: bool) -> None:
    from planner.plan.files import dump_plan, write_plan
    from planner.report.tables import verdict

    plan = outcome.plan
    if output == _STDOUT:
        click.echo(dump_plan(plan), nl=False)
        return
    write_plan(plan, output, force=force)
    terminal.show(verdict(plan))
    outside = ".." in Path(plan.model.path).parts or Path(plan.model.path).is_absolute()
    model = " --model MODEL" if outside else ""
    here = "" if all(device.type == "cpu" or device.uuid for device in plan.cluster.devices) else " --on cpu"
    terminal.say(f"written to {output}; next: fddps apply {output}{model}{here} --verify")
    if outside:
        terminal.note("the model lies outside the plan's folder: fddps apply will ask for --model PATH")
