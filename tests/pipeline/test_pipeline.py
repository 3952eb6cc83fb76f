"""From a model file to a plan: the best of the race, never worse than a simple choice, and the reasons said."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from planner.cluster.types import Cluster
from planner.cost.profile import Measurement, ProfileKey, ProfileTable, link_key
from planner.errors import InfeasibleError, UsageError
from planner.model.load import load_model
from planner.model.options import LoadOptions
from planner.partition.segments import load_plan_model, plan_splits
from planner.partition.split_graph import build_split_graph
from planner.pipeline import RACE, compare_planners, make_plan
from planner.plan.check import violations
from planner.plan.diff import same_decisions
from planner.plan.files import dump_plan, parse_plan
from planner.plan.schema import Plan
from planner.request import Request
from planner.schedule.drafts import SIMPLE, all_cores_draft, one_device_draft, segment_keys
from planner.schedule.planners import PLANNERS
from planner.schedule.split_bounds import any_split_bound_ns
from planner.schedule.wishes import Wishes
from tests.models import save
from tests.plan_checker import plan_problems
from tests.schedule.settings import CLUSTERS, MODELS, model_path, setting_of

PAIRS = [
    ("cnn", "1-v100"),
    ("cnn", "4-v100"),
    ("cnn", "2-v100-2-t4"),
    ("transformer", "2-nodes"),
    ("residual", "4-v100"),
    ("nasnet", "2-sockets"),
    ("lstm", "3-cpus"),
    ("mlp", "4-v100"),
]


def planned(model: str, cluster: str, **options: object) -> Plan:
    path = model_path(model)
    defaults: dict[str, object] = {"measure": False, "effort": "quick", "plan_dir": path.parent}
    return make_plan(Request(path, CLUSTERS[cluster](), **{**defaults, **options})).plan  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "cluster"), PAIRS)
def test_the_plan_is_sound_and_no_simple_choice_beats_it(model: str, cluster: str) -> None:
    plan = planned(model, cluster)
    assert violations(plan) == []
    loaded = load_plan_model(plan, model_path(model))
    assert plan_problems(plan, build_split_graph(loaded, plan_splits(plan)).graph) == []
    steps = {c.planner: c.step_ns for c in plan.predictions.candidates if c.step_ns is not None}
    assert steps[plan.planner] == plan.predictions.step_ns
    assert all(plan.predictions.step_ns <= steps[name] for name in SIMPLE if name in steps)
    assert plan.predictions.one_device_step_ns == steps["one-device"]
    assert [c.planner for c in plan.predictions.candidates] == list(RACE)
    assert plan.planner in plan.why
    assert all(bool(c.infeasible) != (c.step_ns is not None) for c in plan.predictions.candidates)


@pytest.mark.parametrize(("model", "cluster"), PAIRS)
def test_no_plan_goes_below_the_bound_over_any_split(model: str, cluster: str) -> None:
    setting = setting_of(model, cluster, "quick")
    bound = any_split_bound_ns(setting)
    assert bound > 0
    for planner in PLANNERS.values():
        try:
            assert planner.on_model(setting).step_ns >= bound
        except InfeasibleError:
            continue


def test_planners_are_compared_by_the_same_costs() -> None:
    path = model_path("cnn")
    request = Request(path, CLUSTERS["4-v100"](), measure=False, effort="quick", plan_dir=path.parent)
    found, _ = compare_planners(request, ["one-device", "all-cores", "heft", "auto"])
    assert [each.planner for each in found] == ["one-device", "all-cores", "heft", "auto"]
    one, cores, heft, auto = found
    assert cores.plan is None and "CPU devices" in cores.infeasible
    assert one.plan is not None and heft.plan is not None and auto.plan is not None
    assert one.plan.predictions.step_ns == one.one_device_ns
    assert heft.plan.planner == "heft"
    assert 0 < one.bound_ns <= auto.plan.predictions.step_ns <= heft.plan.predictions.step_ns * 1.02


def test_a_plan_survives_its_file() -> None:
    plan = planned("cnn", "4-v100")
    assert parse_plan(dump_plan(plan), "plan.yaml") == plan


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name not in ("all-cores", "auto")])
def test_the_planner_asked_for_makes_the_plan(planner: str) -> None:
    plan = planned("cnn", "4-v100", planner=planner)
    assert plan.planner == planner
    named = [c.planner for c in plan.predictions.candidates]
    assert set(named) == {*SIMPLE, planner}


@pytest.mark.parametrize(
    "options",
    [{"effort": "heroic"}, {"load": LoadOptions(batch=0)}, {"load": LoadOptions(batch="x")}],  # type: ignore[arg-type]
)
def test_values_that_make_no_sense_are_usage_errors(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"effort|batch"):
        planned("cnn", "4-v100", **options)


def test_an_unknown_planner_is_a_usage_error_that_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"magic.*fd-dps"):
        planned("cnn", "4-v100", planner="magic")


def test_a_planner_that_cannot_plan_says_why() -> None:
    with pytest.raises(InfeasibleError, match="CPU devices"):
        planned("cnn", "4-v100", planner="all-cores")


def test_one_device_is_one_that_can_hold_the_model() -> None:
    cluster = CLUSTERS["2-v100-2-t4"]()
    tight = Cluster(
        tuple(replace(d, memory_bytes=10_000) if d.kind.startswith("v100") else d for d in cluster.devices),
        cluster.links,
    )
    plan = make_plan(Request(model_path("cnn"), tight, measure=False, effort="quick", planner="one-device")).plan
    (used,) = [queue.device for queue in plan.devices if queue.segments]
    assert next(device.kind for device in plan.cluster.devices if device.name == used) == "t4"


def test_a_model_that_does_not_fit_is_infeasible() -> None:
    cluster = CLUSTERS["4-v100"]()
    small = Cluster(tuple(replace(device, memory_bytes=10_000) for device in cluster.devices), cluster.links)
    path = model_path("cnn")
    with pytest.raises(InfeasibleError) as found:
        make_plan(Request(path, small, measure=False, effort="quick"))
    assert found.value.exit_code == 1
    assert "no plan fits the devices' memory: the least, " in str(found.value)
    assert "expected devices with at least " in str(found.value)


def test_more_devices_are_never_slower() -> None:
    one = planned("cnn", "1-v100").predictions.step_ns
    four = planned("cnn", "4-v100").predictions.step_ns
    assert four < one


def test_one_device_needs_no_transfers() -> None:
    plan = planned("transformer", "1-v100")
    assert plan.transfers == ()
    assert [len(queue.segments) for queue in plan.devices] == [1]
    assert plan.splits == ()


def test_the_header_says_what_was_planned() -> None:
    path = model_path("cnn")
    plan = planned("cnn", "4-v100", plan_dir=path.parent.parent, command="plan --gpus 4", seed=3)
    assert plan.model.path == f"{path.parent.name}/{path.name}"
    assert plan.model.digest == load_model(path).digest
    assert plan.command == "plan --gpus 4"
    assert plan.seed == 3
    assert plan.effort == "quick"
    assert plan.inputs["x"].shape == (16, 3, 64, 64)
    # Views cost nothing anywhere and count as known; all else comes from data sheets.
    assert plan.costs.estimated > plan.costs.measured


def test_measured_costs_are_used_and_counted() -> None:
    plain = planned("cnn", "1-v100")
    from planner.cost.keys import group_key
    from planner.partition.groups import group_ops

    loaded = load_model(model_path("cnn"))
    kind = plain.cluster.devices[0].kind
    groups = group_ops(loaded.graph, "cuda").members
    keys = [group_key([loaded.graph.context(op) for op in members]) for members in groups]
    table = ProfileTable({ProfileKey(kind, "cuda", key): Measurement(1_000_000, 3, "x") for key in keys})
    plan = planned("cnn", "1-v100", profile=table)
    assert plan.costs.estimated == 0
    assert plan.costs.measured == len(groups)
    assert plan.predictions.step_ns >= 1_000_000 * (len(groups) - 3)  # views are free
    assert plan.predictions.step_ns > plain.predictions.step_ns


@pytest.mark.parametrize(("every_ns", "winner"), [(9_700_000, "one-device"), (9_200_000, "all-cores")])
def test_all_cores_win_a_short_step_only_by_more_than_noise(every_ns: int, winner: str) -> None:
    setting = setting_of("cnn", "3-cpus")
    ran = {key: Measurement(10_000_000, 9, "") for key in segment_keys(one_device_draft(setting))}
    ran.update({key: Measurement(every_ns, 9, "") for key in segment_keys(all_cores_draft(setting))})
    workload = setting.workloads.build(())
    slow = {
        key._replace(key=part): Measurement(20_000_000, 9, "")
        for key in ran
        for part in workload.segment_keys(range(workload.tasks.num_tasks))
    }
    plan = planned("cnn", "3-cpus", profile=ProfileTable({**slow, **ran}))
    assert plan.planner == winner
    assert ("one device is simpler" in plan.why) == (winner == "one-device")


def test_measured_links_replace_the_data_sheets() -> None:
    kind = CLUSTERS["4-v100"]().devices[0].kind
    slow = ProfileTable({ProfileKey(kind, "cuda", link_key(kind)): Measurement(10**10, 9, "x", 1000)})
    plan = planned("cnn", "4-v100", profile=slow)
    assert {link.latency_ns for link in plan.cluster.links} == {10**10}
    assert plan.planner == "one-device"


def test_progress_ends_at_its_total() -> None:
    seen: list[tuple[str, int, int]] = []
    planned("cnn", "4-v100", progress=lambda text, done, total: seen.append((text, done, total)))
    assert seen[-1][1] == seen[-1][2]
    assert all(0 <= done <= total for _, done, total in seen)


def renamed(proto: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same model with names of nodes and inner values dealt out anew."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    kept = {v.name for v in (*copy.graph.input, *copy.graph.output)}
    names = [name for node in copy.graph.node for name in node.output if name not in kept]
    names += [weight.name for weight in copy.graph.initializer]
    fresh = [f"v{number}" for number in range(len(names))]
    random.Random(seed).shuffle(fresh)
    new = dict(zip(names, fresh, strict=True))
    titles = [f"n{number}" for number in range(len(copy.graph.node))]
    random.Random(seed + 1).shuffle(titles)
    for node, title in zip(copy.graph.node, titles, strict=True):
        node.name = title
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
    for weight in copy.graph.initializer:
        weight.name = new[weight.name]
    del copy.graph.value_info[:]
    return copy


@pytest.mark.parametrize(
    ("model", "cluster"), [("cnn", "2-v100-2-t4"), ("residual", "4-v100"), ("nasnet", "2-sockets")]
)
def test_names_do_not_decide_anything(model: str, cluster: str, tmp_path: Path) -> None:
    steps = {c.planner: c.step_ns for c in planned(model, cluster).predictions.candidates}
    for seed in (1, 2):
        path = save(renamed(MODELS[model](), seed), tmp_path, f"{seed}.onnx")
        plan = make_plan(Request(path, CLUSTERS[cluster](), measure=False, effort="quick")).plan
        assert {c.planner: c.step_ns for c in plan.predictions.candidates} == steps


def pinned_devices(plan: Plan, prefix: str) -> set[str]:
    """Devices of the tasks whose names begin so."""
    return {
        queue.device
        for queue in plan.devices
        for segment in queue.segments
        for task in segment.tasks
        if task.startswith(prefix)
    }


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name not in ("one-device", "all-cores")])
def test_pins_and_operators_kept_together_are_obeyed_by_every_planner(planner: str) -> None:
    ops = [op.name for op in load_model(model_path("cnn"), LoadOptions()).graph.ops]
    convs = [name for name in ops if "conv" in name.lower()]
    assert len(convs) > 3
    pin, first, second = convs[1], convs[2], convs[-1]
    wishes = Wishes(((f"^{pin}$", "cuda:2"), (f"^{second}$", "cuda:3")), (f"^({first}|{second})$",))
    plan = planned("cnn", "4-v100", planner=planner, wishes=wishes)
    assert violations(plan) == []
    assert pinned_devices(plan, pin) == {"cuda:2"}
    assert pinned_devices(plan, first) | pinned_devices(plan, second) == {"cuda:3"}


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (Wishes((("nothing here", "cuda:0"),)), "matches no operator"),
        (Wishes((("conv", "cuda:9"),)), "no device 'cuda:9'"),
        (Wishes((("(", "cuda:0"),)), "no regular expression"),
        (Wishes((("conv", "cuda:0"), ("conv_0", "cuda:1"))), "pinned to cuda:0 and cuda:1"),
        (Wishes((("conv_0", "cuda:0"), ("conv_5", "cuda:1")), ("conv",)), "kept together and pinned"),
    ],
)
def test_wishes_that_cannot_be_meant_are_usage_errors(wishes: Wishes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planned("cnn", "4-v100", wishes=wishes)


@pytest.mark.parametrize(("model", "cluster"), PAIRS)
def test_planning_from_a_plan_keeps_it_to_the_letter(model: str, cluster: str) -> None:
    """Whoever made it: what is not 1% faster changes nothing."""
    for planner in ("heft", "data-parallel", "fd-dps"):
        try:
            before = planned(model, cluster, planner=planner)
        except InfeasibleError:
            continue
        again = planned(model, cluster, planner=planner, start=before)
        assert same_decisions(before, again)
        assert again.planner == before.planner
        assert again.predictions.step_ns == before.predictions.step_ns


def test_planning_from_a_slow_plan_is_not_bound_to_it() -> None:
    slow = planned("cnn", "4-v100", planner="one-device")
    best = planned("cnn", "4-v100")
    assert best.predictions.step_ns < slow.predictions.step_ns * 0.99
    assert planned("cnn", "4-v100", start=slow).predictions.step_ns == best.predictions.step_ns


def test_planning_from_a_plan_for_other_devices_and_splits_keeps_what_fits() -> None:
    before = planned("cnn", "4-v100", planner="data-parallel")
    plan = planned("cnn", "2-v100-2-t4", start=before)
    assert violations(plan) == []
    (kept,) = [c for c in plan.predictions.candidates if c.planner == "from"]
    assert kept.step_ns is not None
