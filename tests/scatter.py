"""A test planner that splits and scatters at random: the outputs must be those of the unsplit model all the same."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.cluster.cpu import cpu_devices
from planner.cluster.sheets import load_sheets
from planner.cost.estimate import CostTable
from planner.cost.profile import ProfileTable
from planner.errors import PlanError
from planner.graph.task_graph import Schedule
from planner.model.load import load_model
from planner.model.options import LoadOptions
from planner.model.simplify import SIMPLIFICATION_VERSION
from planner.partition.split_graph import build_split_graph
from planner.plan.schema import CostProvenance, ModelRef, Plan
from planner.schedule.build import Header, build_plan
from planner.schedule.cut import cut_schedule
from planner.schedule.drafts import Draft
from planner.schedule.workload import Workloads
from planner.split.propagate import sizes_for
from planner.split.table import split_axes
from planner.split.types import SplitSpec


def random_splits(model: Any, draw: random.Random, num_devices: int, chance: float) -> list[SplitSpec]:
    """Random axes and uneven sizes for a random choice of operators; some operators get two splits."""
    found = []
    for op in model.graph.ops:
        axes = split_axes(model.graph.context(op))
        if not axes or draw.random() > chance:
            continue
        first = draw.choice(axes)
        found.append(_spec(op.name, first, draw, num_devices))
        others = [axis for axis in axes if axis.name != first.name]
        if others and draw.random() < 0.2:
            second = _spec(op.name, draw.choice(others), draw, num_devices)
            try:
                build_split_graph(model, [found[-1], second])
            except PlanError:  # the second axis is gone, or shorter, once the first is split
                continue
            found.append(second)
    return found


def _spec(op: str, axis: Any, draw: random.Random, num_devices: int) -> SplitSpec:
    shares = [draw.randint(1, 4) for _ in range(draw.randint(2, max(num_devices, 2)))]
    sizes = sizes_for(axis.extent, shares)
    if len(sizes) < 2:
        sizes = (1, axis.extent - 1)
    return SplitSpec(op, axis.name, sizes)


def scattered_plan(
    path: Path, *, num_devices: int, seed: int, chance: float = 0.6, feeds: Mapping[str, Any] | None = None
) -> Plan:
    """A plan with random splits, placement and segments; complete and without deadlock."""
    draw = random.Random(seed)
    options = LoadOptions(feeds=feeds)
    model = load_model(path, options)
    cluster = replace(cpu_devices(str(num_devices)))
    workloads = Workloads(model, cluster, CostTable(ProfileTable(), load_sheets()))
    workload = workloads.build(random_splits(model, draw, num_devices, chance))
    count = workload.tasks.num_tasks
    device = np.array([draw.randrange(num_devices) for _ in range(count)], dtype=np.int32)
    order = np.arange(count, dtype=np.int64)
    # Without joins, thousands of tasks would be thousands of sessions.
    attempts = draw.choice([0, 50, 500]) if count < 2000 else 500
    cut = cut_schedule(workload, cluster, Schedule(device, order, order), 1000, attempts=attempts)
    header = Header(
        "test",
        "0",
        ModelRef(path=path.name, digest=model.digest, simplification=SIMPLIFICATION_VERSION),
        "normal",
        seed,
        CostProvenance(),
        cluster,
        1000,
    )
    plan, _ = build_plan(Draft("scatter", workload, cluster, cut, {}), model, header)
    return plan
