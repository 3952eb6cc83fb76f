"""Files of bare task graphs: what ``fddps schedule`` does, for Python callers too."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.errors import InfeasibleError, InputError, UsageError
from planner.safe_yaml import read_limited
from planner.schedule.auto import auto
from planner.schedule.bare import parse_bare
from planner.schedule.planners import PLANNERS, find_planner

Progress = Callable[[str, int, int], None]

STDIN: Final = Path("-")
# A graph of a million tasks takes about 60 MB.
MAX_BYTES: Final = 2**30


def schedule_file(
    path: Path,
    *,
    planner: str = "auto",
    effort: str = "normal",
    seed: int = 0,
    processors: int | None = None,
    progress: Progress = lambda text, done, total: None,
) -> Iterator[dict[str, Any]]:
    """Schedule bare task graphs, one a line; see :mod:`planner.schedule.bare`.

    Args:
        path: JSON lines; ``-`` for standard input.
        planner: a planner that needs no model.
        effort: ``quick``, ``normal`` or ``thorough``; for ``auto``.
        seed: of the random choices of ``auto``.
        processors: number of processors where a line has none.
        progress: called with a text, lines done and all lines.

    Yields:
        ``name``, ``makespan`` and ``tasks`` ([device, start, finish] in task order) of each line; nulls and
        ``infeasible`` (why) where the tasks do not fit.

    Raises:
        UsageError: if the planner needs a model.
        InputError: if the file or a line of it cannot be read.
    """
    chosen = find_planner(planner)
    if chosen.on_tasks is None:
        able = ", ".join(p.name for p in PLANNERS.values() if p.on_tasks is not None)
        raise UsageError(f"'{planner}' needs a model", where="--planner", expected=f"one of {able}")
    scheduler = partial(auto, effort=effort, seed=seed) if planner == "auto" else chosen.on_tasks
    lines = _read_lines(path)
    for position, (number, text) in enumerate(lines):
        where = f"{path.name}:{number}"
        try:
            line = json.loads(text, object_pairs_hook=partial(_object, where=where))
        except (ValueError, RecursionError) as problem:
            raise InputError(f"no JSON: {problem}", where=where, expected="one JSON object a line") from None
        bare = parse_bare(line, processors=processors, where=where)
        del line  # a million tasks as Python objects
        progress(bare.name or where, position, len(lines))
        try:
            answer = bare.answer(scheduler(bare.graph, bare.comm, memory_limit=bare.memory_limit))
        except InfeasibleError as problem:
            answer = {"name": bare.name, "makespan": None, "tasks": None, "infeasible": str(problem)}
        yield answer
    progress("scheduled", len(lines), len(lines))


def _object(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    """A JSON object; of a key that occurs twice, JSON readers silently take the last value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the key {twice[:60]!r} occurs twice", where=where, expected="each key once")
    return found


def _read_lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not empty, with their numbers."""
    data = _read(path)
    if len(data) > MAX_BYTES:
        raise InputError("too large", where=str(path), expected=f"at most {MAX_BYTES} bytes of JSON lines")
    try:
        # With or without the byte order mark that some editors write.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("no text in UTF-8", where=path.name, expected="JSON lines") from None
    found = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not found:
        raise InputError("holds no task graph", where=path.name, expected="one JSON object a line")
    return found


def _read(path: Path) -> bytes:
    """The bytes, and one more than there may be at most of what is longer."""
    if path == STDIN and sys.stdin is not None:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            # Such a thing may have no end, or nobody writes to it.
            raise InputError("is a device or a pipe", where=str(path), expected="a file, or - for standard input")
        return read_limited(path, MAX_BYTES)
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror}", where=str(path), next_step="check the path") from None
