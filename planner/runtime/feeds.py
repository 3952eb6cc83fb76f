"""Inputs for a plan, random or from a file, and outputs into one."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from planner.errors import InputError, OutputError
from planner.graph.op_graph import Array, TensorInfo
from planner.plan.atomic import write_atomically
from planner.runtime.values import FOREIGN_TYPES, SMALL_INTEGERS, dtype_of, native, numpy_dtype

DEFAULT_INT_HIGH: Final = 100


def random_feeds(
    inputs: Iterable[TensorInfo], seed: int, *, int_high: Mapping[str, int] | int = DEFAULT_INT_HIGH
) -> dict[str, Array]:
    """Seeded inputs: normal floats, small non-negative integers, random bools, short strings.

    Each input has a stream of its own, drawn from the seed and its name: adding an input changes no other.

    Args:
        inputs: types and shapes; a size that is not known counts as ``TensorInfo.dims`` does.
        seed: same seed, same inputs, on every machine.
        int_high: integers are below this; by input name or one for all (token ids, lengths, class numbers).

    Raises:
        InputError: if an input is no tensor or of a type without random values.
    """
    feeds: dict[str, Array] = {}
    for info in inputs:
        high = int_high if isinstance(int_high, int) else int_high.get(info.name, DEFAULT_INT_HIGH)
        stream = np.random.default_rng([seed, zlib.crc32(info.name.encode("utf-8", "surrogatepass"))])
        feeds[info.name] = _random(info, stream, high)
    return feeds


def _random(info: TensorInfo, stream: np.random.Generator, high: int) -> Array:
    dtype = _dtype_for(info)
    shape = info.dims
    if info.dtype == "string":
        numbers = stream.integers(0, DEFAULT_INT_HIGH, shape)
        return np.asarray(np.vectorize(lambda n: f"s{n}", otypes=[object])(numbers), dtype=object).reshape(shape)
    if info.dtype == "bool":
        return np.asarray(stream.integers(0, 2, shape), dtype=bool)
    if dtype.kind in "iu" or info.dtype in SMALL_INTEGERS:
        bits = SMALL_INTEGERS.get(info.dtype)
        # Of a small type those values that a signed one has too, from 0.
        limit = min(high, 100 if dtype.itemsize == 1 else high) if bits is None else 1 << (bits - 1)
        return np.asarray(stream.integers(0, max(limit, 1), shape)).astype(dtype)
    if dtype.kind == "c":
        return np.asarray(stream.standard_normal(shape) + 1j * stream.standard_normal(shape)).astype(dtype)
    normal = np.asarray(stream.standard_normal(shape))
    # Powers of two have no sign.
    return (np.abs(normal) if info.dtype == "float8e8m0" else normal).astype(dtype)


def _dtype_for(info: TensorInfo) -> np.dtype[Any]:
    try:
        if info.kind == "tensor":
            return numpy_dtype(info.dtype)
    except TypeError:
        pass
    raise InputError(
        f"no random values for a {info.kind} of {info.dtype}",
        where=f"input '{info.name}'",
        expected="a tensor of numbers, bools or strings",
        next_step="give inputs in a file",
    )


def load_npz(path: str | Path) -> dict[str, Array]:
    """Read arrays by name from an ``.npz`` file; nothing in it is unpickled.

    Raises:
        InputError: if there is no such file, or an array in it is pickled or damaged.
    """
    where = os.fspath(path)
    expected = "an .npz file with one array an input (numpy.savez)"
    try:
        archive = np.load(where, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError("holds a single array", where=where, expected=expected)
        with archive:
            twice = next((name for name, count in Counter(archive.files).items() if count > 1), None)
            if twice is not None:
                raise InputError(f"'{twice}' is in it twice", where=where, expected="one array an input")
            arrays = {name: archive[name] for name in archive.files}
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", where=where, expected=expected) from None
    except (
        ValueError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        MemoryError,
        SyntaxError,
        tokenize.TokenError,
    ) as problem:
        raise InputError(
            f"cannot be read: {str(problem) or type(problem).__name__}",
            where=where,
            expected=expected,
            next_step="save strings as fixed-width text (dtype 'U'), not as objects",
        ) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"'{name}' is no array", where=where, expected=expected)
    return {name: native(array) for name, array in arrays.items()}


def save_npz(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name into an ``.npz`` file, all of it or nothing.

    Keys are the names exactly, whatever is in them: numpy reads them back as they are, and nothing extracts them as
    files. Strings are written as fixed-width text, and types that numpy lacks (bfloat16, ...) as float32 or int8.

    Raises:
        OutputError: if the file cannot be written, or a value is no array.
    """
    target = Path(path)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, value in arrays.items():
                _write_entry(archive, name, value, target)

    try:
        write_atomically(target, write)
    except (ValueError, UnicodeError) as problem:
        raise OutputError(
            f"cannot be written: {problem}",
            where=str(target),
            expected="a file in an existing folder that you may write to",
        ) from None


def _write_entry(archive: zipfile.ZipFile, name: str, value: Any, target: Path) -> None:
    if not isinstance(value, np.ndarray):
        raise OutputError(f"output '{name}' is a {type(value).__name__}", where=str(target), expected="a tensor")
    # A fixed date: the same arrays give the same file.
    entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    # ZipInfo cuts names at a NUL and turns a system's separators into slashes; the key has to stay the name.
    entry.filename = f"{name}.npy"
    with archive.open(entry, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, _storable(value), allow_pickle=False)


def _storable(value: Array) -> Array:
    dtype = dtype_of(value)
    if dtype == "string":
        texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in value.flat]
        return np.array(texts, dtype=np.str_).reshape(value.shape) if texts else np.zeros(value.shape, "<U1")
    if dtype in FOREIGN_TYPES:
        return value.astype(np.int8 if dtype in SMALL_INTEGERS else np.float32)
    return value
