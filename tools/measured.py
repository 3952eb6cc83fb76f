"""Runs one ``fddps`` command and adds its own peak memory to the JSON it prints; ``--one-core`` pins it first."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys

from planner.cli.main import main


def run() -> None:
    """Run the command that the arguments name; it must be given ``--json``."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one-core"]:
        del arguments[0]
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            main(arguments)
        except SystemExit as stop:
            if stop.code:
                raise
    answer = json.loads(printed.getvalue())
    answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(answer))


if __name__ == "__main__":
    run()
