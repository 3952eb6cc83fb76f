"""All hard cases give the expected outputs, under plans that scatter at random and under the pipeline's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.cluster.cpu import cpu_devices
from planner.cluster.gpu import gpu_devices
from planner.cluster.types import Cluster
from planner.launcher.planned_session import PlannedSession
from planner.model.options import LoadOptions
from planner.partition.segments import load_plan_model, plan_splits
from planner.partition.split_graph import build_split_graph
from planner.pipeline import make_plan
from planner.plan.check import violations
from planner.plan.schema import Plan
from planner.request import Request
from tests.cases.support import CASES, assert_close, load_case
from tests.plan_checker import plan_problems
from tests.scatter import scattered_plan

# 5,000 branches in pieces on several devices are thousands of segments, and as many sessions to create.
_SLOW = ("wide_5000",)
SCATTERED = [
    pytest.param(case, count, marks=[pytest.mark.long] if case in _SLOW else []) for case in CASES for count in (2, 3)
]
CLUSTERS = {"2 cores": "2", "3 cores": "3", "2 V100": "v100-sxm2-16gb"}


def test_the_cases_are_there(shared_dir: Path) -> None:
    assert len(CASES) == 63


@pytest.mark.parametrize(("case", "num_devices"), SCATTERED)
def test_scattered_plans_give_the_right_outputs(case: str, num_devices: int) -> None:
    path, feeds, expected = load_case(case)
    for seed in range(1 if case in _SLOW else 2):
        plan = scattered_plan(path, num_devices=num_devices, seed=seed, feeds=feeds)
        check_outputs(case, plan, path, feeds, expected)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.long] if c in _SLOW else []) for c in CASES])
def test_the_pipelines_plans_give_the_right_outputs(case: str, cluster: str) -> None:
    path, feeds, expected = load_case(case)
    request = Request(
        path,
        cluster_of(cluster),
        measure=False,
        load=LoadOptions(feeds=feeds),
        effort="quick" if case in _SLOW else "normal",
        plan_dir=path.parent,
    )
    check_outputs(case, make_plan(request).plan, path, feeds, expected)


def cluster_of(name: str) -> Cluster:
    spec = CLUSTERS[name]
    return cpu_devices(spec) if spec.isdigit() else gpu_devices("2", spec)


def check_outputs(case: str, plan: Plan, path: Path, feeds: dict[str, Any], expected: dict[str, Any]) -> None:
    """The plan is sound and gives the expected outputs."""
    assert violations(plan) == []
    model = load_plan_model(plan, path)
    assert plan_problems(plan, build_split_graph(model, plan_splits(plan)).graph) == []
    with PlannedSession(plan, model_path=path, on_cpu=True) as session:
        names = [info.name for info in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, feeds), strict=True))
    for name, value in expected.items():
        assert_close(case, name, outputs[name], value)
