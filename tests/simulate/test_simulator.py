from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlanError
from planner.plan.schema import DeviceQueue, LinkSpec, Plan, TransferSpec
from planner.simulate.simulator import SimulationResult, simulate
from planner.simulate.timeline import device_bars, link_bars
from tests.plan.builders import make_plan


def times(result: SimulationResult) -> dict[str, tuple[int, int]]:
    return {segment.id: (segment.start_ns, segment.finish_ns) for segment in result.segments}


def arrivals(result: SimulationResult) -> dict[str, tuple[int, int, int]]:
    return {t.tensor: (t.ready_ns, t.start_ns, t.finish_ns) for t in result.transfers}


def with_links(plan: Plan, *links: LinkSpec) -> Plan:
    return plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"links": links})})


def test_one_device_runs_its_queue_without_gaps() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 100), ("b", 50)]}, dispatch_ns=7))
    assert times(result) == {"a": (0, 107), "b": (107, 164)}
    assert result.step_ns == 164
    assert result.busy_ns == {"cpu:0": 164}
    assert result.critical_path == ("a", "b")


def test_a_transfer_takes_latency_and_size_over_bandwidth() -> None:
    plan = make_plan({"cpu:0": [("a", 100)], "cpu:1": [("b", 200)]}, [("t", "a", "b", 30)], latency_ns=10)
    result = simulate(plan)
    assert arrivals(result) == {"t": (100, 100, 140)}
    assert times(result)["b"] == (140, 340)
    assert (result.transfer_ns, result.transfer_bytes) == (40, 30)
    assert result.link_busy_ns == {("cpu:0", "cpu:1"): 40}
    assert result.critical_path == ("a", "b")


def test_bandwidth_zero_means_that_size_does_not_matter() -> None:
    plan = make_plan({"cpu:0": [("a", 1)], "cpu:1": [("b", 1)]}, [("t", "a", "b", 1 << 40)], bytes_per_s=0)
    assert simulate(plan).step_ns == 1 + 10 + 1


def test_transfers_round_up() -> None:
    plan = make_plan({"cpu:0": [("a", 0)], "cpu:1": [("b", 0)]}, [("t", "a", "b", 1)], bytes_per_s=2_000_000_000)
    assert simulate(plan).step_ns == 10 + 1


def test_devices_overlap_and_an_idle_one_is_listed() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 100)], "cpu:1": [("b", 80)], "cpu:2": []}))
    assert result.step_ns == 100
    assert result.busy_ns == {"cpu:0": 100, "cpu:1": 80, "cpu:2": 0}


def test_transfers_of_one_link_queue_in_the_plans_order() -> None:
    queues = {"cpu:0": [("a", 100)], "cpu:1": [("b", 5), ("c", 5)]}
    result = simulate(make_plan(queues, [("t", "a", "c", 90), ("u", "a", "b", 40)]))
    assert arrivals(result) == {"t": (100, 100, 200), "u": (100, 200, 250)}
    assert times(result) == {"a": (0, 100), "b": (250, 255), "c": (255, 260)}


def test_a_slow_transfer_that_left_early_is_waited_for() -> None:
    """The slow one is known before it is known when the device's earlier segment ends."""
    queues = {"cpu:0": [("p", 30), ("q", 5)], "cpu:1": [("b", 10)], "cpu:2": [("c", 20)]}
    result = simulate(make_plan(queues, [("slow", "b", "q", 90), ("fast", "c", "p", 1)], latency_ns=0))
    assert times(result)["p"] == (21, 51)
    assert times(result)["q"] == (100, 105)
    assert result.critical_path == ("b", "q")


def test_links_of_their_own_do_not_queue_but_a_shared_channel_does() -> None:
    queues = {"cpu:0": [("a", 100)], "cpu:1": [("b", 100)], "cpu:2": [("c", 1)]}
    sends = [("t", "a", "c", 90), ("u", "b", "c", 90)]
    assert simulate(make_plan(queues, sends)).step_ns == 201
    shared = simulate(make_plan(queues, sends, channel="pcie"))
    assert arrivals(shared) == {"t": (100, 100, 200), "u": (100, 200, 300)}
    assert shared.step_ns == 301
    # u waits for the channel that t holds, so what made t is what delays the step.
    assert shared.critical_path == ("a", "c")


def test_a_channel_serves_who_is_ready_first_whatever_the_plans_order() -> None:
    queues = {"cpu:0": [("a", 50)], "cpu:1": [("b", 40)], "cpu:2": [("c", 1)]}
    result = simulate(make_plan(queues, [("t", "a", "c", 90), ("u", "b", "c", 90)], channel="pcie"))
    assert arrivals(result) == {"u": (40, 40, 140), "t": (50, 140, 240)}


def test_a_channel_is_one_resource_in_both_directions() -> None:
    queues = {"cpu:0": [("a", 10), ("d", 1)], "cpu:1": [("b", 10), ("c", 1)]}
    sends = [("t", "a", "c", 90), ("u", "b", "d", 90)]
    assert simulate(make_plan(queues, sends)).step_ns == 10 + 100 + 1
    assert simulate(make_plan(queues, sends, channel="bus")).step_ns == 10 + 200 + 1


def test_a_deadlock_names_the_blocked_segments_and_the_cycle() -> None:
    plan = make_plan(
        {"cpu:0": [("x", 1), ("a2", 1), ("a1", 1)], "cpu:1": [("b1", 1), ("b2", 1)]},
        [("t", "a1", "b1", 1), ("u", "b2", "a2", 1)],
    )
    with pytest.raises(PlanError, match="deadlock: 4 segments never start") as caught:
        simulate(plan)
    assert "(a2, a1, b1, b2)" in str(caught.value)
    assert " -> " in str(caught.value)


def test_what_the_plan_does_not_have_is_a_plan_error() -> None:
    plan = make_plan(transfers=[("t", "a", "b", 1)])
    with pytest.raises(PlanError, match="without a link"):
        simulate(with_links(plan))
    with pytest.raises(PlanError, match="'zz' that is not there"):
        simulate(plan.model_copy(update={"transfers": (TransferSpec(tensor="t", src="a", dst="zz", nbytes=1),)}))
    with pytest.raises(PlanError, match="no device of the cluster"):
        simulate(plan.model_copy(update={"devices": (DeviceQueue(device="gpu", segments=()),), "transfers": ()}))


def test_times_beyond_64_bits_are_refused() -> None:
    plan = make_plan({"cpu:0": [("a", 1)], "cpu:1": [("b", 1)]}, [("t", "a", "b", 2**53)], bytes_per_s=1)
    with pytest.raises(PlanError, match="century"):
        simulate(plan)


def test_an_empty_plan_takes_no_time() -> None:
    result = simulate(make_plan({}))
    assert (result.step_ns, result.segments, result.critical_path) == (0, (), ())


@pytest.mark.parametrize(
    ("reads", "problem"),
    [
        ({"c": [("a", 4, "t")]}, None),
        ({"b2": [("a", 4, "t")]}, None),
        ({"b1": [("a", 4, "t")]}, "is sent to the later segment 'b2'"),
        ({"c": [("a", 4, "u")]}, "has no transfer"),
        ({"a": [("c", 4, "u")]}, "has no transfer"),
        ({"b1": [("b2", 4, "u")]}, "made later on the same device"),
        ({"b2": [("b1", 4, "u")]}, None),
        ({"b2": [("nobody", 4, "u")]}, "which the plan lacks"),
    ],
)
def test_dependencies_must_be_met(reads: dict[str, Any], problem: str | None) -> None:
    plan = make_plan({"cpu:0": [("a", 1)], "cpu:1": [("b1", 1), ("b2", 1), ("c", 1)]}, [("t", "a", "b2", 4)])
    if problem is None:
        assert simulate(plan, dependencies=reads) == simulate(plan)
    else:
        with pytest.raises(PlanError, match=problem):
            simulate(plan, dependencies=reads)


def test_bars_show_what_was_simulated() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 5)], "cpu:1": [("b", 5)]}, [("t", "a", "b", 1)]))
    assert [(b.device, b.name, b.start_ns, b.finish_ns) for b in device_bars(result)] == [
        ("cpu:0", "a", 0, 5),
        ("cpu:1", "b", 16, 21),
    ]
    assert [(b.device, b.name, b.start_ns, b.finish_ns) for b in link_bars(result)] == [("cpu:0 -> cpu:1", "t", 5, 16)]


@st.composite
def runnable_plans(draw: st.DrawFn, shortest_ns: int) -> Plan:
    """Plans whose queues and transfers follow one order, so that none of them deadlocks."""
    placement = draw(st.lists(st.integers(0, 2), min_size=1, max_size=9))
    lengths = st.integers(shortest_ns, 12)
    queues: dict[str, list[tuple[str, int]]] = {f"cpu:{d}": [] for d in range(3)}
    for index, device in enumerate(placement):
        queues[f"cpu:{device}"].append((f"s{index}", draw(lengths)))
    pairs = [(i, j) for j in range(len(placement)) for i in range(j) if placement[i] != placement[j]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    sends = [(f"t{k}", f"s{i}", f"s{j}", draw(st.integers(0, 60))) for k, (i, j) in enumerate(chosen)]
    plan = make_plan(queues, sends, dispatch_ns=draw(st.integers(0, 2)))
    channels = st.sampled_from(["", "x", "y"])
    links = (
        link.model_copy(update={"latency_ns": draw(lengths), "channel": draw(channels)}) for link in plan.cluster.links
    )
    return with_links(plan, *links)


@dataclass
class Clock:
    """The same rules, tick by tick: nothing shared with the simulator but the words of its description."""

    plan: Plan

    def run(self) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int]]]:
        plan = self.plan
        queues = {queue.device: list(queue.segments) for queue in plan.devices}
        home = {segment.id: device for device, queue in queues.items() for segment in queue}
        links = {(link.src, link.dst): link for link in plan.cluster.links}
        segments: dict[str, tuple[int, int]] = {}
        sent: dict[int, tuple[int, int]] = {}
        device_until, channel_until = dict.fromkeys(queues, 0), dict[str, int]()
        now = 0
        while any(queues.values()) or max([*device_until.values(), *channel_until.values()]) > now:
            done = {name for name, (_, finish) in segments.items() if finish <= now}
            waiting = [(segments[t.src][1], k) for k, t in enumerate(plan.transfers) if t.src in done and k not in sent]
            for _, k in sorted(waiting):
                t = plan.transfers[k]
                link = links[home[t.src], home[t.dst]]
                channel = link.channel or f"{link.src}>{link.dst}"
                if channel_until.get(channel, 0) <= now:
                    length = link.latency_ns + t.nbytes
                    sent[k] = (now, now + length)
                    channel_until[channel] = now + length
            for device, queue in queues.items():
                if queue and device_until[device] <= now:
                    needs = [k for k, t in enumerate(plan.transfers) if t.dst == queue[0].id]
                    if all(k in sent and sent[k][1] <= now for k in needs):
                        segment = queue.pop(0)
                        device_until[device] = now + plan.dispatch_ns + segment.compute_ns
                        segments[segment.id] = (now, device_until[device])
            now += 1
        return segments, [sent[k] for k in range(len(plan.transfers))]


@settings(max_examples=150)
@given(runnable_plans(shortest_ns=1))
def test_as_a_clock_ticks_so_the_simulator_counts(plan: Plan) -> None:
    segments, sent = Clock(plan).run()
    result = simulate(plan)
    assert times(result) == segments
    assert [(t.start_ns, t.finish_ns) for t in result.transfers] == sent
    assert result.step_ns == max(finish for _, finish in segments.values())


@settings(max_examples=100)
@given(runnable_plans(shortest_ns=0))
def test_invariants(plan: Plan) -> None:
    result = simulate(plan)
    spans = times(result)
    assert result.step_ns == max(finish for _, finish in spans.values())
    assert all(result.step_ns >= busy for busy in result.busy_ns.values())
    for queue in plan.devices:
        for segment, following in pairwise(queue.segments):
            assert spans[segment.id][1] <= spans[following.id][0]
    channels: dict[str, list[tuple[int, int]]] = {}
    links = {(link.src, link.dst): link for link in plan.cluster.links}
    for sent in result.transfers:
        assert spans[sent.src][1] == sent.ready_ns <= sent.start_ns
        link = links[sent.src_device, sent.dst_device]
        assert sent.finish_ns - sent.start_ns == link.latency_ns + sent.nbytes
        assert sent.finish_ns <= spans[sent.dst][0]
        channels.setdefault(sent.channel, []).append((sent.start_ns, sent.finish_ns))
    for times_on_channel in channels.values():
        ordered = sorted(times_on_channel)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))
    assert sum(result.link_busy_ns.values()) == result.transfer_ns
    _check_critical_path(plan, result)


def _check_critical_path(plan: Plan, result: SimulationResult) -> None:
    spans = times(result)
    path = result.critical_path
    assert spans[path[0]][0] == 0
    assert spans[path[-1]][1] == result.step_ns
    assert len(set(path)) == len(path)
    assert all(spans[a][1] <= spans[b][0] for a, b in pairwise(path))
    # Nothing on the path waits for nothing: what it computes and what is sent meanwhile fill the whole step.
    covered = [spans[name] for name in path] + [(t.start_ns, t.finish_ns) for t in result.transfers]
    reached = 0
    for start, finish in sorted(covered):
        assert start <= reached
        reached = max(reached, finish)


@settings(max_examples=40)
@given(runnable_plans(shortest_ns=1), st.permutations(range(9)))
def test_names_decide_nothing(plan: Plan, permutation: list[int]) -> None:
    """Ties broken by a name would show: the same plan with other names takes the same times."""
    other = {f"s{i}": f"z{permutation[i]}" for i in range(9)}
    queues = tuple(
        queue.model_copy(update={"segments": tuple(s.model_copy(update={"id": other[s.id]}) for s in queue.segments)})
        for queue in plan.devices
    )
    sends = tuple(t.model_copy(update={"src": other[t.src], "dst": other[t.dst]}) for t in plan.transfers)
    renamed = simulate(plan.model_copy(update={"devices": queues, "transfers": sends}))
    result = simulate(plan)
    assert [s.start_ns for s in renamed.segments] == [s.start_ns for s in result.segments]
    assert renamed.critical_path == tuple(other[name] for name in result.critical_path)
