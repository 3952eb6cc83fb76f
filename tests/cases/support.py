"""The hard cases of ``../shared/cases``: inputs, expected outputs, and how far from these a plan's may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

CASES_DIR: Final = Path(__file__).resolve().parents[3] / "shared" / "cases"
CASES: Final = tuple(sorted(path.stem for path in CASES_DIR.glob("*.onnx")))

# One step of a value that is rounded to 8 or 16 bits on the way: sums in another order may round the other way.
_ONE_STEP_OF_INT8 = ("dynamic_quant_matmulinteger", "qlinearconv_per_channel")
_ONE_STEP_OF_FLOAT16 = {("dtypes_mixed", "m16"), ("dtypes_mixed", "sq")}


def load_case(name: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Model file, feeds, expected outputs."""
    with np.load(CASES_DIR / f"{name}.npz") as feeds, np.load(CASES_DIR / f"{name}.expected.npz") as expected:
        return CASES_DIR / f"{name}.onnx", dict(feeds), dict(expected)


def assert_close(case: str, output: str, got: Any, expected: Any) -> None:
    """Within the tolerances that the cases' README states."""
    got = np.asarray(got)
    where = f"{case}:{output}"
    assert got.shape == expected.shape, where
    if expected.dtype.kind in "OUS":
        assert got.astype(str).tolist() == expected.astype(str).tolist(), where
    elif (case, output) in _ONE_STEP_OF_FLOAT16:
        step = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float64)
        assert (np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= step).all(), where
    elif expected.dtype.itemsize == 1 and expected.dtype.kind in "iu" and case in _ONE_STEP_OF_INT8:
        assert np.abs(got.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= 1, where
    elif expected.dtype.kind in "fc":
        np.testing.assert_allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=1e-4, equal_nan=True, err_msg=where
        )
    else:
        np.testing.assert_array_equal(got, expected, err_msg=where)
