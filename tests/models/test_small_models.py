"""The purpose-made models run, tell inputs apart, and are the same on every call."""

from __future__ import annotations

import pytest

from tests.models import SMALL_MODELS, random_inputs, run_model, tolerances_apart


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_outputs_depend_on_the_input(name: str) -> None:
    model = SMALL_MODELS[name]()
    first = run_model(model, random_inputs(model, 1))
    second = run_model(model, random_inputs(model, 2))
    assert all(tolerances_apart(a, b) > 100 for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_rounding_stays_far_below_the_tolerance(name: str) -> None:
    model = SMALL_MODELS[name]()
    feeds = random_inputs(model, 1)
    plain, optimised = run_model(model, feeds, optimised=False), run_model(model, feeds)
    assert all(tolerances_apart(a, b) < 0.1 for a, b in zip(plain, optimised, strict=True))


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_same_seed_same_model(name: str) -> None:
    assert SMALL_MODELS[name]().SerializeToString() == SMALL_MODELS[name]().SerializeToString()
