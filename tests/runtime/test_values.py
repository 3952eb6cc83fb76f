"""Values that ONNX Runtime holds for us."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from planner.runtime.values import own, unwrap, wrap

TYPES = [
    np.float32, np.float16, np.int64, np.bool_, np.uint8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.int4, ml_dtypes.uint4,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, ml_dtypes.int2, ml_dtypes.uint2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 2), (7,)], ids=str)
def test_a_value_of_its_own_outlives_the_array(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 7).astype(dtype)
    expected = array.copy()
    value = own(array)
    array[...] = np.asarray(1).astype(dtype)
    back = unwrap(value)
    assert back.dtype == expected.dtype and back.shape == shape
    np.testing.assert_array_equal(back.astype(np.float64), expected.astype(np.float64))
    np.testing.assert_array_equal(unwrap(wrap(expected)).astype(np.float64), expected.astype(np.float64))


def test_a_type_that_onnx_runtime_lacks_is_its_own_error() -> None:
    with pytest.raises(RuntimeError):
        own(np.zeros(2, np.complex64))
