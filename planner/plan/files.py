"""Plan files: reading with one-line errors, writing atomically, and finding the model beside a plan."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from pydantic import ValidationError

from planner.errors import OutputError, PlanError
from planner.plan.atomic import write_text_atomically
from planner.plan.emit import emit
from planner.plan.schema import SCHEMA_ID, Plan
from planner.safe_yaml import load_yaml

MAX_PLAN_BYTES: Final = 64_000_000
MAX_PLAN_DEPTH: Final = 12
_SCHEMA_LINE = re.compile(rb"^schema: \"?fddps/plan/", re.MULTILINE)
_SHOWN_CHARS: Final = 80

# What pydantic says, in the words of a plan file.
_EXPECTED: Final = {
    "int_type": "a whole number",
    "string_type": "a string (in quotes if it looks like a number)",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def dump_plan(plan: Plan) -> str:
    """The plan as the text of a plan file: equal plans give equal text.

    Raises:
        PlanError: if a name in it cannot be stored as UTF-8.
    """
    try:
        return emit(plan)
    except UnicodeEncodeError as problem:
        raise PlanError(
            f"the name {_shown(problem.object)} is not valid Unicode",
            next_step="rename the node or tensor in the model",
        ) from None


def parse_plan(text: str | bytes, where: str) -> Plan:
    """The plan in the text of a plan file.

    Args:
        text: YAML of schema ``fddps/plan/v1``.
        where: file name for error messages.

    Raises:
        PlanError: if the text is not such a plan; the message names the key.
    """
    data = load_yaml(text, where, error=PlanError, max_bytes=MAX_PLAN_BYTES, max_depth=MAX_PLAN_DEPTH)
    if not isinstance(data, dict) or "schema" not in data:
        raise PlanError(
            "not a plan",
            where=where,
            expected=f"a mapping with 'schema: {SCHEMA_ID}'",
            next_step="write one: fddps plan",
        )
    if data["schema"] != SCHEMA_ID:
        raise PlanError(
            f"the schema is {_shown(data['schema'])}",
            where=f"{where}:schema",
            expected=f"{SCHEMA_ID}, the only one this version of fddps reads",
            next_step="use the fddps that wrote the plan, or plan again",
        )
    try:
        return Plan.model_validate(_tuples(data))
    except ValidationError as problem:
        raise _one_line(problem, where) from None


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file.

    Raises:
        PlanError: if there is no such file or it is not a plan.
    """
    where = os.fspath(path)
    try:
        with open(where, "rb") as file:
            text = file.read(MAX_PLAN_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        raise PlanError(
            f"cannot be read: {reason}", where=where, expected="a plan file", next_step="check the path"
        ) from None
    if len(text) > MAX_PLAN_BYTES:
        raise PlanError("too large", where=where, expected=f"a plan of at most {MAX_PLAN_BYTES} bytes")
    return parse_plan(text, where)


def write_plan(plan: Plan, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a plan file. An older plan of that name is replaced; another file only with ``force``.

    Raises:
        OutputError: if the file cannot be written, or is there and is not a plan.
        PlanError: see :func:`dump_plan`.
    """
    check_target(path, force=force)
    write_text_atomically(Path(path), dump_plan(plan))


def check_target(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """See whether a plan may be written, before any work is done for it.

    Raises:
        OutputError: if there is no such folder, or the file is there and is not a plan, and not ``force``.
    """
    target = Path(path)
    is_folder = os.path.isdir(target)
    if is_folder or not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"cannot be written: {'it is a folder' if is_folder else 'no such folder, or not yours to write to'}",
            where=str(target),
            expected="a file in an existing folder that you may write to",
            next_step="name another one with -o",
        )
    if not force and _is_something_else(target):
        raise OutputError(
            "exists and is not a plan",
            where=str(target),
            expected="a new file or an older plan",
            next_step="name another file, or replace it with --force",
        )


def relative_model_path(model: str | os.PathLike[str], plan_path: str | os.PathLike[str]) -> str:
    """The model's path as it stands in a plan: relative to the plan's folder, with forward slashes."""
    folder = Path(plan_path).resolve().parent
    # The folders are resolved, the file is not: a link to a model in a cache keeps the name the user knows.
    file = Path(model).parent.resolve() / Path(model).name
    return Path(os.path.relpath(file, folder)).as_posix()


def plan_model_path(plan: Plan, plan_path: str | os.PathLike[str], *, allow_outside: bool = False) -> Path:
    """Where the plan's model is.

    Args:
        plan: the plan.
        plan_path: the file that it was read from.
        allow_outside: whether the user agreed to a path that leaves the plan's folder.

    Raises:
        PlanError: if the path leaves the folder and that is not allowed. Only the path's text counts: symbolic links
            in the plan's folder are its owner's business.
    """
    written = plan.model.path
    path = PurePosixPath(written)
    broken = not written or any(ord(char) < 32 for char in written)
    windows = PureWindowsPath(written)
    # A Windows path splits at both kinds of slashes.
    outside = path.is_absolute() or bool(windows.drive) or ".." in windows.parts
    if broken or (outside and not allow_outside):
        raise PlanError(
            f"the model path {_shown(written)} leaves the plan's folder" if not broken else "the model path is no path",
            where=f"{os.fspath(plan_path)}:model.path",
            expected="a path below the plan's folder",
            next_step="say where the model is with --model PATH",
        )
    return Path(plan_path).parent / path


def _is_something_else(path: Path) -> bool:
    """Whether a non-empty regular file is there that does not look like a plan."""
    try:
        if not path.is_file() or path.stat().st_size == 0:
            return False
        with path.open("rb") as file:
            return _SCHEMA_LINE.search(file.read(4096)) is None
    except OSError:
        return False  # writing will say what is wrong


def _tuples(value: Any) -> Any:
    """The same data with tuples for lists: the schema is strict and has no lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


def _one_line(problem: ValidationError, where: str) -> PlanError:
    first = problem.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" for part in first["loc"]).lstrip(".")
    kind = first["type"]
    others = problem.error_count() - 1
    more = f" ({others} more like this)" if others else ""
    expected = _EXPECTED.get(kind, "")
    if kind == "missing":
        what = "the key is missing"
    elif kind == "extra_forbidden":
        what, expected = "unknown key", f"only keys of {SCHEMA_ID}"
    elif expected:
        what = f"{_shown(first['input'])} is wrong"
    else:
        message = first["msg"]
        what, expected = f"{_shown(first['input'])} is wrong", message[:1].lower() + message[1:]
        expected = expected.removeprefix("input should be ")
    return PlanError(
        what + more, where=f"{where}:{place}", expected=expected, next_step="correct the file, or plan again"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _shown(value: Any) -> str:
    """A value of the file for a message: short, printable, one line."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "nothing"
    return repr(_cut(value)) if isinstance(value, str) else _cut(str(value))
