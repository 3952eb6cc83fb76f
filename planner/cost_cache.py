"""The file of measured costs: the user's own cache, or a profile that grows."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from planner.cost.profile import ProfileTable, read_profile, write_profile
from planner.errors import OutputError, ProfileError

Note = Callable[[str], None]

CACHE_NAME: Final = "profile.yaml"


def default_cache() -> Path:
    """The per-user file of measured costs: ``$XDG_CACHE_HOME/fddps/profile.yaml``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "fddps" / CACHE_NAME


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process or thread at a time reads, merges and writes in a folder; no lock file stays behind."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        # What is wrong with the folder, writing will say.
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class ProfileStore:
    """A profile file that grows while something is measured.

    Args:
        path: the file; its folder is made when something is kept.
        note: told once if the file cannot be written, where that is no reason to stop.
        strict: raise instead.
    """

    def __init__(self, path: Path, note: Note, *, strict: bool = False) -> None:
        self.path = path
        self._note = note
        self._strict = strict
        self._failed = False

    def read(self) -> ProfileTable:
        """What is there; nothing if there is no file.

        Raises:
            ProfileError: if the file is no profile.
        """
        if not self.path.exists():
            return ProfileTable()
        try:
            return read_profile(self.path)
        except ProfileError as problem:
            next_step = "name another file" if self._strict else "delete it, or name another with --cache"
            raise ProfileError(
                problem.what, where=problem.where, expected=problem.expected, next_step=next_step
            ) from None

    def keep(self, table: ProfileTable) -> None:
        """Add a table to the file; what another process has added meanwhile stays.

        Raises:
            ProfileError, OutputError, OSError: if it cannot be read or written, and ``strict``.
        """
        if self._failed:
            return
        try:
            if not self._strict:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.parent):
                write_profile(self.read().merged(table), self.path)
        except (OSError, ProfileError, OutputError) as problem:
            if self._strict:
                raise
            self._failed = True
            self._note(f"measured costs are not kept: {problem}")
