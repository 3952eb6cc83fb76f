"""What ``fddps apply`` says when the outputs are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cli.apply import _failure
from planner.launcher.apply import ApplyResult, StepTimeline
from planner.launcher.verify import Comparison, compare_outputs

SOUND = ApplyResult(False, 0.0, 0.0, 0.0, 0.0, None, (), (), None, {}, (), StepTimeline((), ()))


def message(comparison: Comparison) -> str:
    return str(_failure(replace(SOUND, comparison=comparison)))


def test_the_worst_of_several_failures_is_named() -> None:
    ones = np.ones(3, np.float32)
    text = message(compare_outputs(["a", "ab"], [ones * 1.1, ones * 9], [ones, ones]))
    assert text.startswith("tensor 'ab': ")
    assert "(and 1 more tensors): ab: 3 of 3" in text


def test_an_allowed_difference_is_not_blamed_for_a_wrong_bool() -> None:
    ones = np.ones(3, np.float32)
    comparison = compare_outputs(["logits", "mask"], [ones * 1.00001, ones > 2], [ones, ones > 0])
    assert comparison.worst == "logits"
    text = message(comparison)
    assert "mask: 3 of 3 elements differ" in text
    assert "logits" not in text
