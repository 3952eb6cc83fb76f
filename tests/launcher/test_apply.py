from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.cluster.cpu import usable_cores
from planner.errors import ExecutionError, PlanError, UsageError
from planner.launcher import apply
from planner.launcher.apply import ApplyOptions, run_plan
from planner.launcher.check import Checker, sigmoid_values
from planner.launcher.planned_session import PlannedSession
from planner.launcher.unsplit import UnsplitSession
from planner.model.load import load_model
from planner.partition.free import task_ops
from planner.plan.files import write_plan
from planner.plan.schema import (
    ClusterSpec,
    CostProvenance,
    DeviceQueue,
    DeviceSpec,
    InputSpec,
    LowerBounds,
    ModelRef,
    Plan,
    Predictions,
    Segment,
    Tool,
)
from planner.runtime.feeds import random_feeds
from tests.launcher.helpers import node


def save(tmp_path: Path, nodes, inputs, outputs, weights=()) -> Path:
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def perceptron(tmp_path: Path, scale: float = 1.0) -> Path:
    """Two layers, the second with batch-normalised weights big enough to stay outside the segment models."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.standard_normal((64, 256)).astype(np.float32) * np.float32(scale),
        "w2": rng.standard_normal((256, 128)).astype(np.float32),
    }
    nodes = [
        node("MatMul", ["x", "w1"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "w2"], ["c"]),
        node("ArgMax", ["c"], ["top"], axis=1, keepdims=0),
    ]
    value = helper.make_tensor_value_info
    return save(
        tmp_path,
        nodes,
        [value("x", TensorProto.FLOAT, [2, 64]), value("unused", TensorProto.FLOAT, [1])],
        [value("c", TensorProto.FLOAT, [2, 128]), value("top", TensorProto.INT64, [2])],
        weights,
    )


def make_plan(path: Path, devices: int = 2, type_: str = "cpu") -> Plan:
    """One segment a task, devices taking turns."""
    model = load_model(path)
    cores = usable_cores()
    specs = tuple(
        DeviceSpec(
            name=f"{type_}:{i}",
            kind="k",
            type=type_,
            memory_bytes=1 << 30,
            cores=(cores[i % len(cores)],) if type_ == "cpu" else (),
            shared=devices > len(cores),
        )
        for i in range(devices)
    )
    queues = [[] for _ in specs]
    for position, op in enumerate(task_ops(model.graph)):
        queues[position % devices].append(Segment(id=f"s{position}", compute_ns=1, tasks=(op.name,)))
    tensors = model.graph.tensors
    return Plan(
        tool=Tool(version="0"),
        command="fddps plan",
        planner="heft",
        why="a test",
        model=ModelRef(path=path.name, digest=model.digest, simplification=1),
        inputs={n: InputSpec(dtype=tensors[n].dtype, shape=tensors[n].dims) for n in model.graph.inputs},
        cluster=ClusterSpec(nodes=("node0",), devices=specs, links=()),
        costs=CostProvenance(),
        splits=(),
        devices=tuple(
            DeviceQueue(device=s.name, segments=tuple(segments)) for s, segments in zip(specs, queues, strict=True)
        ),
        transfers=(),
        predictions=Predictions(
            step_ns=5_000_000,
            transfer_ns=0,
            transfer_bytes=0,
            devices=(),
            critical_path=(),
            lower_bounds=LowerBounds(split_ns=0, any_ns=0),
            candidates=(),
        ),
    )


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    write_plan(make_plan(perceptron(tmp_path)), path)
    return path


QUICK = {"warmup": 1, "repeat": 3}


def test_a_plan_is_run_measured_and_verified(plan_path: Path) -> None:
    result = run_plan(plan_path, ApplyOptions(verify=True, **QUICK))
    assert result.verified and result.comparison is not None and result.comparison.failures == ()
    assert set(result.outputs) == {"c", "top"} and result.outputs["c"].shape == (2, 128)
    assert result.step_s > 0 and result.one_device_step_s is not None and result.one_device_step_s > 0
    assert result.predicted_step_s == 0.005
    assert [s.segment for s in result.segments] == ["s0", "s1", "s2", "s3"]
    assert [d.name for d in result.devices] == ["cpu:0", "cpu:1"]
    # Each weight is 64 or 128 KiB, and no value is larger than 2 KiB; both matrix products run on the first device.
    assert 192 * 1024 <= result.devices[0].peak_bytes < 200 * 1024
    assert 0 < result.devices[1].peak_bytes < 8 * 1024
    assert sum(s.median_s for s in result.segments if s.device == "cpu:0") <= 3 * result.devices[0].busy_s
    assert {"verified", "step_s", "one_device_step_s", "devices", "segments"} <= set(result.as_json())


def test_without_verify_nothing_is_claimed(plan_path: Path) -> None:
    result = run_plan(plan_path, ApplyOptions(**QUICK))
    assert result.verified is None and result.max_abs_diff is None and result.one_device_step_s is None


def test_a_deep_verification_compares_what_crosses_segments(plan_path: Path) -> None:
    result = run_plan(plan_path, ApplyOptions(verify_deep=True, **QUICK))
    assert result.verified and result.comparison is not None
    assert result.comparison.compared == 4


def test_a_wrong_result_is_found(plan_path: Path, tmp_path: Path) -> None:
    with PlannedSession(plan_path) as session:
        other = tmp_path / "other"
        other.mkdir()
        # The digest does not cover weights' contents: the same plan opens a model with other numbers.
        session.model_path = perceptron(other, scale=1.01)
        result = Checker(session, deep=True).compare(random_feeds(session.inputs, 0))
    assert not result.verified
    assert result.failures[0].startswith("c: ") and any(line.startswith("a") for line in result.failures)
    assert result.max_rel_diff == pytest.approx(0.01, rel=0.2)


def test_own_inputs_are_used(plan_path: Path) -> None:
    feed = np.full((2, 64), 0.25, np.float32)
    result = run_plan(plan_path, ApplyOptions(verify=True, **QUICK), feeds={"x": feed})
    assert result.verified
    again = run_plan(plan_path, ApplyOptions(**QUICK), feeds={"x": feed})
    np.testing.assert_array_equal(result.outputs["c"], again.outputs["c"])
    assert np.ptp(result.outputs["c"], axis=0).max() == 0


def test_a_plan_for_another_model_is_refused(plan_path: Path, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    save(
        tmp_path,
        [node("Relu", ["x"], ["c"])],
        [value("x", TensorProto.FLOAT, [2, 64])],
        [value("c", TensorProto.FLOAT, [2, 64])],
    )
    with pytest.raises(PlanError, match="digest"):
        PlannedSession(plan_path)


def test_a_gpu_plan_runs_on_the_cpu_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    write_plan(make_plan(perceptron(tmp_path), 3, "cuda"), path)
    result = run_plan(path, ApplyOptions(verify=True, on_cpu=True, **QUICK))
    assert result.verified


def test_a_plan_object_needs_only_its_model(tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    with PlannedSession(make_plan(model), model_path=model) as session:
        session.smoke()
        assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [("x", [2, 64], "tensor(float)")]
        assert [i.type for i in session.get_outputs()] == ["tensor(float)", "tensor(int64)"]


def test_the_first_device_is_looked_for_only_where_the_unsplit_model_runs(tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    plan = make_plan(model, 1)
    absent = DeviceSpec(name="cuda:0", kind="no-such-kind", type="cuda", memory_bytes=1 << 50)
    cluster = plan.cluster.model_copy(update={"devices": (absent, *plan.cluster.devices)})
    queues = (DeviceQueue(device="cuda:0", segments=()), *plan.devices)
    plan = plan.model_copy(update={"cluster": cluster, "devices": queues})
    with PlannedSession(plan, model_path=model) as session:
        session.smoke()
        with pytest.raises(ExecutionError, match="cuda:0"):
            session.reference_device()


def test_memory_that_is_short_makes_sessions_share_weights(tmp_path: Path) -> None:
    model = perceptron(tmp_path)
    plan = make_plan(model)
    small = tuple(spec.model_copy(update={"memory_bytes": 200_000}) for spec in plan.cluster.devices)
    plan = plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"devices": small})})
    result = run_plan(plan, ApplyOptions(model_path=model, verify=True, **QUICK))
    assert result.verified


def test_the_unsplit_model_that_cannot_load_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"nonsense")
    model = perceptron(tmp_path)
    with PlannedSession(make_plan(model), model_path=model) as session:
        device = session.reference_device()
        with pytest.raises(ExecutionError, match=r"\(the unsplit model\) on cpu:0: could not be created"):
            UnsplitSession(path, device)


def test_an_output_may_be_listed_twice(tmp_path) -> None:
    value = helper.make_tensor_value_info
    outputs = [
        value("a", TensorProto.FLOAT, [4]),
        value("b", TensorProto.FLOAT, [4]),
        value("a", TensorProto.FLOAT, [4]),
    ]
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"])]
    path = save(tmp_path, nodes, [value("x", TensorProto.FLOAT, [4])], outputs)
    result = run_plan(make_plan(path), ApplyOptions(model_path=path, verify=True, repeat=1))
    assert result.verified and list(result.outputs) == ["a", "b"]


def random_model(tmp_path: Path, *outputs: str, training: bool = True) -> Path:
    value = helper.make_tensor_value_info
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Dropout", ["a", "ratio", "training"], ["d"]),
        node("Neg", ["d"], ["n"]),
    ]
    made = [value(name, TensorProto.FLOAT, [64]) for name in outputs]
    weights = {"ratio": np.float32(0.5), "training": np.bool_(training)}
    return save(tmp_path, nodes, [value("x", TensorProto.FLOAT, [64])], made, weights)


def test_what_depends_on_random_numbers_is_not_compared_and_named(tmp_path) -> None:
    path = random_model(tmp_path, "n", "a")
    result = run_plan(make_plan(path), ApplyOptions(model_path=path, verify_deep=True, repeat=1))
    assert result.verified
    assert [text for text in result.warnings if "random numbers" in text and "'n'" in text and "'a'" not in text]


def test_a_model_of_random_outputs_alone_cannot_be_verified(tmp_path) -> None:
    path = random_model(tmp_path, "n")
    with pytest.raises(UsageError, match="random numbers"):
        run_plan(make_plan(path), ApplyOptions(model_path=path, verify=True, repeat=1))


def test_dropout_that_is_off_is_compared(tmp_path) -> None:
    path = random_model(tmp_path, "n", training=False)
    result = run_plan(make_plan(path), ApplyOptions(model_path=path, verify=True, repeat=1))
    assert result.verified and not [text for text in result.warnings if "random" in text]


def test_random_integers_that_a_model_cannot_take_say_what_to_do(tmp_path) -> None:
    value = helper.make_tensor_value_info
    path = save(
        tmp_path,
        [node("Gather", ["table", "ids"], ["rows"])],
        [value("ids", TensorProto.INT64, [50])],
        [value("rows", TensorProto.FLOAT, [50, 4])],
        {"table": np.zeros((2, 4), np.float32)},
    )
    options = ApplyOptions(model_path=path, repeat=1)
    with pytest.raises(ExecutionError, match=r"Gather.*--int-high.*--inputs"):
        run_plan(make_plan(path), options)
    with pytest.raises(ExecutionError) as caught:
        run_plan(make_plan(path), options, feeds={"ids": np.full(50, 7)})
    assert "--int-high" not in str(caught.value)
    run_plan(make_plan(path), ApplyOptions(model_path=path, repeat=1, int_high={"ids": 2}))


def test_what_a_sigmoid_makes_is_known(tmp_path) -> None:
    value = helper.make_tensor_value_info
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Neg", ["s"], ["y"])]
    inputs, outputs = [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])]
    path = save(tmp_path, nodes, inputs, outputs)
    assert sigmoid_values(load_model(path).graph) == {"s"}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, np.float16])
def test_the_second_input_of_a_verification_differs_for_every_type_of_float(dtype: type) -> None:
    feeds = {"x": np.ones(3, dtype), "i": np.ones(3, np.int64)}
    second, warnings = apply._second(None, feeds, ApplyOptions(), own_feeds=True)
    assert warnings == () and second["x"].dtype == feeds["x"].dtype
    assert (second["x"].astype(np.float32) == 0.5).all() and (second["i"] == 1).all()


@pytest.mark.parametrize("feeds", [{"i": np.ones(3, np.int64)}, {"x": np.zeros(3, np.float32)}])
def test_a_second_input_that_cannot_differ_is_said(feeds) -> None:
    second, warnings = apply._second(None, feeds, ApplyOptions(), own_feeds=True)
    assert second == feeds and len(warnings) == 1 and "one input" in warnings[0]


def test_a_verification_on_integers_alone_says_so(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    path = save(
        tmp_path,
        [node("Add", ["i", "i"], ["j"])],
        [value("i", TensorProto.INT64, [4])],
        [value("j", TensorProto.INT64, [4])],
    )
    given = {"i": np.arange(4, dtype=np.int64)}
    result = run_plan(make_plan(path), ApplyOptions(model_path=path, verify=True, repeat=1), feeds=given)
    assert result.verified and any("one input" in warning for warning in result.warnings)
