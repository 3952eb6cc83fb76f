"""Files that are either the old ones or the new ones, never half of each."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from planner.errors import OutputError


def write_text_atomically(path: Path, text: str) -> None:
    """As :func:`write_atomically`, for UTF-8 text.

    Raises:
        OutputError: if the file cannot be written.
    """
    data = text.encode("utf-8")

    def write(file: IO[bytes]) -> None:
        file.write(data)

    write_atomically(path, write)


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file beside its final place, then rename it into place.

    A symbolic link is followed, so that it keeps pointing where it did; a loop of links is refused. What is no regular
    file (``/dev/null``, a pipe) is written to and never renamed over: root would replace the device itself, for all
    programs.

    Args:
        path: the file.
        write: writes the contents to an open, seekable file.

    Raises:
        OutputError: if the file cannot be written.
    """
    try:
        target = _resolved(path)
        if target.exists() and not target.is_file():
            _pour(target, write)
        else:
            _replace(target, write)
    except OSError as problem:
        raise OutputError(
            f"cannot be written: {problem.strerror or problem}",
            where=str(path),
            expected="a file in an existing folder that you may write to",
            next_step="name another one",
        ) from None


def _resolved(path: Path) -> Path:
    """Where links lead, whether something is there or not.

    Raises:
        OSError: if they lead in a loop, or it is no path at all.
    """
    try:
        # Path.resolve and realpath take a link to itself for a file; only looking at it tells.
        with contextlib.suppress(FileNotFoundError):
            os.stat(path)
        return Path(os.path.realpath(path))
    except ValueError as problem:  # a NUL
        raise OSError(str(problem)) from None


def _pour(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    with target.open("wb") as out, tempfile.TemporaryFile() as file:
        write(file)
        file.seek(0)
        shutil.copyfileobj(file, out)


def _replace(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    # Of this thread alone: two may write one file at the same time, and the later one's stays.
    beside = target.with_name(f".{target.name[:100]}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            # The rename would otherwise change who may read the file.
            beside.chmod(target.stat().st_mode & 0o7777)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
