"""The independent plan checker finds what is wrong; a checker that never complains would pass every other test."""

from __future__ import annotations

from typing import Any

import pytest

from planner.graph.op_graph import OpGraph
from planner.plan.schema import Plan, Predictions
from planner.schedule.drafts import data_parallel_draft
from tests.plan.builders import make_plan
from tests.plan_checker import naive_step_ns, plan_problems
from tests.schedule.settings import plan_of, setting_of


@pytest.fixture(scope="module")
def sound() -> tuple[Plan, OpGraph]:
    setting = setting_of("cnn", "4-v100")
    draft = data_parallel_draft(setting)
    return plan_of(draft, setting), draft.workload.split.graph


def edited(plan: Plan, device: int, change: Any) -> Plan:
    """The plan with the segments of one device changed."""
    queues = list(plan.devices)
    queues[device] = queues[device].model_copy(update={"segments": tuple(change(list(queues[device].segments)))})
    return plan.model_copy(update={"devices": tuple(queues)})


def test_a_sound_plan_has_no_problem(sound: tuple[Plan, OpGraph]) -> None:
    assert plan_problems(*sound) == []


def test_missing_doubled_and_alien_tasks(sound: tuple[Plan, OpGraph]) -> None:
    plan, graph = sound
    last = plan.devices[1].segments[-1]

    def with_tasks(*tasks: str) -> Plan:
        return edited(plan, 1, lambda segments: [*segments[:-1], last.model_copy(update={"tasks": tasks})])

    assert any("in no segment" in line for line in plan_problems(with_tasks(*last.tasks[:-1]), graph))
    assert any("planned twice" in line for line in plan_problems(with_tasks(*last.tasks, last.tasks[0]), graph))
    assert any("no operator" in line for line in plan_problems(with_tasks(*last.tasks, "alien"), graph))


def test_a_wrong_order(sound: tuple[Plan, OpGraph]) -> None:
    plan, graph = sound
    first = plan.devices[2].segments[0]
    backwards = first.model_copy(update={"tasks": first.tasks[::-1]})
    found = plan_problems(edited(plan, 2, lambda segments: [backwards, *segments[1:]]), graph)
    assert any("runs before" in line for line in found)


def test_missing_doubled_needless_and_resized_transfers(sound: tuple[Plan, OpGraph]) -> None:
    plan, graph = sound
    first, *rest = plan.transfers

    def found(*transfers: Any) -> str:
        return "\n".join(plan_problems(plan.model_copy(update={"transfers": transfers}), graph))

    assert "read and not sent" in found(*rest)
    assert "sent twice" in found(first, first, *rest)
    assert "bytes, not" in found(first.model_copy(update={"nbytes": first.nbytes + 1}), *rest)
    needless = first.model_copy(update={"tensor": graph.ops[0].outputs[0]})
    assert "nobody reads" in found(first, needless, *rest)


def test_a_wrong_prediction_and_a_bound_above_it(sound: tuple[Plan, OpGraph]) -> None:
    plan, graph = sound
    for change in ({"step_ns": plan.predictions.step_ns + 1}, {"lower_bounds": {"split_ns": 10**15, "any_ns": 0}}):
        predictions = Predictions.model_validate({**plan.predictions.model_dump(), **change})
        assert plan_problems(plan.model_copy(update={"predictions": predictions}), graph) != []


def test_segments_that_are_not_convex_deadlock(sound: tuple[Plan, OpGraph]) -> None:
    plan, graph = sound
    # Everything of a device in one segment, though another device's result is needed half way.
    receiving = next(
        i for i, q in enumerate(plan.devices) for t in plan.transfers if t.dst in {s.id for s in q.segments}
    )
    sending = next(i for i, q in enumerate(plan.devices) if plan.transfers[0].src in {s.id for s in q.segments})
    task = plan.devices[receiving].segments[-1].tasks[-1]
    first = plan.devices[sending].segments[0]
    moved = edited(
        edited(
            plan,
            receiving,
            lambda segments: [
                *segments[:-1],
                segments[-1].model_copy(update={"tasks": segments[-1].tasks[:-1]}),
            ],
        ),
        sending,
        lambda segments: [first.model_copy(update={"tasks": (*first.tasks, task)}), *segments[1:]],
    )
    found = "\n".join(plan_problems(moved, graph))
    assert "deadlock" in found or "not sent" in found or "convex" in found


@pytest.mark.parametrize(
    ("transfers", "expected"),
    [
        ((), 300),
        ((("t", "a", "b", 50),), 100 + 10 + 50 + 300),
        ((("t", "a", "b", 50), ("u", "a", "b", 70)), 100 + 10 + 50 + 10 + 70 + 300),
        ((("t", "a", "b", 50), ("u", "b", "a", 70)), None),
    ],
)
def test_the_clock(transfers: Any, expected: int | None) -> None:
    plan = make_plan({"cpu:0": [("a", 100)], "cpu:1": [("b", 300)]}, transfers)
    assert naive_step_ns(plan) == expected


def test_transfers_of_one_channel_wait_for_each_other_and_shared_memory_does_not() -> None:
    queues = {"cpu:0": [("a", 100)], "cpu:1": [("b", 100)], "cpu:2": [("c", 1)]}
    transfers = [("t", "a", "c", 50), ("u", "b", "c", 50)]
    assert naive_step_ns(make_plan(queues, transfers)) == 100 + 60 + 1
    assert naive_step_ns(make_plan(queues, transfers, channel="bus")) == 100 + 120 + 1
    two = {"cpu:0": [("a", 100)], "cpu:1": [("b", 1)]}
    both = [("t", "a", "b", 50), ("u", "a", "b", 50)]
    assert naive_step_ns(make_plan(two, both, bytes_per_s=0)) == 100 + 10 + 1
