from __future__ import annotations

from typing import Any

import pytest

from planner.errors import PlanError
from planner.plan.check import find_cycle, require_runnable, violations
from planner.plan.schema import (
    ClusterSpec,
    DevicePrediction,
    DeviceQueue,
    DeviceSpec,
    LinkSpec,
    Plan,
    Segment,
    Split,
    State,
    TransferSpec,
)
from tests.plan.builders import make_device, make_plan, make_predictions


def test_a_sound_plan_has_none() -> None:
    plan = make_plan({"cpu:0": [("a1", 1), ("a2", 1)], "cpu:1": [("b1", 1)], "cpu:2": []}, [("t", "a1", "b1", 4)])
    assert violations(plan) == []


def queue(device: str, *segments: tuple[str, tuple[str, ...]]) -> DeviceQueue:
    return DeviceQueue(
        device=device, segments=tuple(Segment(id=name, compute_ns=1, tasks=tasks) for name, tasks in segments)
    )


def cluster(**fields: Any) -> ClusterSpec:
    return make_plan().cluster.model_copy(update=fields)


def spec(src: str, dst: str) -> LinkSpec:
    return LinkSpec(src=src, dst=dst, latency_ns=1, bytes_per_s=1)


def send(tensor: str, src: str, dst: str) -> TransferSpec:
    return TransferSpec(tensor=tensor, src=src, dst=dst, nbytes=1)


CPU0, CPU1 = make_device("cpu:0"), make_device("cpu:1")
BOTH_WAYS = (spec("cpu:0", "cpu:1"), spec("cpu:1", "cpu:0"))


def merged(**fields: Any) -> dict[str, Any]:
    return {
        "devices": (CPU0, CPU1, make_device("cpu:all", **{"cores": (0, 1), "members": ("cpu:0", "cpu:1"), **fields}))
    }


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"devices": (queue("gpu", ("a", ("t",))),)}, "'gpu' is no device"),
        ({"devices": (queue("cpu:0"), queue("cpu:0"))}, "'cpu:0' has two queues"),
        ({"devices": (queue("cpu:0", ("a", ("t", "u")), ("b", ("u",))),)}, "task 'u' occurs twice"),
        ({"devices": (queue("cpu:0", ("a", ("u", "u"))),)}, "task 'u' occurs twice"),
        ({"devices": (queue("cpu:0", ("a", ())),)}, "'a' has no task"),
        ({"devices": (queue("cpu:0", ("", ("t",))),)}, "empty id"),
        ({"devices": (queue("cpu:0", ("a", ("t",))), queue("cpu:1", ("a", ("u",))))}, "segment 'a' occurs twice"),
        ({"transfers": (send("t", "a", "z"),)}, "no segment 'z'"),
        ({"transfers": (send("t", "z", "b"),)}, "no segment 'z'"),
        (
            {"devices": (queue("cpu:0", ("a", ("t",)), ("b", ("u",))),), "transfers": (send("t", "a", "b"),)},
            "no transfer",
        ),
        ({"transfers": (send("t", "a", "b"), send("t", "a", "b"))}, "sent to 'cpu:1' twice"),
        ({"cluster": cluster(links=BOTH_WAYS[:1])}, "no link from 'cpu:1' to 'cpu:0'"),
        ({"cluster": cluster(links=())}, "no link from 'cpu:0' to 'cpu:1'"),
        ({"cluster": cluster(links=(*BOTH_WAYS, spec("cpu:0", "x")))}, "there is no device 'x'"),
        ({"cluster": cluster(links=(*BOTH_WAYS, BOTH_WAYS[0]))}, "occurs twice"),
        ({"cluster": cluster(links=(*BOTH_WAYS, spec("cpu:0", "cpu:0")))}, "linked to itself"),
        ({"cluster": cluster(devices=(CPU0, CPU1, CPU1))}, "device 'cpu:1' occurs twice"),
        ({"cluster": cluster(devices=())}, "there is no device"),
        ({"cluster": cluster(nodes=("other",))}, "'node0', which cluster.nodes lacks"),
        ({"cluster": cluster(devices=(CPU0, make_device("cpu:1", memory_bytes=0)))}, "has no memory"),
        ({"cluster": cluster(devices=(make_device("cpu:0", cores=(-1,)), CPU1))}, "has the core -1"),
        ({"cluster": cluster(devices=(make_device("cpu:0", cores=(10**9,)), CPU1))}, "cores are 0 to"),
        ({"cluster": cluster(**merged(cores=(0,)))}, "cores of 'cpu:all'"),
        ({"cluster": cluster(**merged(members=("cpu:0", "cpu:7")))}, "spans 'cpu:7', which is no other device"),
        ({"cluster": cluster(**merged(members=("cpu:0", "cpu:all")))}, "spans 'cpu:all', which is no other device"),
        ({"cluster": cluster(**merged(type="cuda"))}, "of another node or type"),
        (
            {
                "cluster": cluster(**merged()),
                "devices": (queue("cpu:all", ("a", ("t",))), queue("cpu:0", ("b", ("u",)))),
            },
            "on the same cores",
        ),
        ({"splits": (Split(op="c", axis="batch", sizes=(1, 1)),) * 2}, "split twice along 'batch'"),
        ({"splits": tuple(Split(op="c", axis=axis, sizes=(1, 1)) for axis in "xyz")}, "more than twice"),
        ({"splits": (Split(op="c", axis="batch", sizes=()),)}, "without size"),
        ({"splits": (Split.model_construct(op="c", axis="batch", sizes=(1, 0)),)}, "without size"),
        ({"states": (State(input="w", output="a"), State(input="w", output="b"))}, "input 'w' occurs twice"),
        ({"predictions": make_predictions(critical_path=("q",))}, "no segment 'q'"),
        (
            {"predictions": make_predictions(devices=(DevicePrediction(device="q", busy_ns=1, peak_bytes=1),))},
            "'q' is no device",
        ),
    ],
)
def test_each_rule_is_checked(update: dict[str, Any], expected: str) -> None:
    found = violations(make_plan().model_copy(update=update))
    assert any(expected in line for line in found), found
    assert all("\n" not in line for line in found)


@pytest.mark.parametrize(
    "update",
    [
        {"transfers": (send("t", "z", "b"),)},
        {"transfers": (send("t", "a", "z"),)},
        {"cluster": cluster(**merged(members=("cpu:0", "cpu:7")))},
        {"cluster": cluster(devices=(make_device("cpu:0", cores=(-1,)), CPU1))},
    ],
)
def test_what_names_something_that_is_not_there_is_not_run(update: dict[str, Any]) -> None:
    plan = make_plan().model_copy(update=update)
    with pytest.raises(PlanError) as caught:
        require_runnable(plan, "plan.yaml")
    assert violations(plan)[0] in str(caught.value)


def test_links_are_for_predictions_only() -> None:
    require_runnable(make_plan().model_copy(update={"cluster": cluster(links=())}), "plan.yaml")


def test_a_merged_device_alone_in_use_is_sound() -> None:
    plan = make_plan().model_copy(
        update={"cluster": cluster(**merged()), "devices": (queue("cpu:all", ("a", ("t",))), queue("cpu:0"))}
    )
    assert violations(plan) == []


def deadlocked() -> Plan:
    """{a1, a2} and {b1, b2} with a1 -> b1 and b2 -> a2: as sets without a cycle, as queues [a2, a1], [b1, b2] not."""
    return make_plan(
        {"cpu:0": [("a2", 1), ("a1", 1)], "cpu:1": [("b1", 1), ("b2", 1)]}, [("t", "a1", "b1", 1), ("u", "b2", "a2", 1)]
    )


def test_a_deadlock_is_named_with_its_cycle() -> None:
    plan = deadlocked()
    cycle = find_cycle(plan)
    assert sorted(cycle) == ["a1", "a2", "b1", "b2"]
    waits = {("a2", "a1"), ("b1", "b2"), ("a1", "b1"), ("b2", "a2")}
    assert all(pair in waits for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    (line,) = violations(plan)
    assert "deadlock" in line
    assert "a1 -> b1 -> b2 -> a2" in line or "b2 -> a2 -> a1 -> b1" in line or "a2 -> a1 -> b1 -> b2" in line


def test_only_the_cycle_is_named_not_what_waits_behind_it() -> None:
    plan = deadlocked()
    queues = (queue("cpu:2", ("c", ("c.task",))), *plan.devices)
    devices: tuple[DeviceSpec, ...] = (*plan.cluster.devices, make_device("cpu:2"))
    plan = plan.model_copy(
        update={
            "devices": queues,
            "cluster": plan.cluster.model_copy(update={"devices": devices}),
            "transfers": (send("v", "a1", "c"), *plan.transfers),
        }
    )
    assert "c" not in find_cycle(plan)
    assert len(find_cycle(plan)) == 4


def test_without_a_deadlock_there_is_no_cycle() -> None:
    assert find_cycle(make_plan(transfers=[("t", "a", "b", 1)])) == ()
    assert find_cycle(make_plan({})) == ()
