"""``fddps profile``: measure operators and links for a model, into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.cli.options import FILE, device_options, load_options, model_options, refuse_same_file, with_terminal
from planner.cli.terminal import Terminal
from planner.errors import FddpsError, UsageError

_EPILOG = """\b
Examples:
  fddps profile model.onnx --cpus 2 -o p.yaml
  fddps profile model.onnx --gpus 2 --batch 8 -o p.yaml    # adds to p.yaml
"""


@click.command("profile", epilog=_EPILOG, short_help="Measure operator and link costs for a model.")
@click.argument("model", type=FILE)
@device_options
@click.option("-o", "--output", type=FILE, help="The profile file, added to; by default the user's own cache.")
@model_options
@with_terminal
def command(terminal: Terminal, model: Path, output: Path | None, **given: Any) -> None:
    """Measure what planning MODEL needs on these devices; what the file has already is not measured again.

    What was measured before Ctrl-C is kept: run the same command again to go on.
    """
    from planner.api import DeviceChoice, find_hardware, measure_request
    from planner.cost_cache import ProfileStore, default_cache
    from planner.request import Request

    if given["cluster"] is not None:
        raise UsageError("a description cannot be measured", where="--cluster", expected="--cpus or --gpus")
    if output == Path("-"):
        raise UsageError("a profile is added to while it is made", where="-o -", expected="a file")
    if output is not None:
        refuse_same_file(output, "name another one with -o", given["inputs"], model=model)
    hardware = find_hardware(DeviceChoice(gpus=given["gpus"], cpus=given["cpus"]))
    store = ProfileStore(output or default_cache(), terminal.note, strict=output is not None)
    before = store.read()
    fresh = not store.path.exists()
    # Whether it can be written is better known before anything is measured.
    store.keep(before)
    try:
        with terminal.progress() as progress:
            request = Request(model, hardware.cluster, load=load_options(**given), progress=progress)
            table, notes = measure_request(request, store)
    except (FddpsError, KeyboardInterrupt):
        if fresh and not store.read().entries:
            store.path.unlink(missing_ok=True)
        raise
    terminal.notes(notes)
    new = len(table.entries) - len(before.entries)
    if terminal.json:
        data = {"output": str(store.path), "entries": len(table.entries), "new": new, "notes": list(notes)}
        terminal.result(data)
    else:
        terminal.say(f"{new} new costs, {len(table.entries)} in all: {store.path}")
