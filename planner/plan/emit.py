"""A plan as YAML text: fixed key order, one line a task, one line a device, link, split or transfer.

The text is made here rather than by a YAML library because its lines are what people review in a diff and
what CI compares byte for byte: no library version may change them. Strings that are not plain words are
written as JSON strings, which every YAML version reads alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

from planner.plan.schema import (
    Candidate,
    DevicePrediction,
    DeviceSpec,
    InputSpec,
    LinkSpec,
    LowerBounds,
    Split,
    State,
    Tool,
    TransferSpec,
)

# Records that take one line; the others take one line a key.
_ONE_LINE: Final = (
    Candidate,
    DevicePrediction,
    DeviceSpec,
    InputSpec,
    LinkSpec,
    LowerBounds,
    Split,
    State,
    Tool,
    TransferSpec,
)

# Words that mean the same to YAML 1.1, to YAML 1.2, and inside [] or {}. A colon only between word characters.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+#=-]*(?::[A-Za-z0-9_./+-][A-Za-z0-9_./+#=-]*)*\Z")
_NOT_STRINGS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# What JSON leaves as it is but YAML forbids or an editor hides.
_HIDDEN = re.compile("[\x7f-\xa0\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]")
# A YAML parser gives up on a key that is longer than 1,024 characters unless it is marked with '?'.
_LONG_KEY: Final = 256


def scalar(value: str | int | bool | None) -> str:
    """One value as YAML.

    Raises:
        UnicodeEncodeError: for a string with a lone surrogate, which no UTF-8 file can hold.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if _PLAIN.match(value) and value.lower() not in _NOT_STRINGS:
        return value
    value.encode("utf-8")
    text = json.dumps(value, ensure_ascii=False)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def emit(record: BaseModel) -> str:
    """The whole record as a YAML document that ends with a newline."""
    return "".join(f"{line}\n" for line in _record_lines(record, ""))


def _fields(record: BaseModel) -> Iterator[tuple[str, Any, bool]]:
    """Key, value, and whether the value is the schema's default."""
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        yield field.alias or name, value, not field.is_required() and value == field.get_default()


def _record_lines(record: BaseModel, indent: str) -> Iterator[str]:
    for key, value, _ in _fields(record):
        yield from _entry_lines(scalar(key), value, indent)


def _entry_lines(key: str, value: Any, indent: str) -> Iterator[str]:
    """Lines of one ``key: value``."""
    if len(key) > _LONG_KEY:
        yield f"{indent}? {key}"
        head = f"{indent}: "
    else:
        head = f"{indent}{key}: "
    if _fits_one_line(value):
        yield head + _flow(value)
        return
    yield head.rstrip()
    if isinstance(value, BaseModel):
        yield from _record_lines(value, indent + "  ")
    elif isinstance(value, dict):
        # A mapping's order means nothing and two equal plans must be equal files.
        for name in sorted(value):
            yield from _entry_lines(scalar(name), value[name], indent + "  ")
    else:
        yield from _item_lines(value, indent)


def _item_lines(items: tuple[Any, ...], indent: str) -> Iterator[str]:
    for item in items:
        if _fits_one_line(item):
            yield f"{indent}- {_flow(item)}"
            continue
        mark = f"{indent}- "
        for line in _record_lines(item, ""):
            yield mark + line
            mark = f"{indent}  "


def _fits_one_line(value: Any) -> bool:
    if isinstance(value, (dict, tuple)):
        return not value or (isinstance(value, tuple) and isinstance(value[0], int))
    return not isinstance(value, BaseModel) or isinstance(value, _ONE_LINE)


def _flow(value: Any) -> str:
    """A value on one line; keys at the schema's default are left out."""
    if isinstance(value, BaseModel):
        shown = (f"{key}: {_flow(item)}" for key, item, default in _fields(value) if not default)
        return f"{{{', '.join(shown)}}}"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_flow, value))}]"
    return scalar(value)
