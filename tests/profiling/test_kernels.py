"""Kernel times find the groups that they are the times of."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime as ort
import pytest

from planner.graph.op_graph import Op
from planner.model.load import load_model
from planner.partition.groups import group_ops
from planner.profiling.kernels import attribute, kernel_times
from tests.models import random_inputs, save
from tests.models.small import SMALL_MODELS


def op(name: str, output: str) -> Op:
    return Op(name, "", "Conv", 17, (), (output,))


GROUPS = [[op("conv1", "c1"), op("relu1", "r1")], [op("block/conv", "c2")], [op("last", "y")]]


@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        ("conv1", 0),
        ("relu1", 0),
        ("c1", 0),
        ("r1", 0),
        ("conv1_nchwc", 0),
        ("fused conv1", 0),
        ("conv1/ConvActivationFusion", 0),
        ("fused conv1_nchwc", 0),
        ("block/conv", 1),
        ("block/conv_nchwc", 1),
        ("y", 2),
        ("last/MatMulScaleFusion/", 2),
        ("last/MatMulAddFusion", 2),
    ],
)
def test_a_decorated_name_is_that_of_its_operator_or_value(kernel: str, group: int) -> None:
    times, unknown = attribute({kernel: 70}, GROUPS)
    assert times == [70 if number == group else 0 for number in range(3)]
    assert unknown == 0


@pytest.mark.parametrize("kernel", ["ReorderOutput_token_3", "conv11", "MemcpyToHost", ""])
def test_what_no_name_explains_belongs_to_none(kernel: str) -> None:
    assert attribute({kernel: 70, "conv1": 30}, GROUPS) == ([30, 0, 0], 70)


def test_an_operators_name_counts_more_than_a_values() -> None:
    groups = [[op("a", "b")], [op("b", "a")]]
    assert attribute({"a": 1, "b": 10}, groups) == ([1, 10], 0)


def test_no_time_is_lost() -> None:
    kernels = {"conv1": 5, "conv1_nchwc": 6, "other": 7, "y": 8}
    times, unknown = attribute(kernels, GROUPS)
    assert sum(times) + unknown == sum(kernels.values())


def test_kernels_of_a_profile_by_name_in_nanoseconds(tmp_path: Path) -> None:
    events = [
        {"cat": "Session", "name": "model_run", "dur": 900},
        {"cat": "Node", "name": "conv1_kernel_time", "dur": 12},
        {"cat": "Node", "name": "conv1_fence_before", "dur": 1},
        {"cat": "Node", "name": "conv1_kernel_time", "dur": 13},
        {"cat": "Node", "name": "y_kernel_time", "dur": 2},
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events))
    assert kernel_times(path) == {"conv1": [12_000, 13_000], "y": [2_000]}


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_most_kernels_of_real_sessions_are_explained(name: str, tmp_path: Path) -> None:
    path = save(SMALL_MODELS[name](), tmp_path)
    model = load_model(path)
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "kernels")
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    session.run(None, random_inputs(SMALL_MODELS[name](), 0))
    times = kernel_times(Path(session.end_profiling()))
    # Layout changes and reshapes have names of their own, and so has one fused normalisation.
    kernels = {kernel: 1 for kernel in times if "eshape" not in kernel and not kernel.startswith("Reorder")}
    _, unknown = attribute(kernels, group_ops(model.graph, "cpu").members)
    assert unknown <= 1, sorted(kernels)
