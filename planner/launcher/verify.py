"""Whether the split model's outputs are those of the unsplit one, within a stated tolerance.

A split sums in another order, so floats differ in their last digits. An element may differ by ``of_largest`` times the
largest magnitude in its output plus ``of_value`` times its own value:

| type | of_largest | of_value | why |
|---|---|---|---|
| float64 | 1e-6 | 1e-5 | models in float64 often have float32 constants inside |
| float32 | 1e-4 | 1e-3 | long sums, and fast algorithms of the kernels |
| float16, bfloat16, float8e4m3 | 4 units in the last place of 1 | the same | sums rounded after each operator |
| float8e5m2 | 1 unit in the last place of 1 | the same | the same; four would let everything pass |
| float8e8m0, float4e2m1 | - | one half | one step |
| float32 out of a Sigmoid | 1e-4, and 4 units in the last place of 1 | 1e-3 | computed as one half plus something |
| 8-bit integers of a quantised model | one step | - | a value between two steps may round either way |

Other integers, bools and strings are equal; NaN and infinities stand in the same places.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from planner.graph.op_graph import Array
from planner.runtime.values import dtype_of

_TOLERANCE: Final = {
    "float64": (1e-6, 1e-5),
    "float32": (1e-4, 1e-3),
    "float16": (4 * 2.0**-10, 4 * 2.0**-10),
    "bfloat16": (4 * 2.0**-7, 4 * 2.0**-7),
    "float8e4m3fn": (4 * 2.0**-3, 4 * 2.0**-3),
    "float8e4m3fnuz": (4 * 2.0**-3, 4 * 2.0**-3),
    "float8e5m2": (2.0**-2, 2.0**-2),
    "float8e5m2fnuz": (2.0**-2, 2.0**-2),
    "float8e8m0": (0.0, 2.0**-1),
    "float4e2m1": (0.0, 2.0**-1),
    "complex64": (1e-4, 1e-3),
    "complex128": (1e-6, 1e-5),
}
# Of a float32 value computed as one half plus something, however small it is. The unsplit PP-OCRv4 detector, whose
# largest value was 4e-4, differed from itself by 1.8e-7, over four times the tolerance, at ONNX Runtime's optimisation
# levels "all" and "extended".
NEAR_ONE: Final = 4 * 2.0**-23
_MAX_FAILURES: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class IndexOf:
    """What an output of TopK, ArgMax or ArgMin points into: positions of equal values may be swapped.

    Attributes:
        values: the tensor it points into.
        axis: along which axis.
        keepdims: whether the output has that axis.
    """

    values: Array
    axis: int
    keepdims: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing outputs.

    Attributes:
        verified: all are equal within the tolerance.
        max_abs_diff: largest difference of two finite numbers.
        max_rel_diff: largest difference, each output's divided by the largest magnitude in it.
        worst: name of the output with the largest relative difference; empty if nothing differs.
        failures: one line a tensor that is out of tolerance, by name and in order.
        compared: number of tensors.
    """

    verified: bool
    max_abs_diff: float
    max_rel_diff: float
    worst: str
    failures: tuple[str, ...]
    compared: int

    def merged(self, other: Comparison) -> Comparison:
        """This and another comparison as one."""
        worse = other if other.max_rel_diff > self.max_rel_diff else self
        return Comparison(
            self.verified and other.verified,
            max(self.max_abs_diff, other.max_abs_diff),
            worse.max_rel_diff,
            worse.worst or self.worst or other.worst,
            tuple(dict.fromkeys(self.failures + other.failures))[:_MAX_FAILURES],
            max(self.compared, other.compared),
        )


@dataclass(slots=True)
class _Tally:
    max_abs: float = 0.0
    max_rel: float = 0.0
    worst: str = ""
    failures: list[str] = field(default_factory=list)

    def note(self, name: str, absolute: float, relative: float) -> None:
        self.max_abs = max(self.max_abs, absolute)
        if relative > self.max_rel:
            self.max_rel, self.worst = relative, name


def compare_outputs(
    names: Sequence[str],
    got: Sequence[Any],
    expected: Sequence[Any],
    *,
    quantised: bool = False,
    indices: Mapping[str, IndexOf] | None = None,
    sigmoids: Collection[str] = (),
) -> Comparison:
    """Compare outputs of the split model with those of the unsplit one.

    Args:
        names: of the tensors, for messages.
        got: the split model's; arrays, or lists of arrays for sequences.
        expected: the unsplit model's.
        quantised: 8-bit integers may differ by one step.
        indices: for outputs that hold positions, what they point into (the unsplit model's tensor).
        sigmoids: tensors that a Sigmoid makes.
    """
    tally = _Tally()
    for name, mine, theirs in zip(names, got, expected, strict=True):
        if isinstance(theirs, list):
            _compare_sequences(name, mine, theirs, tally, quantised)
        else:
            floor = NEAR_ONE if name in sigmoids else 0.0
            failure = _compare(name, mine, theirs, tally, quantised, (indices or {}).get(name), floor)
            if failure:
                tally.failures.append(f"{name}: {failure}")
    failures = tuple(tally.failures)
    return Comparison(not failures, tally.max_abs, tally.max_rel, tally.worst, failures[:_MAX_FAILURES], len(names))


def _compare_sequences(name: str, got: Any, expected: list[Any], tally: _Tally, quantised: bool) -> None:
    if not isinstance(got, list) or len(got) != len(expected):
        length = len(got) if isinstance(got, list) else "no sequence"
        tally.failures.append(f"{name}: length {length}, expected {len(expected)}")
        return
    for position, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        failure = _compare(name, np.asarray(mine), np.asarray(theirs), tally, quantised, None)
        if failure:
            tally.failures.append(f"{name}[{position}]: {failure}")


def _compare(
    name: str,
    got: Array,
    expected: Array,
    tally: _Tally,
    quantised: bool,
    index: IndexOf | None,
    floor: float = 0.0,
) -> str:
    """What is wrong with one tensor; empty if nothing."""
    dtype = dtype_of(expected)
    if dtype_of(got) != dtype:
        return f"type {dtype_of(got)}, expected {dtype}"
    if got.shape != expected.shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if expected.size == 0:
        return ""
    if dtype in _TOLERANCE:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        tolerance = (*_TOLERANCE[dtype], floor if dtype == "float32" else 0.0)
        return _compare_floats(name, got.astype(wide), expected.astype(wide), tolerance, tally)
    if dtype in ("string", "bool"):
        return _count_wrong(np.asarray(got != expected, dtype=bool), got, expected)
    return _compare_integers(name, got, expected, tally, quantised and dtype in ("int8", "uint8"), index)


def _compare_floats(
    name: str, got: Array, expected: Array, tolerance: tuple[float, float, float], tally: _Tally
) -> str:
    finite = np.isfinite(expected)
    same_special = (got == expected) | (np.isnan(got) & np.isnan(expected))
    misplaced = np.where(finite, ~np.isfinite(got), ~same_special)
    if misplaced.any():
        return "NaN or infinity: " + _count_wrong(misplaced, got, expected)
    if not finite.any():
        return ""
    with np.errstate(invalid="ignore"):
        diff = np.where(finite, np.abs(got - expected), 0.0)
        magnitude = np.where(finite, np.abs(expected), 0.0)
    largest = float(magnitude.max())
    worst = float(diff.max())
    tally.note(name, worst, worst / largest if largest > 0 else (0.0 if worst == 0 else np.inf))
    of_largest, of_value, floor = tolerance
    wrong = diff > of_largest * largest + of_value * magnitude + floor
    if not wrong.any():
        return ""
    return f"{_count_wrong(wrong, got, expected)}; largest difference {worst:.3g}, largest value {largest:.3g}"


def _compare_integers(
    name: str, got: Array, expected: Array, tally: _Tally, one_step: bool, index: IndexOf | None
) -> str:
    # Neither uint64 nor a difference of two int64 fits into int64.
    bigger, smaller = np.maximum(got, expected), np.minimum(got, expected)
    diff = bigger.astype(np.float64) - smaller.astype(np.float64)
    wrong = got != expected
    if one_step:
        wrong &= diff > 1
    if index is not None and wrong.any():
        wrong &= ~_points_at_equal(got, expected, index)
    if index is None:
        largest = float(np.abs(expected.astype(np.float64)).max())
        worst = float(diff.max())
        tally.note(name, worst, worst / largest if largest > 0 else worst)
    return _count_wrong(wrong, got, expected) if wrong.any() else ""


def _points_at_equal(got: Array, expected: Array, index: IndexOf) -> Array:
    """Where both positions hold the same value, within the tolerance of its type."""
    axis = index.axis % max(index.values.ndim, 1)
    size = index.values.shape[axis]
    mine, theirs = got.astype(np.int64), expected.astype(np.int64)
    if not index.keepdims:
        mine, theirs = np.expand_dims(mine, axis), np.expand_dims(theirs, axis)
    valid = (mine >= -size) & (mine < size)
    values = index.values.astype(np.float64)
    a = np.take_along_axis(values, np.where(valid, mine, 0), axis)
    b = np.take_along_axis(values, theirs, axis)
    of_largest, of_value = _TOLERANCE.get(dtype_of(index.values), (0.0, 0.0))
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        equal: Array = valid & ((a == b) | (np.abs(a - b) <= of_largest * largest + of_value * np.abs(b)))
    return equal if index.keepdims else np.squeeze(equal, axis)


def _count_wrong(wrong: Array, got: Array, expected: Array) -> str:
    if not wrong.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"[{', '.join(map(str, first))}]"
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, "
        f"first at {place}: {str(got[first])[:40]}, expected {str(expected[first])[:40]}"
    )
