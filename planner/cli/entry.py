"""Where the console script begins: Ctrl-C and SIGTERM end it with one line from the first instruction on.

Imports take half a second, and nobody handles what is raised in the middle of one. So this module imports next to
nothing, and until a command runs a signal ends the process at once: nothing has been written yet.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_SAYS = {signal.SIGINT: "fddps: interrupted", signal.SIGTERM: "fddps: terminated"}


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """The handler while nothing has to be tidied up; exit code as a shell's, 128 and the signal."""
    try:
        os.write(2, f"{_SAYS[signal.Signals(number)]}\n".encode())
    finally:
        os._exit(128 + number)


def run() -> None:
    """The command line."""
    for number in _SAYS:
        # Ctrl-C that is ignored, as in the background of a script, stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end_at_once)
    from planner.cli.main import INTERRUPTED, TERMINATED, main

    try:
        main(prog_name="fddps")
    except SystemExit as end:
        if end.code in (INTERRUPTED, TERMINATED):
            _exit_now(end.code)
        raise


def _exit_now(code: int) -> NoReturn:
    """Exit with a code of ours: Python dies by a Ctrl-C that passed through a library's ``exec``, handled or not."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        pass  # closed, or nobody reads any more
    os._exit(code)
