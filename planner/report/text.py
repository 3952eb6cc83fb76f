"""Names from strangers' models, made harmless for a terminal."""

from __future__ import annotations


def printable(name: str) -> str:
    """The name on one line, with what a terminal would act on (escapes, newlines) written as escapes."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def shorten(name: str, length: int) -> str:
    """At most ``length`` characters; both ends of a long name stay, since its end tells more than its middle."""
    if len(name) <= length:
        return name
    tail = (length - 3) * 2 // 3
    return f"{name[: length - 3 - tail]}...{name[len(name) - tail :]}"
