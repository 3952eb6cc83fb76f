"""Every planner's candidate on every cluster: sound, as fast as it says, above the bounds, and the same every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from planner.cluster.types import Cluster
from planner.errors import InfeasibleError
from planner.plan.check import violations
from planner.schedule.auto_drafts import auto_draft
from planner.schedule.bounds import lower_bound_ns
from planner.schedule.drafts import (
    ALL_CORES,
    Draft,
    Setting,
    all_cores_draft,
    data_parallel_draft,
    finish,
    list_draft,
    one_device_draft,
)
from planner.schedule.fd_dps import fd_dps_draft
from planner.schedule.heft import heft
from planner.schedule.hybrids import hybrid_ways
from planner.schedule.lists import schedule_fixed
from planner.schedule.planners import PLANNERS as every_planner
from planner.schedule.ready_dcp import ready_dcp
from planner.schedule.split_search import whole_graph_ways
from planner.simulate.simulator import simulate
from tests.plan_checker import naive_step_ns, plan_problems
from tests.schedule.settings import CLUSTERS, MODELS, make_setting, model_path, plan_of, setting_of

PLANNERS: dict[str, Callable[[Setting], Draft]] = {
    name: planner.on_model for name, planner in every_planner.items() if name != "all-cores"
}
NEED_A_BATCH = ("data-parallel", "fastt-dp")
PAIRS = [(model, cluster) for model in ("cnn", "transformer", "residual", "nasnet") for cluster in CLUSTERS]


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("model", "cluster"), PAIRS)
def test_a_candidate_is_sound_and_takes_what_it_says(planner: str, model: str, cluster: str) -> None:
    setting = setting_of(model, cluster)
    try:
        draft = PLANNERS[planner](setting)
    except InfeasibleError:
        assert planner in NEED_A_BATCH
        assert model == "nasnet" or cluster == "1-v100"  # one image, or one device
        return
    assert draft.cut.times.complete
    assert lower_bound_ns(draft.workload.tasks) <= draft.step_ns
    plan = plan_of(draft, setting)
    assert violations(plan) == []
    assert plan_problems(plan, draft.workload.split.graph) == []
    assert simulate(plan).step_ns == draft.step_ns == naive_step_ns(plan)


@pytest.mark.parametrize(("model", "cluster"), PAIRS)
def test_the_search_is_never_worse_than_where_it_starts(model: str, cluster: str) -> None:
    setting = setting_of(model, cluster)
    assert fd_dps_draft(setting).step_ns <= list_draft(setting, "ready", ready_dcp).step_ns
    assert auto_draft(setting).step_ns <= fd_dps_draft(setting).step_ns


@pytest.mark.parametrize("model", ["cnn", "nasnet"])
def test_ours_is_never_worse_than_a_rival(model: str) -> None:
    setting = setting_of(model, "2-v100-2-t4")
    ours = auto_draft(setting).step_ns
    for name, planner in PLANNERS.items():
        with suppress(InfeasibleError):
            assert ours <= planner(setting).step_ns, name


def test_samples_are_shared_out_by_what_shards_take() -> None:
    """A slow device takes relatively longer for few samples: its share by speed is too large."""
    setting = setting_of("mlp", "2-v100-2-t4")
    plain = data_parallel_draft(setting)
    before = plain.workload.splits[0].sizes
    steps = {}
    for splits in hybrid_ways(setting):
        workload = setting.workloads.build(splits)
        placed = schedule_fixed(workload.tasks, setting.comm, workload.lanes(setting.shares()))
        if splits and len(splits[0].sizes) == len(before):
            steps[splits[0].sizes] = finish(setting, "auto", workload, placed).step_ns
    best = min(steps, key=lambda sizes: steps[sizes])
    assert sum(best) == sum(before)
    assert best[2] + best[3] < before[2] + before[3]
    assert steps[best] < plain.step_ns


def test_more_effort_is_never_worse() -> None:
    steps = [fd_dps_draft(setting_of("cnn", "2-v100-2-t4", effort)).step_ns for effort in ("quick", "normal")]
    assert steps[1] <= steps[0]


@pytest.mark.parametrize("cluster", ["2-sockets", "3-cpus"])
def test_one_session_over_all_cores_spans_every_device(cluster: str) -> None:
    setting = setting_of("cnn", cluster)
    draft = all_cores_draft(setting)
    plan = plan_of(draft, setting)
    assert violations(plan) == []
    assert plan_problems(plan, draft.workload.split.graph) == []
    (used,) = [queue.device for queue in plan.devices if queue.segments]
    (spanning,) = [device for device in plan.cluster.devices if device.name == used == ALL_CORES]
    assert spanning.members == tuple(device.name for device in setting.cluster.devices)


@pytest.mark.parametrize("cluster", ["4-v100", "2-nodes"])
def test_gpus_have_no_session_that_spans_them(cluster: str) -> None:
    with pytest.raises(InfeasibleError, match="CPU devices"):
        all_cores_draft(setting_of("cnn", cluster))


def test_the_one_device_is_the_fastest() -> None:
    setting = setting_of("cnn", "2-v100-2-t4")
    draft = one_device_draft(setting)
    used = {setting.cluster.devices[segment.device].kind for segment in draft.cut.segments}
    assert len(used) == 1
    assert next(iter(used)).startswith("v100")


def test_shards_follow_the_speeds_of_the_devices() -> None:
    setting = setting_of("cnn", "2-v100-2-t4")
    draft = data_parallel_draft(setting)
    speed = setting.shares()
    for spec in draft.workload.splits:
        if spec.axis == "batch" and len(spec.sizes) == len(speed):
            assert sorted(spec.sizes) == [size for _, size in sorted(zip(speed, spec.sizes, strict=True))]
    assert {len(spec.sizes) for spec in draft.workload.splits} <= {2, 3, 4}


@pytest.mark.parametrize("model", MODELS)
def test_ways_of_splitting_the_whole_graph_can_be_carried_out(model: str) -> None:
    setting = setting_of(model, "4-v100")
    ways = whole_graph_ways(setting)
    assert ways
    for splits in ways.values():
        assert splits
        setting.workloads.build(splits)


@pytest.mark.parametrize("planner", PLANNERS)
def test_planning_again_gives_the_same_plan(planner: str) -> None:
    plans = []
    for _ in range(2):
        setting = make_setting(model_path("cnn"), CLUSTERS["2-v100-2-t4"]())
        plans.append(plan_of(PLANNERS[planner](setting), setting))
    assert plans[0] == plans[1]


def test_a_model_that_fits_no_device_has_no_plan() -> None:
    cluster = CLUSTERS["4-v100"]()
    tiny = Cluster(tuple(replace(device, memory_bytes=1000) for device in cluster.devices), cluster.links)
    setting = make_setting(model_path("cnn"), tiny)
    for scheduler in (heft, ready_dcp):
        with pytest.raises(InfeasibleError):
            list_draft(setting, "any", scheduler)
