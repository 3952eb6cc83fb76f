"""YAML that is safe to read from strangers and that reads back as it was written.

Objects are built straight from the parser's events: nothing recurses, nothing is expanded, and limits
strike before memory is spent. Refused: anchors and aliases (billion laughs), tags, duplicate keys, several
documents, collections as keys, too much nesting or size. Scalars follow the YAML 1.2 core schema, so that a
node called ``on`` or ``12:30`` stays a string (YAML 1.1 reads a boolean and a number in base 60). Keys are
always strings.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from planner.errors import FddpsError, UsageError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml: slower, same result
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_BYTES: Final = 50_000_000
MAX_DEPTH: Final = 32
MAX_NODES: Final = 5_000_000

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL: Final[dict[str, Any]] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
# What is written without quotes, unless it is one of the words that YAML 1.1 or 1.2 gives a meaning.
_PLAIN = re.compile(r"[A-Za-z_/](?:[A-Za-z0-9_./+@;|*()=-]|[: ](?=[A-Za-z0-9_/.]))*\Z")
_WORDS: Final = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
# A reader gives up on a key of more than 1024 bytes, quotes and escapes included, without a question mark.
_LONG_KEY: Final = 100
# An integer with leading zeros is octal in YAML 1.1 and decimal in 1.2: it stays a string.
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")


def read_limited(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of a file for :func:`load_yaml`, which refuses what is too long; one byte more than that at most.

    Raises:
        OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(max_bytes + 1)


def load_yaml(
    text: str | bytes,
    where: str,
    *,
    error: type[FddpsError] = UsageError,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_nodes: int = MAX_NODES,
) -> Any:
    """Read one YAML document.

    Args:
        text: the document; bytes must be UTF-8.
        where: file name for error messages; the line is added.
        error: class of the errors raised.
        max_bytes: largest document.
        max_depth: deepest nesting of collections.
        max_nodes: most scalars and collections together.

    Returns:
        dict, list, str, int, float, bool or None; None for an empty document.

    Raises:
        FddpsError: of class ``error``, for anything that is refused.
    """
    try:
        data = text.encode("utf-8") if isinstance(text, str) else text
        if len(data) > max_bytes:
            raise error("too large", where=where, expected=f"at most {max_bytes} bytes of YAML")
        data.decode("utf-8")
    except UnicodeError:
        raise error("not a UTF-8 text file", where=where, expected="YAML", next_step="check the path") from None
    return _Builder(where, error, max_depth, max_nodes).build(data)


def dump_yaml(data: Any, *, sort_keys: bool = False, block_depth: int | None = None) -> str:
    """Write data that :func:`load_yaml`, and any YAML 1.1 reader, reads back equal.

    A writer of our own, because PyYAML's takes 20 us a value and breaks long lines.

    Args:
        data: dicts with string keys, lists, tuples (read back as lists), str, int, float, bool, None.
        sort_keys: sort mappings by key; else their own order is kept.
        block_depth: collections nested at this depth or deeper are written on one line; None: none are.
            With 2, ``{"tasks": [{"a": 1}]}`` is ``tasks:`` and one line ``- {a: 1}``.

    Raises:
        TypeError: for any other type.
    """
    limit = sys.maxsize if block_depth is None else block_depth
    if not data or limit <= 0 or not isinstance(data, dict | list | tuple):
        return _flow(data, sort_keys) + "\n"
    return "\n".join(_block(data, 1, limit, sort_keys)) + "\n"


class _Builder:
    """Builds plain objects from parser events."""

    def __init__(self, where: str, error: type[FddpsError], max_depth: int, max_nodes: int) -> None:
        self._where = where
        self._error = error
        self._max_depth = max_depth
        self._max_nodes = max_nodes

    def build(self, data: bytes) -> Any:
        """The document's object."""
        documents: list[Any] = []
        stack: list[Any] = []  # open collections; a dict is followed by its pending key (None: a key is next)
        keys: list[str | None] = []
        nodes = 0
        for event in self._events(data):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._refuse_decorations(event)
                if stack and type(stack[-1]) is dict and keys[-1] is None:
                    keys[-1] = self._key(stack[-1], event)
                    continue
                value = _scalar(event) if event.implicit[0] else event.value
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._refuse_decorations(event)
                if stack and type(stack[-1]) is dict and keys[-1] is None:
                    raise self._fail(event, "a collection is used as a key", "plain keys")
                value = {} if kind is yaml.MappingStartEvent else []
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                stack.pop()
                keys.pop()
                continue
            elif kind is yaml.AliasEvent:
                raise self._fail(event, "an alias is not allowed", "the value itself")
            elif kind is yaml.DocumentStartEvent and documents:
                raise self._fail(event, "a second document", "one document a file")
            else:
                continue
            nodes += 1
            if nodes > self._max_nodes:
                raise self._fail(event, "too many values", f"at most {self._max_nodes}")
            self._attach(value, stack, keys, documents)
            if kind is not yaml.ScalarEvent:
                stack.append(value)
                keys.append(None)
                if len(stack) > self._max_depth:
                    raise self._fail(event, "nested too deeply", f"at most {self._max_depth} levels")
        return documents[0] if documents else None

    @staticmethod
    def _attach(value: Any, stack: list[Any], keys: list[str | None], documents: list[Any]) -> None:
        if not stack:
            documents.append(value)
        elif type(stack[-1]) is dict:
            stack[-1][keys[-1]] = value
            keys[-1] = None
        else:
            stack[-1].append(value)

    def _events(self, data: bytes) -> Iterator[Any]:
        try:
            yield from yaml.parse(data, Loader=_Loader)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            where = f"{self._where}:{mark.line + 1}" if mark else self._where
            raise self._error(f"not valid YAML: {problem.problem}", where=where, next_step="correct the line") from None
        except yaml.YAMLError as problem:
            text = " ".join(str(problem).split())
            raise self._error(f"not valid YAML: {text}", where=self._where) from None

    def _refuse_decorations(self, event: Any) -> None:
        if event.anchor is not None:
            raise self._fail(event, f"the anchor '&{event.anchor}' is not allowed", "plain values")
        if event.tag is not None:
            raise self._fail(event, f"the tag '{event.tag}' is not allowed", "plain values")

    def _key(self, mapping: dict[str, Any], event: Any) -> str:
        key = str(event.value)
        if key in mapping:
            raise self._fail(event, f"the key '{key}' occurs twice", "each key once")
        return key

    def _fail(self, event: Any, what: str, expected: str) -> FddpsError:
        where = f"{self._where}:{event.start_mark.line + 1}"
        return self._error(what, where=where, expected=expected, next_step="correct the line")


def _scalar(event: Any) -> Any:
    """Value of a plain scalar by the YAML 1.2 core schema."""
    text: str = event.value
    # Most scalars are words: one look at the first character saves the patterns.
    if text and (text[0].isdigit() or text[0] in "+-."):
        if _INT.match(text):
            return int(text)
        if _FLOAT.match(text) and not _LEADING_ZERO.match(text):
            return float(text)
    return _SPECIAL.get(text, text)


def _block(data: Any, depth: int, limit: int, sort_keys: bool) -> Iterator[str]:
    """Lines of a collection with one entry a line, not indented; ``depth`` is that of its entries."""
    if isinstance(data, dict):
        for key in sorted(data) if sort_keys else data:
            value = data[key]
            if len(key) > _LONG_KEY:
                yield f"? {_text(key)}"
                yield f": {_flow(value, sort_keys)}"
            elif not value or depth >= limit or not isinstance(value, dict | list | tuple):
                yield f"{_text(key)}: {_flow(value, sort_keys)}"
            else:
                yield f"{_text(key)}:"
                indent = "  " if isinstance(value, dict) else ""
                for line in _block(value, depth + 1, limit, sort_keys):
                    yield indent + line
        return
    for value in data:
        if not value or depth >= limit or not isinstance(value, dict | list | tuple):
            yield f"- {_flow(value, sort_keys)}"
        else:
            indent = "- "
            for line in _block(value, depth + 1, limit, sort_keys):
                yield indent + line
                indent = "  "


def _flow(value: Any, sort_keys: bool) -> str:
    """A value on one line."""
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, dict):
        keys = sorted(value) if sort_keys else value
        return "{" + ", ".join([f"{_flow_key(k)}: {_flow(value[k], sort_keys)}" for k in keys]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join([_flow(v, sort_keys) for v in value]) + "]"
    raise TypeError(f"{type(value).__name__} cannot be written as YAML")


def _flow_key(key: str) -> str:
    return _text(key) if len(key) <= _LONG_KEY else f"? {_text(key)} "


def _float_text(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    # YAML 1.1 reads 1e-05 as a string.
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def _text(text: str) -> str:
    """A string, quoted wherever some YAML reader could take it for something else."""
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} cannot be a YAML key")
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(map(_escape, quoted))


def _escape(char: str) -> str:
    return char if char.isprintable() else f"\\U{ord(char):08x}"
