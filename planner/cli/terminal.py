"""What goes where: results to standard output, everything else to standard error."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click

# Key of click's ``Context.meta`` under which the words of the command line are.
ARGUMENTS: Final = "fddps.arguments"
# Where the output is no terminal, tables may be this wide.
_PLAIN_WIDTH: Final = 120


def chart_width(columns: int) -> int:
    """Columns of a chart: the terminal's, or what is printed without wrapping where there is none."""
    return columns if sys.stdout is not None and sys.stdout.isatty() else min(columns, _PLAIN_WIDTH)


@dataclass(frozen=True, slots=True)
class Terminal:
    """How much to say, and where.

    Attributes:
        verbosity: -1 quiet, 0 normal, 1 and more: details.
        json: standard output is for one JSON object alone.
    """

    verbosity: int = 0
    json: bool = False

    def note(self, text: str) -> None:
        """One line on standard error, unless quiet."""
        if self.verbosity >= 0:
            click.echo(f"note: {one_line(text)}", err=True)

    def notes(self, texts: Iterable[str]) -> None:
        """Several notes; the same one is said once."""
        for text in dict.fromkeys(texts):
            self.note(text)

    def detail(self, text: str) -> None:
        """One line on standard error, if details are wanted."""
        if self.verbosity > 0:
            click.echo(one_line(text), err=True)

    def say(self, text: str) -> None:
        """Results for people: on standard output, on standard error if that is for JSON; nothing if quiet."""
        if self.verbosity >= 0:
            click.echo(text, err=self.json)

    def show(self, *renderables: Any) -> None:
        """As :meth:`say`, for tables and charts."""
        if self.verbosity < 0:
            return
        from rich.console import Console

        stream = sys.stderr if self.json else sys.stdout
        if stream is None:  # closed by whoever started this process
            return
        width = None if stream.isatty() else _PLAIN_WIDTH
        console = Console(stderr=self.json, highlight=False, width=width)
        for renderable in renderables:
            console.print(renderable)

    def result(self, data: dict[str, Any]) -> None:
        """The one JSON object, alone on standard output; JSON has no infinity, so such a number is null."""
        text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False)
        if _is_unicode(text):
            click.echo(text)
        else:
            # Half a character, as names of files that are no UTF-8 have it: only its escape can be printed.
            click.echo(json.dumps(_finite(data), allow_nan=False))

    @contextlib.contextmanager
    def progress(self) -> Iterator[Callable[[str, int, int], None]]:
        """A progress bar on standard error, if that is a terminal; lines of details if they are wanted instead."""
        if self.verbosity < 0 or not sys.stderr.isatty():
            yield lambda text, done, total: self.detail(f"{done}/{total} {text}")
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda text, done, total: bar.update(task, description=one_line(text), completed=done, total=total)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def set_up_logging(verbosity: int) -> None:
    """Log records of libraries: only errors by default, everything with -vv."""
    level = logging.DEBUG if verbosity > 1 else logging.WARNING if verbosity > 0 else logging.ERROR
    logging.basicConfig(level=level, format="%(name)s: %(message)s", stream=sys.stderr)


def one_line(text: str) -> str:
    """One line that a terminal will not act on, whatever names of strangers are in it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
