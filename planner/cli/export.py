"""``fddps export``: a plan's segments as ONNX files."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options import FILE, with_terminal
from planner.cli.terminal import Terminal

_EPILOG = """\b
Examples:
  fddps export plan.yaml -o parts/
  fddps export plan.yaml -o parts/ --force --model elsewhere/model.onnx
"""


@click.command("export", epilog=_EPILOG, short_help="Write one ONNX file a segment, and a manifest.")
@click.argument("plan", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="The folder, new or empty.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option("--model", "model_path", type=FILE, help="The model, if it is not where the plan says.")
@click.option("--allow-outside", is_flag=True, help="Let the model or its weights lie outside their folders.")
@with_terminal
def command(
    terminal: Terminal, plan: Path, output: Path, force: bool, model_path: Path | None, allow_outside: bool
) -> None:
    """Write PLAN's segments as complete ONNX models, and manifest.json, which says how to run them without fddps."""
    from planner.launcher.export import MANIFEST, export_plan

    manifest = export_plan(plan, output, model_path=model_path, allow_outside=allow_outside, force=force)
    if terminal.json:
        terminal.result({"output": str(output), "segments": [segment["file"] for segment in manifest["segments"]]})
    else:
        terminal.say(f"{len(manifest['segments'])} segments written to {output}; how to run them: {output / MANIFEST}")
