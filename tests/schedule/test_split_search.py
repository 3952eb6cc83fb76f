"""Searching splits: what a plan says it gained is in it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from planner.schedule.auto_drafts import auto_draft
from planner.schedule.drafts import Draft, Setting
from planner.schedule.fd_dps import fd_dps_draft
from planner.schedule.split_search import _gain
from planner.split.types import SplitSpec
from tests.schedule.settings import MODELS, setting_of

_GAIN = re.compile(r"the split that gained most, [^:]+: (?P<op>\S+)(?: and (?P<more>\d+) more)? by (?P<axes>.+)\Z")


@pytest.mark.parametrize("make", [auto_draft, fd_dps_draft])
@pytest.mark.parametrize("model", MODELS)
def test_the_gain_that_a_plan_names_is_in_its_splits(model: str, make: Callable[[Setting], Draft]) -> None:
    draft = make(setting_of(model, "3-cpus", "normal"))
    splits = {spec.op: spec.axis for spec in draft.workload.splits}
    if not draft.gain or draft.gain.endswith("left whole"):
        return
    found = _GAIN.match(draft.gain)
    assert found is not None, draft.gain
    axes = found["axes"].split(", ")
    assert splits[found["op"]] == axes[0]
    assert set(axes) <= set(splits.values())
    assert int(found["more"] or 0) < len(splits)


def test_a_gain_that_was_undone_does_not_last() -> None:
    batch, rows, other = SplitSpec("a", "batch", (1, 1)), SplitSpec("a", "rows", (1, 1)), SplitSpec("b", "rows", (1, 1))
    gain = _gain(5, [], [batch])
    assert gain.text == "a by batch" and gain.lasts([batch, other])
    assert not gain.lasts([rows, other]) and not gain.lasts([])
    whole = _gain(5, [batch, other], [other])
    assert whole.text == "1 operators left whole" and whole.lasts([other]) and not whole.lasts([rows, other])
