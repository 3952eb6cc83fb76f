"""Names from strangers' models, made harmless for a terminal."""

from __future__ import annotations


def printable(name: str) -> str:
    """The name on one line, with what a terminal would act on (escapes, newlines) written as escapes."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
