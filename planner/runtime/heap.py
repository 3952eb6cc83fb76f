"""Memory that was freed and that the C library keeps: creating sessions leaves some times a model's size of it."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Return freed memory to the system; where the C library is not glibc, nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
