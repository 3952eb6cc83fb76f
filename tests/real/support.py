"""Planning and applying real models, the way each test of them does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.cluster.cpu import cpu_devices
from planner.cluster.gpu import gpu_devices
from planner.cost.profile import ProfileTable
from planner.graph.op_graph import Array
from planner.launcher.apply import ApplyOptions, ApplyResult, run_plan
from planner.launcher.planned_session import PlannedSession
from planner.model.load import load_model
from planner.model.options import LoadOptions
from planner.model.simplify import SIMPLIFICATION_VERSION
from planner.pipeline import make_plan, make_setting
from planner.plan.check import violations
from planner.plan.files import write_plan
from planner.plan.schema import CostProvenance, ModelRef, Plan
from planner.profiling.recorded import RecordedRunner
from planner.request import Request
from planner.runtime.feeds import random_feeds
from planner.schedule.build import Header, build_plan
from planner.schedule.drafts import finish
from planner.schedule.lists import schedule_fixed
from planner.schedule.split_search import whole_graph_ways
from tests.models.outputs import tolerances_apart


@dataclass(frozen=True, slots=True)
class Real:
    """A model with what it needs to be run.

    Attributes:
        path: its file.
        shapes: of inputs with open sizes.
        values: of inputs where random ones fail.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array]

    @property
    def load(self) -> LoadOptions:
        """How to load it."""
        return LoadOptions(
            input_shapes=self.shapes, feeds=dict(self.values) or None, recorded_run=RecordedRunner(lambda text: None)
        )


def planned(real: Real, folder: Path, *, cpus: str = "", gpus: str = "", planner: str = "auto") -> Path:
    """A plan file beside a link to the model; costs are estimated, nothing is measured."""
    cluster = cpu_devices(cpus) if cpus else gpu_devices(gpus, "v100-sxm2-16gb")
    path = folder / "plan.yaml"
    request = Request(real.path, cluster, measure=False, load=real.load, planner=planner, plan_dir=folder)
    plan = make_plan(request).plan
    assert violations(plan) == []
    write_plan(plan, path, force=True)
    return path


def split_plans(real: Real, num_devices: int) -> dict[str, Plan]:
    """Plans that split the whole graph, one for each way there is, shard ``i`` on device ``i``."""
    cluster = cpu_devices(str(num_devices))
    request = Request(real.path, cluster, measure=False, load=real.load)
    model = load_model(real.path, real.load)
    setting = make_setting(request, model, ProfileTable())
    reference = ModelRef(path=real.path.name, digest=model.digest, simplification=SIMPLIFICATION_VERSION)
    header = Header("test", "0", reference, "normal", 0, CostProvenance(), cluster, setting.dispatch_ns)
    plans = {}
    for name, splits in whole_graph_ways(setting).items():
        workload = setting.workloads.build(splits)
        schedule = schedule_fixed(workload.tasks, setting.comm, workload.lanes([1] * num_devices))
        plans[name] = build_plan(finish(setting, name, workload, schedule), model, header)[0]
        assert violations(plans[name]) == []
    return plans


def applied(plan: Path | Plan, real: Real, *, on_cpu: bool = False) -> ApplyResult:
    """Run a plan against the unsplit model."""
    options = ApplyOptions(
        model_path=real.path, on_cpu=on_cpu, allow_outside=True, verify=True, repeat=1, warmup=0, int_high=50
    )
    if not real.values:
        return run_plan(plan, options)
    with PlannedSession(plan, model_path=real.path, allow_outside=True, on_cpu=True) as session:
        feeds = random_feeds(session.inputs, 0, int_high=50)
    return run_plan(plan, options, feeds={**feeds, **real.values})


def telling(plan: Path | Plan, real: Real) -> float:
    """How far apart the outputs of two inputs are, in tolerances: a wrong split shows only where they differ."""
    with PlannedSession(plan, model_path=real.path, allow_outside=True, on_cpu=True) as session:
        answers: list[Sequence[Array]] = []
        for seed in (0, 1):
            # Given values differ in nothing but the order of their rows.
            given = {name: value[::-1] if seed and value.ndim else value for name, value in real.values.items()}
            feeds = {**random_feeds(session.inputs, seed, int_high=50), **given}
            answers.append([np.asarray(value) for value in session.run(None, feeds)])
    return max(tolerances_apart(a, b) for a, b in zip(*answers, strict=True) if a.shape == b.shape)
