"""Cutting an order into segments: complete, in order, never slower for having joined some, as simulated by a clock."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.task_graph import Schedule
from planner.plan.check import violations
from planner.schedule.cut import cut_schedule
from planner.schedule.drafts import Draft
from planner.schedule.workload import Workload
from tests.plan_checker import plan_problems
from tests.scatter import random_splits
from tests.schedule.settings import plan_of, setting_of

PROBLEMS = [("cnn", "4-v100"), ("transformer", "2-nodes"), ("nasnet", "2-v100-2-t4"), ("residual", "3-cpus")]


def scattered(workload: Workload, devices: int, seed: int, spread: int) -> Schedule:
    """Runs of ``spread`` tasks on random devices, in the graph's order."""
    draw = random.Random(seed)
    count = workload.tasks.num_tasks
    placement = [device for _ in range(-(-count // spread)) for device in [draw.randrange(devices)] * spread]
    order = np.arange(count, dtype=np.int64)
    return Schedule(np.array(placement[:count], dtype=np.int32), order, order)


@settings(max_examples=20)
@given(
    problem=st.sampled_from(PROBLEMS),
    seed=st.integers(0, 999),
    spread=st.sampled_from([1, 3, 10]),
    attempts=st.sampled_from([0, 1, 30, 500]),
    split=st.booleans(),
)
def test_cuts_are_complete_and_joining_never_makes_them_slower(
    problem: tuple[str, str], seed: int, spread: int, attempts: int, split: bool
) -> None:
    setting = setting_of(*problem)
    devices = len(setting.cluster.devices)
    splits = random_splits(setting.model, random.Random(seed), devices, 0.5) if split else []
    workload = setting.workloads.build(splits)
    schedule = scattered(workload, devices, seed, spread)
    cut = cut_schedule(workload, setting.cluster, schedule, setting.dispatch_ns, attempts=attempts)

    assert cut.times.complete
    placed = [(task, segment.device) for segment in cut.segments for task in segment.tasks]
    assert sorted(placed) == list(enumerate(schedule.device.tolist()))
    for device in range(devices):
        order = [task for segment in cut.segments if segment.device == device for task in segment.tasks]
        assert order == sorted(order)
    uncut = cut_schedule(workload, setting.cluster, schedule, setting.dispatch_ns, attempts=0)
    assert cut.step_ns <= uncut.step_ns
    plan = plan_of(Draft("test", workload, setting.cluster, cut, {}), setting)
    assert violations(plan) == []
    assert plan_problems(plan, workload.split.graph) == []
    assert plan.predictions.step_ns == cut.step_ns


@pytest.mark.parametrize("dispatch_ns", [1, 10**6])
def test_one_device_needs_one_segment(dispatch_ns: int) -> None:
    setting = setting_of("cnn", "4-v100")
    workload = setting.workloads.build(())
    count = workload.tasks.num_tasks
    order = np.arange(count, dtype=np.int64)
    cut = cut_schedule(workload, setting.cluster, Schedule(np.full(count, 2, np.int32), order, order), dispatch_ns)
    assert [(segment.device, segment.tasks) for segment in cut.segments] == [(2, tuple(range(count)))]
    assert cut.step_ns == dispatch_ns + int(workload.tasks.compute_ns[:, 2].sum())
    assert cut.transfers == ()


def test_cuts_get_rarer_as_segments_get_dearer() -> None:
    setting = setting_of("nasnet", "4-v100")
    workload = setting.workloads.build(())
    schedule = scattered(workload, 4, 5, 3)
    counts = [len(cut_schedule(workload, setting.cluster, schedule, ns).segments) for ns in (1, 10**7)]
    assert counts[1] <= counts[0]


def test_a_value_is_sent_once_to_a_device_however_many_read_it_there() -> None:
    setting = setting_of("nasnet", "4-v100")
    workload = setting.workloads.build(())
    for seed in range(5):
        cut = cut_schedule(workload, setting.cluster, scattered(workload, 4, seed, 1), setting.dispatch_ns, attempts=0)
        sent = [(transfer.tensor, cut.segments[transfer.dst].device) for transfer in cut.transfers]
        assert len(set(sent)) == len(sent)
