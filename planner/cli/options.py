"""Options that several commands have, each defined once."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.cli.terminal import Terminal, set_up_logging
from planner.errors import OutputError, PlanError, UsageError
from planner.graph import jit

Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
# As many digits as a size of --input-shape may have.
_LARGEST_BATCH = 10**12 - 1
# A year is no limit any more.
_LONGEST_S = 365 * 24 * 3600
_SHAPE = "a shape such as name=1x3x224x224"


class SizeType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on only
    """``8GiB`` -> bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse, or fail as click does."""
        from planner.units import parse_size

        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class PercentType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on only
    """``2%`` -> 0.02."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse, or fail as click does."""
        if isinstance(value, float):
            return value
        try:
            found = float(value.removesuffix("%")) / 100
        except ValueError:
            found = -1.0
        if not 0 <= found < 1e6:
            self.fail(f"'{value}' is no percentage such as 2%", param, ctx)
        return found


class SecondsType(click.FloatRange):
    """A time limit: a number, and no more than what the operating system can wait for."""

    name = "seconds"

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(min=0, min_open=min_open, max=_LONGEST_S)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse, or fail as click does; every comparison with "nan" is false, so no range keeps it out."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"'{value}' is not a number", param, ctx)
        return found


def split_pairs(values: Iterable[str], option: str, expected: str) -> dict[str, str]:
    """``name=value`` texts as a mapping; a name may hold ``=`` itself: the last one counts.

    Raises:
        UsageError: if one has no ``=``, or a name occurs twice.
    """
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"'{text}' is wrong", where=option, expected=expected)
        if name in pairs:
            raise UsageError(f"'{name}' is given twice", where=option, expected="each name once")
        pairs[name] = value
    return pairs


def parse_shapes(values: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """``name=1x3x224x224`` texts; ``name=`` is a scalar.

    Raises:
        UsageError: if a text is not of that form.
    """
    shapes = {}
    for name, text in split_pairs(values, "--input-shape", _SHAPE).items():
        sizes = text.lower().split("x") if text else []
        if not all(size.isascii() and size.isdigit() and len(size) <= 12 for size in sizes):
            raise UsageError(f"'{name}={text}' is wrong", where="--input-shape", expected=_SHAPE)
        shapes[name] = tuple(map(int, sizes))
    return shapes


def parse_axes(values: Iterable[str]) -> dict[str, int]:
    """``name=1`` texts; -1 says that an input has no batch.

    Raises:
        UsageError: if a text is not of that form.
    """
    expected = "a dimension such as name=1, or name=-1 for an input without a batch"
    axes = {}
    for name, text in split_pairs(values, "--batch-axis", expected).items():
        if not (text == "-1" or (text.isascii() and text.isdigit() and len(text) < 4)):
            raise UsageError(f"'{name}={text}' is wrong", where="--batch-axis", expected=expected)
        axes[name] = int(text)
    return axes


def refuse_same_file(output: Path, option: str, *used: Path | None, model: Path | None = None) -> None:
    """Refuse to write over a file that the command reads.

    Args:
        output: where a result is to go.
        option: the option that says so.
        used: files that are read; None for one that was not given.
        model: a model that is read; the files that hold its weights are, too.

    Raises:
        UsageError: if ``output`` is one of them.
    """
    _refuse(output, option, "it would be written over, and is read", [*used, model])
    # What is not there yet is no weights; a model is not parsed for nothing.
    if model is not None and os.path.isfile(output):
        from planner.model.read import external_files

        _refuse(output, option, "it would be written over, and holds the model's weights", external_files(model))


def refuse_files_of_plan(output: Path, option: str, plan: Path, model: Path | None = None) -> None:
    """Refuse to write over a plan, the model that it names, or the weights of that.

    Args:
        output: where a result is to go.
        option: the option that says so.
        plan: the plan's file.
        model: the model that is read in place of the plan's.

    Raises:
        UsageError: if ``output`` is one of them.
        PlanError: if ``output`` is there already, and the plan cannot be read.
    """
    from planner.plan.files import plan_model_path, read_plan

    refuse_same_file(output, option, plan, model=model)
    if not os.path.isfile(output):
        return
    try:
        # Also where it would not be read without --allow-outside, or not at all: it is the plan's nevertheless.
        named = plan_model_path(read_plan(plan), plan, allow_outside=True)
    except PlanError as problem:
        if ":model.path" in problem.where:
            return  # no path at all
        raise
    refuse_same_file(output, option, model=named)


def refuse_same_output(first: tuple[str, Path | None], second: tuple[str, Path | None]) -> None:
    """Refuse two results in one file: the later one would replace the other.

    Args:
        first: an option and its file, None if it was not given.
        second: another one.

    Raises:
        UsageError: if both are given and name the same file.
    """
    if first[1] is not None and second[1] is not None and _same_file(first[1], second[1]):
        raise UsageError(
            f"both {first[0]} and {second[0]} would write it",
            where=str(second[1]),
            expected="a file each",
            next_step=f"name another one with {second[0]}",
        )


def _refuse(output: Path, option: str, why: str, used: Iterable[Path | None]) -> None:
    for path in used:
        if path is not None and _same_file(output, path):
            raise UsageError(why, where=str(path), expected="another file", next_step=option)


def _same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, through links of any kind; either may not be there yet."""
    try:
        if os.path.exists(one) and not os.path.isfile(one):
            return False  # /dev/null may be read and written, and by several
        if os.path.realpath(one) == os.path.realpath(other):
            return True
        return one.samefile(other)
    except (OSError, ValueError):
        return False  # not there, or no path: reading or writing it will say so


def check_new_file(output: Path, *, force: bool) -> None:
    """Whether a file can be written, before any work is done.

    Raises:
        OutputError: if the folder is not there or cannot be written, or the file exists and is not to be replaced.
    """
    folder = output.absolute().parent
    if output.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OutputError("no file can be written there", where=str(output), next_step="check the path")
    if output.exists() and not force:
        raise OutputError("the file exists", where=str(output), next_step="use --force, or another name")


def with_terminal(function: Function) -> Function:
    """Adds ``--json``, ``-v`` and ``-q``; the command gets one :class:`Terminal`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object alone on standard output.")
    @click.option("-v", "--verbose", count=True, help="Say more; -vv: log of the libraries too.")
    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, verbose: int, quiet: bool, **kwargs: Any) -> Any:
        verbosity = -1 if quiet else verbose
        set_up_logging(verbosity)
        terminal = Terminal(verbosity, as_json)
        jit.on_compiling = terminal.note
        return function(*args, terminal=terminal, **kwargs)

    return wrapped  # type: ignore[return-value]  # as all click decorators: the command's own signature is not called


def _chain(function: Function, decorators: Iterable[Callable[[Function], Function]]) -> Function:
    for decorator in reversed(list(decorators)):
        function = decorator(function)
    return function


def device_options(function: Function) -> Function:
    """Which devices: ``--gpus``, ``--cpus``, ``--cluster`` and what goes with them."""
    return _chain(
        function,
        [
            click.option("--gpus", metavar="N|I,J", help="The first N GPUs, or those with these indices."),
            click.option("--cpus", metavar="N|NxC", help="N equal groups of all cores, or N devices of C cores."),
            click.option(
                "--cluster",
                type=FILE,
                help="A cluster description (YAML), or the name of one that ships; nothing is measured.",
            ),
        ],
    )


def model_options(function: Function) -> Function:
    """How to load a model: shapes, batch, inputs."""
    return _chain(
        function,
        [
            click.option("--input-shape", "input_shapes", multiple=True, metavar="NAME=SHAPE", help=_SHAPE),
            click.option(
                "--batch", type=click.IntRange(1, _LARGEST_BATCH), help="Batch size: first dimension of the inputs."
            ),
            click.option(
                "--batch-axis",
                "batch_axes",
                multiple=True,
                metavar="NAME=AXIS",
                help="Batch dimension of an input, where it is not the first; -1: it has none.",
            ),
            click.option("--inputs", type=FILE, help="Shapes and values of inputs (.npz), where random ones fail."),
            click.option("--allow-outside", is_flag=True, help="Let weights lie outside the model's folder."),
        ],
    )


def search_options(function: Function) -> Function:
    """``--effort`` and ``--seed``."""
    return _chain(
        function,
        [
            click.option(
                "--effort",
                type=click.Choice(["quick", "normal", "thorough"]),
                default="normal",
                show_default=True,
                help="How much work the search may do.",
            ),
            click.option("--seed", type=int, default=0, show_default=True, help="Of what is drawn at random."),
        ],
    )


def wish_options(function: Function) -> Function:
    """``--pin``, ``--keep-together`` and ``--max-memory``."""
    return _chain(
        function,
        [
            click.option(
                "--pin", "pins", multiple=True, metavar="REGEX=DEVICE", help="Operators whose names match run there."
            ),
            click.option(
                "--keep-together",
                "together",
                multiple=True,
                metavar="REGEX",
                help="Operators whose names match run on one device.",
            ),
            click.option(
                "--max-memory", multiple=True, metavar="DEVICE=SIZE", help="Most to use on a device: cuda:0=8GiB."
            ),
        ],
    )


def parse_wishes(pins: Iterable[str], together: Iterable[str]) -> Any:
    """``schedule.wishes.Wishes`` from the values of :func:`wish_options`.

    Raises:
        UsageError: if a pin is not of the form ``regex=device``.
    """
    from planner.schedule.wishes import Wishes

    expected = "an expression and a device such as 'encoder=cuda:0'"
    return Wishes(tuple(split_pairs(pins, "--pin", expected).items()), tuple(together))


def parse_sizes(values: Iterable[str]) -> dict[str, int]:
    """``cuda:0=8GiB`` texts.

    Raises:
        UsageError: if a text is not of that form.
    """
    from planner.units import parse_size

    found = {}
    for name, text in split_pairs(values, "--max-memory", "a device and a size such as cuda:0=8GiB").items():
        try:
            found[name] = parse_size(text)
            if not found[name]:
                raise ValueError("no memory at all")
        except ValueError as problem:
            raise UsageError(str(problem), where="--max-memory", expected="a size such as 8GiB") from None
    return found


def load_options(**given: Any) -> Any:
    """``model.options.LoadOptions`` from the values of :func:`model_options`.

    Raises:
        UsageError: if a shape or an axis is wrong.
        InputError: if the file of inputs cannot be read.
    """
    from planner.model.options import LoadOptions
    from planner.runtime.feeds import load_npz

    return LoadOptions(
        input_shapes=parse_shapes(given["input_shapes"]),
        batch=given["batch"],
        batch_axes=parse_axes(given["batch_axes"]),
        feeds=load_npz(given["inputs"]) if given["inputs"] is not None else None,
        allow_outside=given["allow_outside"],
    )
