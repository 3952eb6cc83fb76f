"""Bounds over all splits: no split, however odd, may go below; and what paths they follow."""

from __future__ import annotations

import random
from pathlib import Path

import onnx.parser
import pytest

from planner.graph.op_graph import OpGraph
from planner.model.load import load_model
from planner.schedule.bounds import lower_bound_ns
from planner.schedule.drafts import Setting
from planner.schedule.element_paths import Own, longest_path
from planner.schedule.split_bounds import any_split_bound_ns
from planner.split.types import SplitSpec
from tests.models import save
from tests.scatter import random_splits
from tests.schedule.settings import MODELS, setting_of


@pytest.mark.parametrize("cluster", ["1-v100", "4-v100", "3-cpus"])
@pytest.mark.parametrize("model", MODELS)
def test_no_split_goes_below_the_bound(model: str, cluster: str) -> None:
    setting = setting_of(model, cluster)
    bound = any_split_bound_ns(setting)
    assert bound > 0
    draw = random.Random(f"{model} {cluster}")
    least = lower_bound_ns(setting.workloads.build(()).tasks)
    for chance in (0.1, 0.3, 0.6, 1.0) * 2:
        # A bound of the split graph, by its work and its paths: the step of any plan is no less.
        splits = random_splits(setting.model, draw, draw.choice((2, 4, 9)), chance)
        least = min(least, lower_bound_ns(setting.workloads.build(splits).tasks))
    assert least >= bound


@pytest.mark.parametrize("model", MODELS)
def test_no_even_split_of_everything_goes_below_the_bound(model: str) -> None:
    setting = setting_of(model, "4-v100")
    bound = any_split_bound_ns(setting)
    for axis in range(4):
        for parts in (2, 4, 7):
            assert lower_bound_ns(setting.workloads.build(_even(setting, axis, parts)).tasks) >= bound


def _even(setting: Setting, number: int, parts: int) -> list[SplitSpec]:
    """Every operator cut along its axis of that number, where it has one of that extent."""
    found = []
    for op in setting.model.graph.ops:
        axes = [axis for axis in setting.axes.axes(op) if axis.extent >= parts]
        if len(axes) > number:
            axis = axes[number]
            sizes = [axis.extent // parts + (k < axis.extent % parts) for k in range(parts)]
            found.append(SplitSpec(op.name, axis.name, tuple(sizes)))
    return found


@pytest.mark.parametrize("model", MODELS)
def test_the_bound_is_of_the_size_of_one_device_alone(model: str) -> None:
    setting = setting_of(model, "1-v100")
    whole = int(setting.workloads.build(()).tasks.compute_ns.sum())
    assert whole // 3 < any_split_bound_ns(setting) <= whole


GRAPHS = {
    # Two convolutions of 5 and 7, joined, and one that reads all their channels.
    "reads all channels": (
        "a = Conv (x, w)  b = Conv (x, v)  j = Concat <axis = 1> (a, b)  y = Conv (j, u)",
        (5, 7, 0, 10),
        17,
    ),
    # The same, but what follows reads each channel by itself: an element has waited for one of both, six on average.
    "reads one channel": (
        "a = Conv (x, w)  b = Conv (x, v)  j = Concat <axis = 1> (a, b)  y = Relu (j)",
        (5, 7, 0, 10),
        16,
    ),
    # A slice may be of a shard that was early.
    "takes a part": ("a = Conv (x, w)  y = Slice (a, s, e)", (5, 3), 5),
    "pads": ("a = Conv (x, w)  p = Pad (a, q)  y = Relu (p)", (5, 0, 4), 5),
    "renames": ("a = Conv (x, w)  t = Transpose <perm = [0, 2, 3, 1]> (a)  y = Relu (t)", (5, 0, 4), 9),
    "steps over places": ("a = Conv (x, w)  y = Conv <strides = [2, 2]> (a, w1)", (5, 4), 5),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_paths_lead_as_far_back_as_elements_are_met_evenly(name: str, tmp_path: Path) -> None:
    body, even, longest = GRAPHS[name]
    graph = _graph(body, tmp_path)
    own = {op.name: Own(cost, 0) for op, cost in zip(graph.ops, even, strict=True)}
    assert longest_path(graph, own) == longest
    # What any shard costs counts wherever a shard waits for one of another operator.
    every = {op.name: Own(cost, cost) for op, cost in zip(graph.ops, even, strict=True)}
    assert longest_path(graph, every) == {"takes a part": 8, "steps over places": 9}.get(name, longest)


def _graph(body: str, folder: Path) -> OpGraph:
    def weight(name: str, shape: str, count: int) -> str:
        return f"float[{shape}] {name} = {{{', '.join(['1.0'] * count)}}}"

    weights = ", ".join(
        (
            *(weight(name, "4, 4, 1, 1", 16) for name in ("w", "v", "w1")),
            weight("u", "4, 8, 1, 1", 32),
            "int64[1] s = {1}, int64[1] e = {2}, int64[8] q = {0, 0, 1, 1, 0, 0, 1, 1}",
        )
    )
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2, 4, 8, 8] x) => (float[N, C, H, W] y)'
    return load_model(save(onnx.parser.parse_model(f"{text} <{weights}> {{ {body} }}"), folder)).graph
