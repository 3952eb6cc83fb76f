"""Text files that are either the old ones or the new ones, never half of each."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from planner.errors import OutputError


def write_text_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 text file beside its final place, then rename it into place.

    A symbolic link is followed, so that it keeps pointing where it did. What is no regular file (``/dev/null``, a
    pipe) is written to directly.

    Raises:
        OutputError: if the file cannot be written.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8", newline="\n")
            return
        _replace(target, text)
    except OSError as problem:
        raise OutputError(
            f"cannot be written: {problem.strerror or problem}",
            where=str(path),
            expected="a file in an existing folder that you may write to",
            next_step="name another one",
        ) from None


def _replace(target: Path, text: str) -> None:
    beside = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
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
