"""By how much a plan must be faster to be chosen: a nanosecond inside and outside each margin."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.choice import _best, _kept
from planner.cluster.types import Cluster
from planner.plan.schema import CostProvenance, Plan
from planner.request import Request
from planner.schedule.drafts import SHORT_NS
from planner.schedule.from_plan import NAME
from tests.plan.builders import make_plan, make_predictions

# All steps below are exact multiples of a thousandth, so that a margin ends at a whole nanosecond.
LONG_NS = 100_000_000
BRIEF_NS = 10_000_000


def plan_by(planner: str, step_ns: int, *, measured: int = 3, estimated: int = 0) -> Plan:
    costs = CostProvenance(measured=measured, estimated=estimated)
    return make_plan(planner=planner, predictions=make_predictions(step_ns=step_ns), costs=costs)


@pytest.mark.parametrize("rival", ["one-device", "all-cores", "data-parallel"])
@pytest.mark.parametrize(
    ("step_ns", "permille", "seen", "estimated"),
    [
        (LONG_NS, 100, ("rival", "auto"), 0),
        (LONG_NS, 100, ("rival", "auto"), 2),
        (SHORT_NS, 100, ("rival", "auto"), 0),
        (SHORT_NS - 1000, 120, ("rival", "auto"), 0),
        (BRIEF_NS, 120, ("rival", "auto"), 0),
        (BRIEF_NS, 120, ("rival", "auto"), 2),
        (LONG_NS, 250, ("rival",), 2),
        (BRIEF_NS, 250, (), 2),
        (LONG_NS, 20, ("rival",), 0),
        (BRIEF_NS, 20, (), 0),
    ],
)
def test_pieces_win_by_more_than_the_margin_only(
    rival: str, step_ns: int, permille: int, seen: tuple[str, ...], estimated: int
) -> None:
    ran = [rival if name == "rival" else name for name in seen]
    simple = plan_by(rival, step_ns)
    edge = step_ns * (1000 - permille) // 1000
    inside, outside = (plan_by("auto", ns, estimated=estimated) for ns in (edge, edge - 1))
    assert _best([simple, inside], ran) is simple
    assert _best([simple, outside], ran) is outside


def test_where_the_simple_choice_is_estimated_too_pieces_are_no_guess() -> None:
    simple = plan_by("one-device", LONG_NS, estimated=1)
    edge = LONG_NS * 980 // 1000
    inside, outside = (plan_by("auto", ns, estimated=2) for ns in (edge, edge - 1))
    assert _best([simple, inside], []) is simple
    assert _best([simple, outside], []) is outside


def test_a_simple_choice_that_is_guessed_must_beat_what_was_measured_by_far() -> None:
    one = plan_by("one-device", LONG_NS)
    edge = LONG_NS * 750 // 1000
    inside, outside = (plan_by("all-cores", ns, measured=0, estimated=3) for ns in (edge, edge - 1))
    assert _best([one, inside], []) is one
    assert _best([one, outside], []) is outside
    # Neither was measured, or both ran as they are: then whatever is faster wins.
    assert _best([plan_by("one-device", LONG_NS, measured=0, estimated=3), inside], []) is inside
    assert _best([one, inside], ("one-device", "all-cores")) is inside


def test_a_guess_that_misses_its_margin_does_not_hide_what_was_seen_to_be_fast() -> None:
    one = plan_by("one-device", LONG_NS)
    guess = plan_by("auto", LONG_NS * 800 // 1000, estimated=2)
    ran = plan_by("heft", LONG_NS * 850 // 1000)
    assert _best([one, guess, ran], ("one-device", "heft")) is ran
    assert _best([one, guess], ("one-device",)) is one


def test_by_data_sheets_alone_whatever_is_faster_wins() -> None:
    simple, equal, faster = (
        plan_by(planner, ns, measured=0, estimated=3)
        for planner, ns in (("one-device", LONG_NS), ("auto", LONG_NS), ("auto", LONG_NS - 1))
    )
    assert _best([simple, equal], []) is simple
    assert _best([simple, faster], []) is faster


@pytest.mark.parametrize("rival", ["all-cores", "data-parallel"])
@pytest.mark.parametrize(
    ("step_ns", "permille", "seen"),
    [
        (BRIEF_NS, 30, ("one-device", "rival")),
        (SHORT_NS - 1000, 30, ("one-device", "rival")),
        (SHORT_NS, 0, ("one-device", "rival")),
        (LONG_NS, 0, ("one-device", "rival")),
        (BRIEF_NS, 0, ("one-device",)),
        (BRIEF_NS, 0, ("rival",)),
    ],
)
def test_more_than_one_device_must_be_clearly_faster_where_steps_are_short(
    rival: str, step_ns: int, permille: int, seen: tuple[str, ...]
) -> None:
    ran = [rival if name == "rival" else name for name in seen]
    one = plan_by("one-device", step_ns)
    edge = step_ns * (1000 - permille) // 1000
    inside, outside = (plan_by(rival, ns) for ns in (edge, edge - 1))
    assert _best([one, inside], ran) is one
    assert _best([one, outside], ran) is outside


def test_pieces_must_beat_the_fastest_simple_choice_even_if_one_device_is_preferred_to_it() -> None:
    one, every = plan_by("one-device", BRIEF_NS), plan_by("all-cores", BRIEF_NS * 980 // 1000)
    ran = ["one-device", "all-cores", "auto"]
    edge = BRIEF_NS * 980 // 1000 * 880 // 1000
    assert _best([one, every, plan_by("auto", edge)], ran) is one
    assert _best([one, every, plan_by("auto", edge - 1)], ran).planner == "auto"


def test_a_plan_that_was_started_from_is_kept_unless_another_is_a_hundredth_faster() -> None:
    before = plan_by(NAME, LONG_NS)
    edge = LONG_NS * 990 // 1000
    inside, outside = plan_by("auto", edge), plan_by("auto", edge - 1)
    asked = Request(Path("model.onnx"), Cluster((), ()), start=before)
    assert _kept(asked, [before, inside], inside) is before
    assert _kept(asked, [before, outside], outside) is outside
    assert _kept(Request(Path("model.onnx"), Cluster((), ())), [inside], inside) is inside
