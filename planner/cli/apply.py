"""``fddps apply``: run a plan, check it, time it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import (
    FILE,
    SecondsType,
    refuse_files_of_plan,
    refuse_same_file,
    refuse_same_output,
    split_pairs,
    with_terminal,
)
from planner.cli.terminal import Terminal
from planner.errors import OutputError, UsageError, VerificationError

if TYPE_CHECKING:
    from planner.launcher.apply import ApplyOptions, ApplyResult
    from planner.launcher.throughput import Throughput

_EPILOG = """\b
Examples:
  fddps apply plan.yaml --verify --repeat 20
  fddps apply plan.yaml --inputs in.npz --outputs out.npz
  fddps apply plan.yaml --on cpu --verify         # a GPU plan's numbers, without GPUs
  fddps apply plan.yaml --map cuda:0=cuda:2
  fddps apply plan.yaml --trace run.json          # for chrome://tracing or ui.perfetto.dev
  fddps apply plan.yaml --requests 200 --in-flight 3
"""


@click.command("apply", epilog=_EPILOG, short_help="Run a plan: launch, compare outputs, time.")
@click.argument("plan", type=FILE)
@click.option("--verify", is_flag=True, help="Compare with the unsplit model on two inputs, and time it too.")
@click.option("--verify-deep", is_flag=True, help="Compare every tensor that crosses segments as well.")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Measured steps.")
@click.option("--inputs", type=FILE, help="Inputs by name (.npz), in place of random ones.")
@click.option("--outputs", type=FILE, help="Write outputs by name (.npz).")
@click.option("--timeout", "timeout_s", type=SecondsType(min_open=True), help="Most that a step may take; no limit.")
@click.option("--requests", type=click.IntRange(min=1), help="Measure the throughput with so many requests, too.")
@click.option("--in-flight", type=click.IntRange(min=1), help="Most requests begun and not answered then (default 2).")
@click.option("--trace", type=FILE, help="Write the step of median length and the predicted one as a Chrome trace.")
@click.option("--on", "on", type=click.Choice(["cpu"]), help="Run every device on this machine's cores.")
@click.option("--map", "device_map", multiple=True, metavar="DEVICE=DEVICE", help="Another device for one of the plan.")
@click.option("--model", "model_path", type=FILE, help="The model, if it is not where the plan says.")
@click.option("--allow-outside", is_flag=True, help="Let the model or its weights lie outside their folders.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--int-high", multiple=True, metavar="[NAME=]N", help="Random integers are below N (default 100).")
@with_terminal
def command(
    terminal: Terminal, plan: Path, inputs: Path | None, outputs: Path | None, trace: Path | None, **given: Any
) -> None:
    """Run PLAN on its devices, after a step that shows that everything works; exit 1 if outputs are wrong."""
    from planner.launcher.apply import run_plan
    from planner.runtime.feeds import load_npz, save_npz

    for option, written in (("--outputs", outputs), ("--trace", trace)):
        if written is not None:
            if not written.absolute().parent.is_dir():
                raise OutputError(
                    "there is no such folder", where=str(written), next_step="name a file in an existing one"
                )
            refuse_same_file(written, f"name another one with {option}", inputs)
            refuse_files_of_plan(written, f"name another one with {option}", plan, given["model_path"])
    refuse_same_output(("--outputs", outputs), ("--trace", trace))
    _check_together(given, trace)
    feeds = load_npz(inputs) if inputs is not None else None
    options = _options(given)
    result = run_plan(plan, options, feeds=feeds)
    terminal.notes(result.warnings)
    if outputs is not None:
        save_npz(outputs, result.outputs)
        terminal.note(f"outputs written to {outputs}")
    if trace is not None:
        _write_trace(trace, plan, result)
        terminal.note(f"trace written to {trace}")
    timed = given["on"] is None
    if terminal.json:
        terminal.result(_data(result, timed))
    else:
        _show(terminal, result, timed)
    if result.comparison is not None and not result.verified:
        raise _failure(result)


def _check_together(given: dict[str, Any], trace: Path | None) -> None:
    """Options that need each other, or exclude each other."""
    if given["in_flight"] is not None and given["requests"] is None:
        raise UsageError("nothing is in flight", where="--in-flight", next_step="say how many requests: --requests N")
    for option, value in (("--requests", given["requests"]), ("--trace", trace)):
        if given["on"] is not None and value is not None:
            raise UsageError(
                "times on other devices than the plan's mean nothing", where=option, next_step="leave out --on cpu"
            )


def _write_trace(path: Path, plan: Path, result: ApplyResult) -> None:
    """The measured step of median length, and beside it what the plan's simulation says."""
    from planner.plan.files import read_plan
    from planner.report.trace import write_trace
    from planner.report.types import TimelineBar
    from planner.simulate.simulator import simulate
    from planner.simulate.timeline import device_bars, link_bars

    predicted = simulate(read_plan(plan))
    timeline = result.timeline
    handovers = [
        TimelineBar(f"{h.src} -> {h.dst}", name, h.start_ns, h.end_ns) for h in timeline.handovers for name in h.names
    ]
    write_trace(
        path,
        {
            "measured devices": [TimelineBar(t.device, t.segment, t.start_ns, t.end_ns) for t in timeline.segments],
            "measured links": handovers,
            "predicted devices": device_bars(predicted),
            "predicted links": link_bars(predicted),
        },
    )


def _options(given: dict[str, Any]) -> ApplyOptions:
    from planner.launcher.apply import ApplyOptions

    timed = given["on"] is None
    return ApplyOptions(
        model_path=given["model_path"],
        on_cpu=not timed,
        device_map=split_pairs(given["device_map"], "--map", "a pair such as cuda:0=cuda:2") or None,
        allow_outside=given["allow_outside"],
        seed=given["seed"],
        int_high=_int_high(given["int_high"]),
        # Times on other hardware mean nothing: one step is enough.
        warmup=1 if timed else 0,
        repeat=given["repeat"] if timed else 1,
        verify=given["verify"],
        verify_deep=given["verify_deep"],
        requests=given["requests"] or 0,
        in_flight=given["in_flight"] or 2,
        timeout_s=given["timeout_s"],
    )


def _int_high(values: tuple[str, ...]) -> dict[str, int] | int:
    from planner.runtime.feeds import DEFAULT_INT_HIGH

    named = {}
    every = DEFAULT_INT_HIGH
    for text in values:
        name, _, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and 0 < int(number) < 2**62):
            raise UsageError(f"'{text}' is wrong", where="--int-high", expected="N or NAME=N, N at least 1")
        if name:
            named[name] = int(number)
        else:
            every = int(number)
    if named and every != DEFAULT_INT_HIGH:
        raise UsageError("N and NAME=N together", where="--int-high", expected="one of the two forms")
    return named or every


def _data(result: ApplyResult, timed: bool) -> dict[str, Any]:
    """What ``--json`` prints; no times are claimed for hardware that was not there."""
    data = result.as_json()
    if not timed:
        data["step_s"] = data["one_device_step_s"] = None
        for device in data["devices"]:
            device["busy_s"] = None
    return data


def _show(terminal: Terminal, result: ApplyResult, timed: bool) -> None:
    from rich.table import Table

    from planner.units import format_size, format_time, to_ns

    table = Table("", title="Steps", title_justify="left")
    table.add_column("time", justify="right")
    table.add_column("speed-up", justify="right")
    one = result.one_device_step_s if timed else None
    table.add_row("predicted", format_time(to_ns(result.predicted_step_s)), "")
    if timed:
        ratio = "" if one is None else f"{one / max(result.step_s, 1e-9):.2f}x"
        table.add_row("measured", format_time(to_ns(result.step_s)), ratio)
    if one is not None:
        table.add_row("one device, unsplit model", format_time(to_ns(one)), "1.00x")
    devices = Table("device", title="Devices", title_justify="left")
    devices.add_column("busy", justify="right")
    devices.add_column("peak memory", justify="right")
    for device in result.devices:
        busy = format_time(to_ns(device.busy_s)) if timed else "-"
        devices.add_row(device.name, busy, format_size(device.peak_bytes))
    terminal.show(table, devices)
    if not timed:
        terminal.note("run on CPU cores in place of the plan's devices: results count, times are not claimed")
    if result.throughput is not None:
        _show_throughput(terminal, result.throughput, result.step_s)
    if result.comparison is not None and result.verified:
        count = result.comparison.compared
        terminal.say(
            f"verified: {count} {'tensor agrees' if count == 1 else 'tensors agree'} with the unsplit model; "
            f"largest difference {result.max_abs_diff:.3g}, {result.max_rel_diff:.3g} of the largest magnitude"
        )


def _show_throughput(terminal: Terminal, found: Throughput, step_s: float) -> None:
    from rich.table import Table

    table = Table("", title="Throughput", title_justify="left")
    table.add_column("requests/s", justify="right")
    table.add_column("of one device", justify="right")
    one = found.one_device_per_s
    rows = (
        (f"this plan, {found.in_flight} in flight", found.planned_per_s),
        (f"{found.replicas} replicas of the unsplit model", found.replicas_per_s),
        ("one device, unsplit model", one),
    )
    for name, rate in rows:
        if rate is not None:
            shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
            table.add_row(name, shown, "" if one is None else f"{rate / one:.2f}x")
    terminal.show(table)
    if found.why:
        terminal.note(f"no replicas to compare with: {found.why}")
    terminal.say(_choice(found, step_s))


def _choice(found: Throughput, step_s: float) -> str:
    """What to use, in words; which answers a single request sooner was measured, too."""
    if found.replicas_per_s is None or found.one_device_per_s is None:
        return "choose this plan: replicas do not run here"
    sooner = step_s * found.one_device_per_s < 1
    if found.choose == "plan":
        return f"choose this plan: replicas do not serve more requests{', and answer each later' if sooner else ''}"
    if sooner:
        return "choose replicas if many requests wait; this plan answers a single one sooner"
    return "choose replicas: they serve more requests, and answer a single one no later than this plan"


def _failure(result: ApplyResult) -> VerificationError:
    comparison = result.comparison
    worst = comparison.worst if comparison else ""
    lines = comparison.failures if comparison else ()
    # The largest difference may be one that is allowed, beside a wrong type, shape or bool: only failures are named.
    named = [line for line in lines if worst and line.startswith((f"{worst}: ", f"{worst}["))]
    first = next(iter((*named, *lines)), "")
    more = f" (and {len(lines) - 1} more tensors)" if len(lines) > 1 else ""
    return VerificationError(
        f"outputs are not those of the unsplit model{more}: {first}",
        where=f"tensor '{worst}'" if named else "",
        next_step="compare inner tensors with --verify-deep, and report it with the plan",
    )
