from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plan.diff import diff_lines, diff_plans, same_decisions, slowdown
from planner.plan.schema import CostProvenance, DeviceQueue, ModelRef, Plan, Segment, Split, Tool, TransferSpec
from tests.plan.builders import make_device, make_plan, make_predictions


def placed(*queues: list[list[str]], transfers: tuple[tuple[str, str, str], ...] = (), prefix: str = "s") -> Plan:
    """A plan of two devices from segments given as lists of tasks; segment ids are ``<prefix><device>.<place>``."""
    devices = tuple(
        DeviceQueue(
            device=f"cpu:{d}",
            segments=tuple(
                Segment(id=f"{prefix}{d}.{i}", compute_ns=5, tasks=tuple(tasks)) for i, tasks in enumerate(segments)
            ),
        )
        for d, segments in enumerate(queues)
    )
    sent = tuple(TransferSpec(tensor=t, src=prefix + src, dst=prefix + dst, nbytes=1) for t, src, dst in transfers)
    return make_plan(devices=[make_device("cpu:0"), make_device("cpu:1")]).model_copy(
        update={"devices": devices, "transfers": sent}
    )


BASE = placed([["a", "b"], ["c"]], [["d"]], transfers=(("t", "0.0", "1.0"),))


def test_a_plan_is_the_same_as_itself() -> None:
    diff = diff_plans(BASE, BASE)
    assert diff.same_decisions
    assert diff_lines(diff)[-1] == "the decisions are the same"


@pytest.mark.parametrize(
    "update",
    [
        {"tool": Tool(version="9")},
        {"command": "fddps plan --effort quick"},
        {"costs": CostProvenance(measured=99, profiles={"a": "b"}, onnxruntime="2")},
        {"why": "other", "notes": ("x",)},
        {"predictions": make_predictions(step_ns=5)},
        {
            "cluster": BASE.cluster.model_copy(
                update={"devices": (make_device("cpu:0", uuid="U"), make_device("cpu:1"))}
            )
        },
        {"model": ModelRef(path="elsewhere.onnx", digest="sha256:0", simplification=1, file_sha256="1")},
    ],
)
def test_provenance_and_predictions_are_no_decisions(update: dict[str, Any]) -> None:
    assert same_decisions(BASE, BASE.model_copy(update=update))


def test_segment_ids_are_labels() -> None:
    renamed = placed([["a", "b"], ["c"]], [["d"]], transfers=(("t", "0.0", "1.0"),), prefix="other")
    assert same_decisions(BASE, renamed)


@pytest.mark.parametrize(
    "update",
    [
        {"splits": ()},
        {"splits": (Split(op="conv", axis="batch", sizes=(1, 3)),)},
        {"transfers": ()},
        {"inputs": {}},
        {"model": ModelRef(path="model.onnx", digest="sha256:1", simplification=1)},
        {"model": ModelRef(path="model.onnx", digest="sha256:0", simplification=1, batch=8)},
        {"cluster": BASE.cluster.model_copy(update={"devices": (make_device("cpu:0"),)})},
        {"cluster": BASE.cluster.model_copy(update={"links": ()})},
    ],
)
def test_every_decision_counts(update: dict[str, Any]) -> None:
    changed = BASE.model_copy(update=update)
    assert not same_decisions(BASE, changed)
    assert len(diff_lines(diff_plans(BASE, changed))) > 1


def test_moved_tasks_are_named_with_their_devices() -> None:
    diff = diff_plans(BASE, placed([["a", "b"]], [["d"], ["c"]], transfers=(("t", "0.0", "1.0"),)))
    assert [(c.name, c.before, c.after) for c in diff.moved] == [("c", "cpu:0", "cpu:1")]
    assert "  c: cpu:0 -> cpu:1" in diff_lines(diff)


def test_new_and_gone_tasks_are_moved_from_and_to_none() -> None:
    diff = diff_plans(placed([["a"]], [["b"]]), placed([["a"]], [["c"]]))
    assert [(c.name, c.before, c.after) for c in diff.moved] == [("b", "cpu:1", ""), ("c", "", "cpu:1")]
    lines = diff_lines(diff)
    assert "  b: cpu:1 -> none" in lines and "tasks of one plan only: 2 changed" in lines
    assert not any("moved" in line for line in lines)


def test_order_and_cuts_are_told_apart() -> None:
    reordered = diff_plans(BASE, placed([["b", "a"], ["c"]], [["d"]], transfers=(("t", "0.0", "1.0"),)))
    assert (reordered.reordered, reordered.recut, reordered.moved) == (("cpu:0",), (), ())
    assert diff_lines(reordered)[1:] == ["order changed on: cpu:0"]
    recut = diff_plans(BASE, placed([["a"], ["b", "c"]], [["d"]], transfers=(("t", "0.0", "1.0"),)))
    assert (recut.reordered, recut.recut, recut.moved) == ((), ("cpu:0",), ())


def test_a_transfer_from_another_segment_of_the_device_counts() -> None:
    assert diff_plans(BASE, placed([["a", "b"], ["c"]], [["d"]], transfers=(("t", "0.1", "1.0"),))).transfers == 2


def test_a_cut_does_not_change_every_transfer_behind_it() -> None:
    sent = (("t", "0.1", "1.0"),)
    diff = diff_plans(
        placed([["a", "b"], ["c"]], [["d"]], transfers=sent),
        placed([["a"], ["b"], ["c"]], [["d"]], transfers=(("t", "0.2", "1.0"),)),
    )
    assert (diff.recut, diff.transfers) == (("cpu:0",), 0)


def test_the_order_of_two_splits_of_one_operator_counts() -> None:
    splits = (Split(op="c", axis="batch", sizes=(1, 1)), Split(op="c", axis="out_channel", sizes=(1, 1)))
    before, after = make_plan(splits=splits), make_plan(splits=splits[::-1])
    assert not same_decisions(before, after)


def test_long_differences_are_cut_and_counted() -> None:
    names = [f"t{i}" for i in range(50)]
    lines = diff_lines(diff_plans(placed([names], []), placed([], [names])), limit=3)
    assert "tasks moved: 50 changed" in lines
    assert "  ... and 47 more" in lines
    assert len(lines) < 10


def test_names_cannot_write_to_the_terminal() -> None:
    lines = diff_lines(diff_plans(placed([["\x1b[2J\n"]], []), placed([], [["\x1b[2J\n"]])))
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(100, 102, 0.02), (100, 50, -0.5), (7, 7, 0.0), (0, 0, 0.0), (0, 1, math.inf)]
)
def test_slowdown_is_relative_to_the_first_plan(before: int, after: int, expected: float) -> None:
    plans = [make_plan(predictions=make_predictions(step_ns=ns)) for ns in (before, after)]
    assert slowdown(*plans) == pytest.approx(expected)


orders = st.permutations(["a", "b", "c", "d", "e"])


@given(orders, st.integers(0, 5), orders, st.integers(0, 5))
def test_no_difference_is_missed_or_made_up(one: list[str], cut: int, two: list[str], other_cut: int) -> None:
    before = placed([[task] for task in one[:cut]], [[task] for task in one[cut:]])
    after = placed([[task] for task in two[:other_cut]], [[task] for task in two[other_cut:]])
    diff = diff_plans(before, after)
    assert diff.same_decisions == (one == two and cut == other_cut)
    assert {c.name for c in diff.moved} == {t for t in "abcde" if (t in one[:cut]) != (t in two[:other_cut])}
    back = diff_plans(after, before)
    assert {(c.name, c.after, c.before) for c in back.moved} == {(c.name, c.before, c.after) for c in diff.moved}
