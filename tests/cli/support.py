"""Runs commands as a user would, in one process, and edits plan files as a user would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from planner.cli.main import main

V100 = ("--gpus", "2", "--profile", "v100-sxm2-16gb")
CPUS = ("--cpus", "2x1", "--profile", "cpu-generic")


def run(*arguments: str | Path) -> Result:
    """One command; a bug's traceback is a test's failure, not a result."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="fddps")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def data(result: Result) -> Any:
    """The JSON object that is alone on standard output."""
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


def refused(result: Result, *words: str, code: int = 2) -> str:
    """The one line with which a command refused; every word must be in it."""
    assert result.exit_code == code, (result.exit_code, result.stderr)
    lines = [line for line in result.stderr.splitlines() if line.startswith("fddps: error: ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    missing = [word for word in words if word.lower() not in lines[0].lower()]
    assert not missing, f"{missing} not in: {lines[0]}"
    return lines[0]


def listing(folder: Path) -> Sequence[str]:
    """All that lies in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())
