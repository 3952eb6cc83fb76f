from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from planner.launcher.verify import IndexOf, compare_outputs


def check(got, expected, **kwargs):
    return compare_outputs(["y"], [np.asarray(got)], [np.asarray(expected)], **kwargs)


@pytest.mark.parametrize(
    ("dtype", "small", "large"),
    [
        (np.float32, 0.9e-4, 2e-3),
        (np.float64, 0.9e-6, 2e-5),
        (np.float16, 0.003, 0.02),
        (ml_dtypes.bfloat16, 0.02, 0.2),
    ],
)
def test_floats_differ_within_their_types_tolerance(dtype, small, large) -> None:
    expected = np.array([0.0, 0.5, -1.0])
    assert check((expected + small).astype(dtype), expected.astype(dtype)).verified
    result = check((expected + large).astype(dtype), expected.astype(dtype))
    assert not result.verified
    assert result.failures[0].startswith("y: 3 of 3 elements differ, first at [0]")
    assert result.worst == "y"
    assert result.max_abs_diff == pytest.approx(large, rel=0.1)
    assert result.max_rel_diff == pytest.approx(large, rel=0.1)


SMALL_FLOATS = [
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda t: t.__name__)
def test_no_tolerance_is_so_wide_that_swapped_elements_pass(dtype) -> None:
    expected = np.array([1.0, 2.0, 4.0]).astype(dtype)
    assert check(expected, expected).verified
    assert not check(expected[::-1].copy(), expected).verified


def test_tolerance_follows_the_outputs_magnitude() -> None:
    expected = np.array([1000.0, 0.0], np.float32)
    assert check(expected + np.float32(0.05), expected).verified
    assert not check(np.array([1000.0, 0.5], np.float32), expected).verified
    assert not check(np.array([1e-6], np.float32), np.array([0.0], np.float32)).verified


def test_nan_and_infinity_stay_in_place() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert check(special.copy(), special).verified
    for position, value in ((0, 1.0), (1, -np.inf), (1, np.nan), (3, np.nan), (3, np.inf)):
        changed = special.copy()
        changed[position] = value
        assert not check(changed, special).verified, (position, value)


def test_shape_and_type_must_match() -> None:
    one = np.ones((2, 3), np.float32)
    assert "shape [3, 2], expected [2, 3]" in check(one.reshape(3, 2), one).failures[0]
    assert "type float64, expected float32" in check(one.astype(np.float64), one).failures[0]
    assert check(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).verified


def test_integers_are_exact_unless_quantised_to_8_bits() -> None:
    base = np.array([1, 2, 3])
    for dtype, quantised, step, fine in (
        (np.int64, True, 1, False),
        (np.uint8, False, 1, False),
        (np.uint8, True, 1, True),
        (np.int8, True, 2, False),
    ):
        assert check((base + step).astype(dtype), base.astype(dtype), quantised=quantised).verified is fine
    big = np.array([2**63 + 5], np.uint64)
    assert check(big.copy(), big).verified and not check(big + np.uint64(1), big).verified


def test_strings_and_bools_are_exact() -> None:
    assert check(np.array(["a", "b"], object), np.array(["a", "b"], object)).verified
    result = check(np.array(["a", "c"], object), np.array(["a", "b"], object))
    assert result.failures == ("y: 1 of 2 elements differ, first at [1]: c, expected b",)
    assert not check(np.array([True]), np.array([False])).verified


def test_positions_of_equal_values_may_swap() -> None:
    values = np.array([[0.5, 0.9, 0.9, 0.1]], np.float32)
    topk = IndexOf(values, -1)
    assert check([[2, 1]], [[1, 2]], indices={"y": topk}).verified
    assert not check([[2, 1]], [[1, 2]]).verified
    assert not check([[1, 3]], [[1, 2]], indices={"y": topk}).verified
    assert not check([[1, 77]], [[1, 2]], indices={"y": topk}).verified
    assert check([2], [1], indices={"y": IndexOf(values, 1, keepdims=False)}).verified
    assert not check([0], [1], indices={"y": IndexOf(values, 1, keepdims=False)}).verified


def test_sequences_are_compared_element_by_element() -> None:
    one = [np.ones(2, np.float32), np.ones(3, np.float32)]
    assert compare_outputs(["s"], [one], [one]).verified
    assert not compare_outputs(["s"], [one[:1]], [one]).verified
    assert "s[1]" in compare_outputs(["s"], [[one[0], one[1] + 1]], [one]).failures[0]


def test_merging_keeps_the_worst() -> None:
    good = check(np.float32([1]), np.float32([1]))
    bad = compare_outputs(["z"], [np.float32([2])], [np.float32([1])])
    merged = good.merged(bad)
    assert not merged.verified and merged.worst == "z" and merged.max_abs_diff == 1.0
    assert merged.failures == bad.failures


def test_small_values_of_a_sigmoid_have_few_digits() -> None:
    expected = np.array([2e-4, 5.96e-8], np.float32)
    near = np.array([2e-4, 2.4e-7], np.float32)
    assert not check(near, expected).verified
    assert check(near, expected, sigmoids={"y"}).verified
    assert not check(near, expected, sigmoids={"z"}).verified
    assert not check(np.array([2e-4, 2e-6], np.float32), expected, sigmoids={"y"}).verified
