"""Segments as models: each reads and makes what it says, and together they compute what the model does."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from planner.errors import PlanError
from planner.model.load import load_model
from planner.model.types import LoadedModel
from planner.partition.coverage import coverage_violations
from planner.partition.free import task_ops
from planner.partition.handovers import transfer_violations
from planner.partition.segments import (
    SegmentSpec,
    load_plan_model,
    partition,
    partition_plan,
    plan_splits,
)
from planner.partition.split_graph import SplitGraph, build_split_graph
from planner.partition.types import PartitionedModel
from planner.plan.schema import DeviceQueue, Plan
from tests.cases.support import CASES_DIR
from tests.models import random_inputs, run_model, save, tiny_cnn
from tests.partition.support import apart, loaded
from tests.scatter import random_splits, scattered_plan


def cut_evenly(split: SplitGraph, count: int, devices: int) -> list[SegmentSpec]:
    """Segments of about equal numbers of tasks, in the graph's order, on devices in turns."""
    tasks = [op.name for op in task_ops(split.graph)]
    size = -(-len(tasks) // count)
    parts = [tuple(tasks[i : i + size]) for i in range(0, len(tasks), size)]
    return [SegmentSpec(f"s{i}", f"cpu:{i % devices}", part) for i, part in enumerate(parts)]


def run_segments(model: PartitionedModel, feeds: dict[str, Any]) -> dict[str, Any]:
    values = dict(feeds)
    for segment in model.segments:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        arrays = {name: np.ascontiguousarray(weight.load()) for name, weight in segment.weights.items()}
        options.add_external_initializers(list(arrays), [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays.values()])
        session = ort.InferenceSession(segment.model, options, providers=["CPUExecutionProvider"])
        assert [info.name for info in segment.outputs] == [out.name for out in session.get_outputs()]
        made = session.run(None, {info.name: values[info.name] for info in segment.inputs})
        values.update(zip((info.name for info in segment.outputs), made, strict=True))
    values.update({name: weight.load() for name, weight in model.constants.items()})
    values.update({name: values[source] for name, source in model.direct.items()})
    return {info.name: values[info.name] for info in model.outputs}


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_transformer", "tiny_lstm", "nasnet_cell_like", "mix-1", "mix-2"])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_segments_in_their_order_give_the_models_outputs(name: str, count: int) -> None:
    model, feeds, expected = loaded(name)
    split = build_split_graph(model, random_splits(model, random.Random(1), 3, 0.4))
    parts = partition(model, split, cut_evenly(split, count, 2))
    outputs = run_segments(parts, feeds)
    assert [info.name for info in parts.outputs] == list(model.graph.outputs)
    for got, want in zip(outputs.values(), expected, strict=True):
        assert apart(got, want) <= 1


def test_only_what_others_read_leaves_a_segment() -> None:
    model, _, _ = loaded("tiny_cnn")
    split = build_split_graph(model, ())
    parts = partition(model, split, cut_evenly(split, 3, 2))
    readers = {info.name for segment in parts.segments for info in segment.inputs}
    for segment in parts.segments:
        for info in segment.outputs:
            assert info.name in readers or info.name in model.graph.outputs


def test_a_sequence_cannot_leave_its_segment(shared_dir: Path) -> None:
    model = load_model(CASES_DIR / "sequence_split_concat.onnx")
    split = build_split_graph(model, ())
    with pytest.raises(PlanError, match="crosses segments"):
        partition(model, split, cut_evenly(split, 1000, 2))


def test_segments_that_wait_for_each_other_are_refused() -> None:
    model, split = chain_of_four()
    a, b, c, d = (op.name for op in task_ops(split.graph))
    with pytest.raises(PlanError, match="wait for each other"):
        partition(model, split, [SegmentSpec("s0", "cpu:0", (a, c)), SegmentSpec("s1", "cpu:1", (b, d))])


def test_a_queue_in_the_wrong_order_is_refused() -> None:
    model, split = chain_of_four()
    a, b, c, d = (op.name for op in task_ops(split.graph))
    with pytest.raises(PlanError, match="wait for each other"):
        partition(model, split, [SegmentSpec("s0", "cpu:0", (c, d)), SegmentSpec("s1", "cpu:0", (a, b))])


def chain_of_four() -> tuple[LoadedModel, SplitGraph]:
    import tempfile

    from tests.models.small import GraphBuilder

    g = GraphBuilder(0)
    y = g.node("Tanh", [g.node("Exp", [g.node("Neg", [g.node("Relu", ["x"])])])])
    with tempfile.TemporaryDirectory() as folder:
        model = load_model(save(g.model({"x": (4, 6)}, {y: (4, 6)}), Path(folder)))
    return model, build_split_graph(model, ())


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Plan, Path]:
    path = save(tiny_cnn(), tmp_path)
    return scattered_plan(path, num_devices=2, seed=4), path


def test_a_plan_is_rebuilt_from_its_file_alone(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    feeds = random_inputs(tiny_cnn(), 1)
    parts = partition_plan(plan, path.parent)
    (expected,) = run_model(path, feeds)
    assert apart(run_segments(parts, feeds)["y"], expected) <= 1


def test_a_sound_plan_covers_its_model(planned: tuple[Plan, Path]) -> None:
    assert found_in(*planned) == []


def test_a_changed_model_is_noticed(planned: tuple[Plan, Path], tmp_path: Path) -> None:
    plan, path = planned
    save(tiny_cnn(channels=12), tmp_path)
    with pytest.raises(PlanError, match="changed since the plan"):
        partition_plan(plan, path.parent)


def test_a_missing_task_is_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    gone = plan.devices[0].segments[0].tasks[0]
    assert any(gone in line and "in no segment" in line for line in found_in(without(plan, gone), path))


def test_a_task_that_is_not_the_models_is_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    assert any("'alien'" in line for line in found_in(with_tasks(plan, lambda tasks: (*tasks, "alien")), path))


def test_a_task_listed_twice_is_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    task = plan.devices[0].segments[0].tasks[0]
    doubled = with_tasks(plan, lambda tasks: (*tasks, task))
    assert any(repr(task) in line and "also in segment" in line for line in found_in(doubled, path))


def test_tasks_in_the_wrong_order_are_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    backwards = plan.model_copy(
        update={
            "devices": tuple(
                DeviceQueue(
                    device=queue.device,
                    segments=tuple(s.model_copy(update={"tasks": s.tasks[::-1]}) for s in queue.segments[::-1]),
                )
                for queue in plan.devices
            )
        }
    )
    assert any("stands before" in line for line in found_in(backwards, path))


def test_an_input_that_the_plan_lacks_is_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    assert found_in(plan.model_copy(update={"inputs": {}}), path) == ["inputs: the model's input 'x' is missing"]


def test_a_transfer_that_is_missing_is_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    first, *others = plan.transfers
    (found,) = found_in(plan.model_copy(update={"transfers": tuple(others)}), path)
    assert all(word in found for word in (repr(first.tensor), repr(first.src), repr(first.dst), "is missing"))
    # It can be run all the same.
    partition_plan(plan.model_copy(update={"transfers": ()}), path.parent)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda one: {"src": one.dst, "dst": one.src}, "makes it"),
        (lambda one: {"tensor": "alien"}, "no task makes such a tensor"),
    ],
)
def test_a_transfer_of_something_else_is_named(planned: tuple[Plan, Path], change: Any, expected: str) -> None:
    plan, path = planned
    first, *others = plan.transfers
    wrong = first.model_copy(update=change(first))
    found = found_in(plan.model_copy(update={"transfers": (wrong, *others)}), path)
    assert len(found) == 2 and expected in found[0] and "is missing" in found[1], found


def test_a_transfer_that_nothing_needs_is_named(planned: tuple[Plan, Path]) -> None:
    plan, path = planned
    here, there = (queue.segments[-1].id for queue in plan.devices)
    extra = plan.transfers[0].model_copy(update={"tensor": "y"})
    found = []
    for src, dst in ((here, there), (there, here)):
        sent = extra.model_copy(update={"src": src, "dst": dst})
        found += found_in(plan.model_copy(update={"transfers": (*plan.transfers, sent)}), path)
    # One of the two makes the output, which no other task reads.
    assert sorted("needs it" in line for line in found) == [False, True], found


def found_in(plan: Plan, path: Path) -> list[str]:
    model = load_plan_model(plan, path)
    split = build_split_graph(model, plan_splits(plan))
    return coverage_violations(plan, model, split) or transfer_violations(plan, split.graph)


def without(plan: Plan, task: str) -> Plan:
    return with_tasks(plan, lambda tasks: tuple(name for name in tasks if name != task))


def with_tasks(plan: Plan, change: Any) -> Plan:
    """The plan with the tasks of the first device's first segment changed."""
    first, *others = plan.devices
    segment, *rest = first.segments
    changed = segment.model_copy(update={"tasks": change(segment.tasks)})
    queue = first.model_copy(update={"segments": (changed, *rest)})
    return plan.model_copy(update={"devices": (queue, *others)})
