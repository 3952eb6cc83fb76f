"""Units used across fddps.

Times inside the planner are integer nanoseconds (``*_ns``), so that no decision rests on the last
digit of a floating-point sum; times shown to users are seconds (``*_s``). Sizes are bytes
(``nbytes``, ``*_bytes``), rates are bytes per second.
"""

from __future__ import annotations

import re
from typing import Final

NS_PER_S: Final = 1_000_000_000

# Bits, not bytes: the 4-bit types pack two elements into a byte.
_BITS: Final = {
    "bool": 8,
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4e2m1": 4,
    "int8": 8,
    "uint8": 8,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "float8e8m0": 8,
    "int16": 16,
    "uint16": 16,
    "float16": 16,
    "bfloat16": 16,
    "int32": 32,
    "uint32": 32,
    "float32": 32,
    "int64": 64,
    "uint64": 64,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
    # A string has no fixed size; this is what a short one costs in ONNX Runtime.
    "string": 256,
}

# 8 PiB: what a plan can hold, and exact as a float.
_LARGEST_SIZE: Final = 2**53
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*$", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def to_ns(seconds: float) -> int:
    """Seconds to whole nanoseconds, rounded to nearest."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: int) -> float:
    """Whole nanoseconds to seconds."""
    return nanoseconds / NS_PER_S


def tensor_nbytes(dtype: str, num_elements: int) -> int:
    """Bytes of a dense tensor.

    Args:
        dtype: numpy-style type name, e.g. ``float32``; an unknown one counts as 4 bytes an element.
        num_elements: number of elements.
    """
    return (num_elements * _BITS.get(dtype, 32) + 7) // 8


def parse_size(text: str) -> int:
    """Bytes of a human-readable size: ``8GiB``, ``16GB``, ``512M``, ``1024``.

    Raises:
        ValueError: if the text is no size.
    """
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"'{text}' is not a size such as 8GiB or 512MB")
    base = 1024 if match[3] else 1000
    nbytes = float(match[1]) * base ** _POWERS[match[2].upper()]
    if not nbytes <= _LARGEST_SIZE:
        raise ValueError("it is more than any machine has")
    return int(nbytes)


def format_size(nbytes: int) -> str:
    """``1536`` -> ``1.5 KiB``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_time(nanoseconds: int) -> str:
    """``1_234_567`` -> ``1.235 ms``."""
    for limit, unit in ((1_000, "ns"), (1_000_000, "us"), (NS_PER_S, "ms")):
        if abs(nanoseconds) < limit:
            scale = limit // 1_000
            return f"{nanoseconds / max(scale, 1):.3f} {unit}" if scale > 1 else f"{nanoseconds} ns"
    return f"{nanoseconds / NS_PER_S:.3f} s"
