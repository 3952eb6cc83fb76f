"""``fddps compare``: all planners on one model, by the same costs and simulator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import (
    FILE,
    SizeType,
    check_new_file,
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
from planner.cli.terminal import Terminal

if TYPE_CHECKING:
    from planner.pipeline import Compared

_EPILOG = """\b
Examples:
  fddps compare model.onnx --gpus 4 --profile v100-sxm2-16gb --planners all -o table.json
  fddps compare model.onnx --cpus 2 --planners heft,fd-dps,auto -o table.csv
"""
_COLUMNS = (
    "planner",
    "predicted_step_s",
    "speedup",
    "gap_to_lower_bound",
    "peak_bytes",
    "bytes_moved",
    "planning_s",
    "infeasible",
)


@click.command("compare", epilog=_EPILOG, short_help="Compare planners on a model: steps, memory, planning time.")
@click.argument("model", type=FILE)
@device_options
@click.option("--profile", metavar="KIND|FILE", help="A device kind or a profile file: nothing is measured.")
@click.option("--link", metavar="NAME", help="Link between GPUs, e.g. nvlink2, in place of the usual one.")
@click.option("--memory", "memory_bytes", type=SizeType(), help="Most to use on one device, e.g. 8GiB.")
@click.option("--planners", default="all", show_default=True, help="all, or names of fddps planners with commas.")
@search_options
@wish_options
@model_options
@click.option("--cache", type=FILE, help="File of measured costs, in place of the user's own.")
@click.option("-o", "--output", type=FILE, help="Write the table too: .json or .csv.")
@click.option("--force", is_flag=True, help="Replace the output file.")
@with_terminal
def command(terminal: Terminal, model: Path, planners: str, output: Path | None, force: bool, **given: Any) -> None:
    """Plan MODEL by several planners and compare what they predict; exit 1 only if none has a plan that fits."""
    from planner.api import DeviceChoice, compare_request, find_hardware
    from planner.cluster.types import Cluster
    from planner.report.comparison import comparison_table
    from planner.request import Request

    names = _names(planners)
    if output is not None:
        _check_output(output, model, given, force)
    options = ("gpus", "cpus", "cluster", "profile", "link", "memory_bytes")
    most = parse_sizes(given["max_memory"])
    hardware = find_hardware(DeviceChoice(**{name: given[name] for name in options}, max_memory=most))
    request = Request(
        model,
        Cluster((), ()),
        load=load_options(**given),
        effort=given["effort"],
        seed=given["seed"],
        wishes=parse_wishes(given["pins"], given["together"]),
        command="compare",
    )
    with terminal.progress() as progress:
        found, notes = compare_request(replace(request, progress=progress), hardware, names, given["cache"])
    terminal.notes(notes)
    if hardware.measure:
        terminal.note("no plan was run: those of many pieces rest on the times of their operators, see fddps plan")
    rows = [row(each) for each in found]
    if output is not None:
        _write(output, rows)
    terminal.show(comparison_table(rows))
    if terminal.json:
        terminal.result({"planners": rows})
    if all(each.plan is None for each in found):
        click.get_current_context().exit(1)


def _names(planners: str) -> list[str]:
    """Planners by name, each once."""
    from planner.errors import UsageError
    from planner.schedule.planners import PLANNERS

    if planners == "all":
        return list(PLANNERS)
    names = list(dict.fromkeys(name.strip() for name in planners.split(",") if name.strip()))
    unknown = [name for name in names if name not in PLANNERS]
    if unknown or not names:
        what = f"there is no planner '{unknown[0]}'" if unknown else "no planner"
        raise UsageError(what, where="--planners", expected=f"all, or some of {', '.join(PLANNERS)}")
    return names


def _check_output(output: Path, model: Path, given: dict[str, Any], force: bool) -> None:
    """Whether the table can be written, before any work."""
    from planner.errors import UsageError

    if output.suffix not in (".json", ".csv"):
        raise UsageError(f"'{output.name}'", where="-o", expected="a name that ends in .json or .csv")
    profile = None if given["profile"] is None else Path(given["profile"])
    refuse_same_file(
        output, "name another one with -o", given["inputs"], given["cluster"], profile, given["cache"], model=model
    )
    check_new_file(output, force=force)


def row(compared: Compared) -> dict[str, Any]:
    """One planner's figures; times in seconds, nulls without a plan."""
    from planner.units import to_s

    data: dict[str, Any] = dict.fromkeys(_COLUMNS[:-1])
    data["planner"] = compared.planner
    data["planning_s"] = round(compared.planning_s, 3)
    if compared.plan is None:
        return {**data, "infeasible": compared.infeasible}
    predictions = compared.plan.predictions
    step = predictions.step_ns
    return {
        **data,
        "predicted_step_s": to_s(step),
        "speedup": None if compared.one_device_ns is None or not step else compared.one_device_ns / step,
        "gap_to_lower_bound": step / compared.bound_ns - 1 if compared.bound_ns else None,
        "peak_bytes": {load.device: load.peak_bytes for load in predictions.devices},
        "bytes_moved": predictions.transfer_bytes,
    }


def _write(output: Path, rows: list[dict[str, Any]]) -> None:
    """JSON, or CSV with the largest peak of all devices."""
    import csv
    import io
    import json

    from planner.plan.atomic import write_text_atomically

    if output.suffix == ".json":
        write_text_atomically(output, json.dumps(rows, indent=1) + "\n")
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in rows:
        peaks = each["peak_bytes"]
        writer.writerow({**each, "peak_bytes": None if peaks is None else max(peaks.values())})
    write_text_atomically(output, text.getvalue())
