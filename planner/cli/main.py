"""The command group: finds commands, and turns errors into one line and an exit code.

Commands are imported when they are called, and what is heavy inside them only when they run, so that ``--help`` and
shell completion are quick.
"""

from __future__ import annotations

if __name__ == "__main__":
    # As the console script does, before anything else is imported.
    from planner.cli.entry import run

    run()

import contextlib
import importlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final

import click

from planner.cli.entry import end_at_once
from planner.cli.terminal import ARGUMENTS, one_line
from planner.errors import FddpsError, OutputError, UsageError
from planner.version import __version__

# In the order in which a user meets them.
COMMANDS: Final[Mapping[str, str]] = {
    name: f"planner.cli.{name}"
    for name in (
        "devices",
        "profile",
        "planners",
        "plan",
        "tune",
        "compare",
        "validate",
        "show",
        "diff",
        "apply",
        "export",
        "schedule",
    )
}
INTERRUPTED: Final = 130
TERMINATED: Final = 143


class _Terminated(KeyboardInterrupt):
    """The process was asked to end; handled by whatever handles Ctrl-C."""


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM, which job schedulers and ``timeout`` send, removes temporary files as Ctrl-C does.

    From here on there is something to tidy up: what ended the console script at once is an exception now.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, terminate)}
    if signal.getsignal(signal.SIGINT) is end_at_once:
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _refuse_nul(arguments: Sequence[str]) -> None:
    """No shell passes one on, but whoever calls this from Python may; no file has one in its name.

    Raises:
        UsageError: if there is one.
    """
    for argument in arguments:
        if "\0" in argument:
            raise UsageError("has a NUL character", where=repr(argument), expected="text without one")


def _stopped_by(problem: BaseException) -> KeyboardInterrupt | None:
    """What a signal raised, where a library wrapped it, as an import in C does."""
    inner: BaseException | None = problem
    for _ in range(20):
        if inner is None or isinstance(inner, KeyboardInterrupt):
            return inner
        inner = inner.__cause__ or inner.__context__
    return None


class _Commands(click.Group):
    """Commands by name, loaded when needed; errors of fddps as one line on standard error."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _termination():
                _refuse_nul(ctx.meta[ARGUMENTS])
                return super().invoke(ctx)
        except FddpsError as problem:
            click.echo(f"fddps: error: {one_line(str(problem))}", err=True)
            ctx.exit(problem.exit_code)
        except _Terminated:
            click.echo("fddps: terminated", err=True)
            ctx.exit(TERMINATED)
        except KeyboardInterrupt:
            click.echo("fddps: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            raise
        except OSError as problem:
            # Of a file that is written or read, what is wrong is said above; what is left is standard output or the
            # working folder.
            where = f"{problem.filename}: " if problem.filename else ""
            click.echo(f"fddps: error: {one_line(where)}{problem.strerror or problem}", err=True)
            ctx.exit(OutputError.exit_code)
        except Exception as problem:
            stopped = _stopped_by(problem)
            if stopped is None:
                raise
            terminated = isinstance(stopped, _Terminated)
            click.echo("fddps: terminated" if terminated else "fddps: interrupted", err=True)
            ctx.exit(TERMINATED if terminated else INTERRUPTED)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="\b\nExamples:\n"
    "  fddps plan model.onnx --cpus 2 -o plan.yaml\n"
    "  fddps apply plan.yaml --verify\n"
    "  fddps plan model.onnx --gpus 4 --profile v100-sxm2-16gb\n\n"
    "\b\nShell completion (bash; zsh and fish likewise):\n"
    '  eval "$(_FDDPS_COMPLETE=bash_source fddps)"',
)
@click.version_option(__version__, prog_name="fddps")
def main() -> None:
    """Plan where every operator of an ONNX model runs on several devices, and run the plan with ONNX Runtime.

    Exit codes: 0 done; 1 a negative answer (plans differ, verification failed, nothing fits); 2 usage,
    configuration or files; 130 interrupted by Ctrl-C; 143 terminated.
    """
