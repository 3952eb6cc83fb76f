from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import PlanError
from planner.simulate.memory import SegmentMemory, peak_bytes
from planner.simulate.simulator import simulate
from tests.plan.builders import make_plan


def need(
    reads: dict[str, int] | None = None,
    writes: dict[str, int] | None = None,
    weights: dict[str, int] | None = None,
    inner: int = 0,
) -> SegmentMemory:
    return SegmentMemory(weights or {}, reads or {}, writes or {}, inner)


CHAIN = {"cpu:0": [("a", 10), ("b", 10), ("c", 10)]}


def test_an_output_lives_until_its_last_reader_is_done() -> None:
    result = simulate(make_plan(CHAIN))
    short = {"a": need(writes={"t": 100}), "b": need({"t": 100}, {"u": 10}), "c": need({"u": 10}, {"v": 50})}
    assert peak_bytes(result, short) == {"cpu:0": 110}
    long = {**short, "c": need({"u": 10, "t": 100}, {"v": 50})}
    assert peak_bytes(result, long) == {"cpu:0": 160}


def test_what_nobody_reads_goes_when_its_segment_ends_unless_it_is_a_graph_output() -> None:
    result = simulate(make_plan(CHAIN))
    memory = {"a": need(writes={"t": 100}), "b": need(), "c": need(writes={"v": 50})}
    assert peak_bytes(result, memory) == {"cpu:0": 100}
    assert peak_bytes(result, memory, graph_outputs=["t"]) == {"cpu:0": 150}


def test_weights_stay_and_are_shared_on_a_device_but_not_between_devices() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 1), ("b", 1)], "cpu:1": [("c", 1)]}))
    memory = {name: need(weights={"w": 1000, f"own {name}": 1}) for name in "abc"}
    assert peak_bytes(result, memory) == {"cpu:0": 1002, "cpu:1": 1001}


def test_inner_activations_count_while_their_segment_runs() -> None:
    result = simulate(make_plan(CHAIN))
    memory = {"a": need(inner=70), "b": need(inner=30), "c": need(inner=50)}
    assert peak_bytes(result, memory) == {"cpu:0": 70}


def test_segments_that_take_no_time_need_memory_all_the_same() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 0), ("b", 0)]}))
    assert peak_bytes(result, {"a": need(writes={"t": 9}), "b": need({"t": 9}, inner=5)}) == {"cpu:0": 14}


def test_a_sent_tensor_lives_on_both_devices() -> None:
    queues = {"cpu:0": [("a", 10), ("d", 100)], "cpu:1": [("e", 15), ("b", 10)]}
    plan = make_plan(queues, [("t", "a", "b", 20)], latency_ns=10)
    memory = {"a": need(writes={"t": 20}), "d": need(inner=7), "e": need(inner=5), "b": need({"t": 20})}
    # t leaves from 10 to 40 while d runs; it is on its way into cpu:1 while e runs.
    assert peak_bytes(simulate(plan), memory) == {"cpu:0": 27, "cpu:1": 25}


def test_a_graph_input_is_there_from_the_start_until_its_last_reader_on_each_device() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 10), ("b", 10)], "cpu:1": [("c", 10)]}))
    memory = {"a": need(inner=5), "b": need({"x": 100}), "c": need({"x": 100})}
    assert peak_bytes(result, memory) == {"cpu:0": 105, "cpu:1": 100}


def test_a_device_without_work_needs_nothing_and_an_unknown_segment_is_an_error() -> None:
    result = simulate(make_plan({"cpu:0": [("a", 1)], "cpu:1": []}))
    assert peak_bytes(result, {"a": need(inner=1)}) == {"cpu:0": 1, "cpu:1": 0}
    with pytest.raises(PlanError, match="'a'"):
        peak_bytes(result, {})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_the_peak_lies_between_what_one_segment_needs_and_everything(rows: list[tuple[int, int, int]]) -> None:
    result = simulate(make_plan({"cpu:0": [(f"s{i}", time) for i, (time, _, _) in enumerate(rows)]}))
    memory = {
        f"s{i}": need({f"v{i - 1}": rows[i - 1][1]} if i else {}, {f"v{i}": size}, {f"w{i}": 1}, inner)
        for i, (_, size, inner) in enumerate(rows)
    }
    peak = peak_bytes(result, memory)["cpu:0"]
    own = [sum(m.reads.values()) + sum(m.writes.values()) + m.inner_bytes for m in memory.values()]
    assert max(own) <= peak - len(rows)
    assert peak - len(rows) <= sum(size + inner for _, size, inner in rows)
