"""Errors for Python callers: what is wrong is said in terms of parameters, not of options of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from planner.errors import FddpsError

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
