"""Errors for Python callers: what is wrong is said in terms of parameters, not of options of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from planner.errors import FddpsError, UsageError

# Options whose parameter is not the same word with underscores.
_OTHERS: Final = {
    "batch-axis": "batch_axes",
    "input-shape": "input_shapes",
    "memory": "memory_bytes",
    "pin": "pins",
}
_SAME: Final = (
    "allow-outside",
    "batch",
    "cache",
    "cluster",
    "cpus",
    "effort",
    "gpus",
    "hash-file",
    "inputs",
    "keep-together",
    "link",
    "max-memory",
    "planner",
    "profile",
    "seed",
)
_OPTION: Final = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?![\w-])(?: ([0-9]+)\b(?![\w.]))?")


# What a parameter has to be, and an example.
_PAIRS: Final = (TypeAdapter(tuple[tuple[str, str], ...]), "pairs such as [('^encoder', 'cpu:0')]")
_SIZES: Final = (TypeAdapter(dict[str, int]), "bytes by device, such as {'cuda:0': 8 << 30}")
_AXES: Final = (TypeAdapter(dict[str, int]), "axes by input, such as {'x': 1}")
_SHAPES: Final = (TypeAdapter(dict[str, tuple[int, ...]]), "shapes by input, such as {'x': (8, 3, 96, 96)}")
_TEXTS: Final = (TypeAdapter(tuple[str, ...]), "a list of regular expressions")
_BYTES: Final = (TypeAdapter(int | None), "a number of bytes, such as 8 << 30")
_KINDS: Final[dict[str, tuple[TypeAdapter[Any], str]]] = {
    "pins": _PAIRS,
    "keep_together": _TEXTS,
    "max_memory": _SIZES,
    "memory_bytes": _BYTES,
    "batch_axes": _AXES,
    "input_shapes": _SHAPES,
}


def checked(name: str, value: Any) -> Any:
    """The value of a parameter, in the form that it has inside.

    Args:
        name: of the parameter.
        value: what a caller gave.

    Raises:
        UsageError: if it is something else.
    """
    adapter, expected = _KINDS[name]
    try:
        return adapter.validate_python(value)
    except ValidationError:
        raise UsageError(repr(value)[:60], where=name, expected=expected) from None


def checked_arrays(name: str, values: Any) -> Any:
    """Arrays by name, as they are.

    Raises:
        UsageError: if one is no array.
    """
    wrong = [key for key, value in values.items() if not (hasattr(value, "shape") and hasattr(value, "dtype"))]
    if wrong:
        raise UsageError(f"a {type(values[wrong[0]]).__name__} for '{wrong[0]}'", where=name, expected="numpy arrays")
    return values


@contextmanager
def named_as_parameters() -> Iterator[None]:
    """Errors raised inside name parameters: ``--batch-axis`` becomes ``batch_axes``, ``--cpus 2`` ``cpus=2``."""
    try:
        yield
    except FddpsError as problem:
        said = (problem.what, problem.where, problem.expected, problem.next_step)
        what, where, expected, next_step = (_OPTION.sub(_parameter, text) for text in said)
        if said == (what, where, expected, next_step):
            raise
        raise type(problem)(what, where=where, expected=expected, next_step=next_step) from problem


def _parameter(option: re.Match[str]) -> str:
    """The parameter of an option, with its value; other options stay as they are."""
    name = option[1]
    if name not in _OTHERS and name not in _SAME:
        return option[0]
    parameter = _OTHERS.get(name, name.replace("-", "_"))
    return parameter if option[2] is None else f"{parameter}={option[2]}"
