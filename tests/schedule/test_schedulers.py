from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InfeasibleError, UsageError
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.auto import auto
from planner.schedule.bare import uniform_comm
from planner.schedule.beam import Taste, beam
from planner.schedule.bounds import lower_bound_ns, work_bound_ns
from planner.schedule.checker import violations
from planner.schedule.dcp import dcp
from planner.schedule.genetic import evolve
from planner.schedule.heft import heft
from planner.schedule.lists import list_schedule, one_device, schedule_fixed
from planner.schedule.memory import device_need
from planner.schedule.planners import PLANNERS
from planner.schedule.ready_dcp import ready_dcp
from planner.schedule.tabu import tabu
from planner.schedule.windows import improve_windows
from tests.schedule.task_graphs import perfect_packing, problems, random_layers, task_graph

Scheduler = Callable[[TaskGraph, CommCosts], Schedule]


def improved_one_device(graph: TaskGraph, comm: CommCosts) -> Schedule:
    return tabu(graph, comm, one_device(graph), steps=300)


def evolved(graph: TaskGraph, comm: CommCosts) -> Schedule:
    return evolve(graph, comm, [one_device(graph)], children=60)


def narrow_beam(graph: TaskGraph, comm: CommCosts) -> Schedule:
    return beam(graph, comm, taste=Taste(16, 16), width=7, target_ns=lower_bound_ns(graph))


def windows_of_one_device(graph: TaskGraph, comm: CommCosts) -> Schedule:
    return improve_windows(graph, comm, one_device(graph), work=5_000, size=5)


SCHEDULERS: dict[str, Scheduler] = {
    "heft": heft,
    "ready_dcp": ready_dcp,
    "dcp": dcp,
    **{p.name: p.on_tasks for p in PLANNERS.values() if p.on_tasks is not None and p.name != "auto"},
    "auto": lambda graph, comm: auto(graph, comm, effort="quick"),
    "tabu": improved_one_device,
    "genetic": evolved,
    "windows": windows_of_one_device,
    "beam": narrow_beam,
    "one_device": lambda graph, comm: one_device(graph),
    "fixed": lambda graph, comm: schedule_fixed(graph, comm, np.arange(graph.num_tasks) % graph.num_devices),
    "list": lambda graph, comm: list_schedule(graph, comm, -np.arange(graph.num_tasks)),
}
every = pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)


@every
@settings(max_examples=60)
@given(problem=problems())
def test_schedules_are_valid_and_not_below_the_bound(
    scheduler: Scheduler, problem: tuple[TaskGraph, CommCosts]
) -> None:
    graph, comm = problem
    schedule = scheduler(graph, comm)
    assert violations(graph, comm, schedule) == []
    assert schedule.makespan_ns >= lower_bound_ns(graph)
    for device in range(graph.num_devices):
        tasks = np.flatnonzero(schedule.device == device)
        # A task of no length comes before one that starts with it.
        order = tasks[np.lexsort((tasks, schedule.finish_ns[tasks], schedule.start_ns[tasks]))].tolist()
        assert all(schedule.finish_ns[a] <= schedule.start_ns[b] for a, b in pairwise(order))


@every
@settings(max_examples=15)
@given(problem=problems())
def test_names_decide_nothing(scheduler: Scheduler, problem: tuple[TaskGraph, CommCosts]) -> None:
    graph, comm = problem
    renamed = replace(graph, names=graph.names[::-1])
    first, second = scheduler(graph, comm), scheduler(renamed, comm)
    assert first.device.tolist() == second.device.tolist()
    assert first.start_ns.tolist() == second.start_ns.tolist()


@every
@settings(max_examples=15)
@given(problem=problems(max_devices=1))
def test_one_device_takes_the_sum_of_all_costs(scheduler: Scheduler, problem: tuple[TaskGraph, CommCosts]) -> None:
    graph, comm = problem
    assert scheduler(graph, comm).makespan_ns == int(graph.compute_ns.sum())


@every
def test_empty_graph_and_single_task(scheduler: Scheduler) -> None:
    comm = uniform_comm(2)
    assert scheduler(task_graph([], devices=2), comm).makespan_ns == 0
    assert scheduler(task_graph([[7, 7]]), comm).makespan_ns == 7


@pytest.mark.parametrize("scheduler", [heft, ready_dcp, dcp])
def test_a_task_goes_where_it_is_fast(scheduler: Scheduler) -> None:
    assert scheduler(task_graph([[9, 2]]), uniform_comm(2)).device.tolist() == [1]


@pytest.mark.parametrize("scheduler", [heft, ready_dcp, dcp])
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_renumbering_keeps_the_makespan_where_no_keys_tie(scheduler: Scheduler, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 12
    # Random large costs: no two sums are equal. Edges only from even to odd tasks: many orders are topological.
    compute = np.repeat(rng.integers(10**6, 10**9, (n, 1)), 2, axis=1)
    edges = [(2 * int(a), 2 * int(b) + 1, int(rng.integers(10**5, 10**8))) for a, b in rng.integers(0, n // 2, (n, 2))]
    edges = sorted({(a, b): (a, b, size) for a, b, size in edges}.values())
    spans = []
    for _ in range(2):
        order = [*rng.permutation(np.arange(0, n, 2)), *rng.permutation(np.arange(1, n, 2))]
        number = {int(task): position for position, task in enumerate(order)}
        graph = task_graph(compute[order].tolist(), [(number[a], number[b], size) for a, b, size in edges])
        spans.append(scheduler(graph, uniform_comm(2)).makespan_ns)
    assert spans[0] == spans[1]


def test_heft_on_the_example_of_its_paper() -> None:
    # Topcuoglu et al. 2002, figure 2: 10 tasks, 3 processors; HEFT's schedule takes 80.
    compute = [
        [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
        [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
    ]  # fmt: skip
    edges = [
        (1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23), (4, 8, 27),
        (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13),
    ]  # fmt: skip
    scaled = [[1_000 * x for x in row] for row in compute]
    graph = task_graph(scaled, [(s - 1, d - 1, 1_000 * c) for s, d, c in edges])
    comm = uniform_comm(3)
    schedule = heft(graph, comm)
    assert violations(graph, comm, schedule) == []
    assert schedule.makespan_ns == 80_000
    assert schedule.device.tolist() == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]
    assert ready_dcp(graph, comm).makespan_ns <= 80_000


@pytest.mark.parametrize("scheduler", [heft, ready_dcp])
def test_wide_graph_is_spread_evenly(scheduler: Scheduler) -> None:
    graph = task_graph([[10] * 4] * 5_000)
    comm = uniform_comm(4)
    schedule = scheduler(graph, comm)
    assert violations(graph, comm, schedule) == []
    assert schedule.makespan_ns == work_bound_ns(graph)


@pytest.mark.parametrize("scheduler", [heft, ready_dcp, dcp])
def test_ladder_with_very_many_paths(scheduler: Scheduler) -> None:
    # 60 pairs, each wholly connected to the next: 2**60 paths.
    edges = [(2 * k + a, 2 * k + 2 + b, 1) for k in range(59) for a in range(2) for b in range(2)]
    graph, comm = task_graph([[10, 10]] * 120, edges), uniform_comm(2)
    schedule = scheduler(graph, comm)
    assert violations(graph, comm, schedule) == []
    # Two columns with an exchange of 1 ns at every step; never worse than that.
    assert schedule.makespan_ns <= 60 * 10 + 59


@pytest.mark.parametrize("scheduler", [heft, ready_dcp])
def test_large_graph_on_different_devices(scheduler: Scheduler) -> None:
    graph, comm = random_layers(5_000, 4, seed=1)
    schedule = scheduler(graph, comm)
    assert violations(graph, comm, schedule) == []
    fastest = min(one_device(graph, device).makespan_ns for device in range(4))
    assert lower_bound_ns(graph) <= schedule.makespan_ns < 0.6 * fastest


def test_an_idle_slot_is_used() -> None:
    # The chain 0 -> 1 has priority and leaves device 0 idle for 100 ns while its data travels; 2 fits in there.
    graph, comm = task_graph([[10, 900], [900, 10], [120, 120], [10, 900]], [(0, 1, 50), (1, 3, 50)]), uniform_comm(2)
    schedule = schedule_fixed(graph, comm, [0, 1, 0, 0], priority=np.array([9, 8, 1, 7]))
    assert schedule.start_ns.tolist() == [0, 60, 130, 120]
    small = replace(graph, compute_ns=np.array([[10, 900], [900, 10], [90, 90], [10, 900]]))
    schedule = schedule_fixed(small, comm, [0, 1, 0, 0], priority=np.array([9, 8, 1, 7]))
    assert schedule.start_ns.tolist() == [0, 60, 10, 120]


def test_look_ahead_keeps_a_join_together() -> None:
    # Two producers with large outputs and one consumer. HEFT puts them on two devices and pays; DCP looks at the child.
    graph, comm = task_graph([[10, 10], [10, 10], [10, 10]], [(0, 2, 100), (1, 2, 100)]), uniform_comm(2)
    assert heft(graph, comm).makespan_ns == 120
    assert ready_dcp(graph, comm).makespan_ns == 30
    assert tabu(graph, comm, heft(graph, comm), steps=200).makespan_ns == 30


def test_fixed_placement_is_kept() -> None:
    graph, comm = random_layers(200, 3, seed=2)
    where = np.arange(200) * 7 % 3
    assert schedule_fixed(graph, comm, where).device.tolist() == where.tolist()


@pytest.mark.parametrize("placement", [[0], [0, 2], [0, -1]])
def test_fixed_placement_must_fit_the_graph(placement: list[int]) -> None:
    with pytest.raises(UsageError, match="expected one device of 0 to 1 for each of 2 tasks"):
        schedule_fixed(task_graph([[1, 1], [1, 1]]), uniform_comm(2), placement)


# One device and plain ETF refuse what they could not place; all others fall back on packing.
PACKING = {
    p.name: p.on_tasks for p in PLANNERS.values() if p.on_tasks is not None and p.name not in ("one-device", "etf")
}
MEMORY_AWARE = pytest.mark.parametrize("scheduler", PACKING.values(), ids=PACKING)


@pytest.mark.parametrize("scheduler", [heft, ready_dcp, dcp])
def test_weights_decide_where_a_task_may_run(scheduler: Callable[..., Schedule]) -> None:
    graph = task_graph([[1, 50]] * 4, weights=[100] * 4)
    schedule = scheduler(graph, uniform_comm(2), memory_limit=[200, 200])
    assert sorted(schedule.device.tolist()) == [0, 0, 1, 1]
    shared = replace(graph, weight_id=np.zeros(4, np.int32))
    assert scheduler(shared, uniform_comm(2), memory_limit=[200, 200]).device.tolist() == [0, 0, 0, 0]


@MEMORY_AWARE
@settings(max_examples=30)
@given(problem=problems(max_tasks=10, max_devices=3), data=st.data())
def test_no_schedule_exceeds_the_memory(
    scheduler: Callable[..., Schedule], problem: tuple[TaskGraph, CommCosts], data: st.DataObject
) -> None:
    graph, comm = problem
    n = graph.num_tasks
    weights = np.array(data.draw(st.lists(st.integers(0, 50), min_size=n, max_size=n)), np.int64)
    ids = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)), np.int32)
    for i in range(3):
        weights[ids == i] = 10 * i + 5
    graph = replace(graph, weight_bytes=weights, weight_id=ids)
    limit = [data.draw(st.integers(5_000, 30_000)) for _ in range(graph.num_devices)]
    try:
        schedule = scheduler(graph, comm, memory_limit=limit)
    except InfeasibleError:
        return
    assert violations(graph, comm, schedule) == []
    better = tabu(graph, comm, schedule, steps=500, memory_limit=limit)
    for found in (schedule, better):
        assert all(a <= b for a, b in zip(device_need(graph, found.device), limit, strict=True))


@MEMORY_AWARE
def test_too_little_memory_is_an_error_that_says_what_is_missing(scheduler: Callable[..., Schedule]) -> None:
    graph = task_graph([[1, 1]] * 3, weights=[1024] * 3)
    with pytest.raises(InfeasibleError, match=r"3\.0 KiB of weights.*device 0: 1\.0 KiB, device 1: 1\.0 KiB"):
        scheduler(graph, uniform_comm(2), memory_limit=[1024, 1024])


@MEMORY_AWARE
def test_packing_helps_where_greedy_choices_strand_a_task(scheduler: Callable[..., Schedule]) -> None:
    # Spreading the small ones leaves no room for the large one.
    graph = task_graph([[1, 1], [1, 1], [1, 1]], weights=[40, 40, 100])
    schedule = scheduler(graph, uniform_comm(2), memory_limit=[100, 100])
    assert schedule.device[0] == schedule.device[1] != schedule.device[2]


@settings(max_examples=60)
@given(problem=problems(max_devices=3), data=st.data())
def test_searches_keep_order_among_tasks_without_length(
    problem: tuple[TaskGraph, CommCosts], data: st.DataObject
) -> None:
    graph, comm = problem
    idle = data.draw(st.lists(st.booleans(), min_size=graph.num_tasks, max_size=graph.num_tasks))
    graph = replace(graph, compute_ns=np.where(np.array(idle, bool).reshape(-1, 1), 0, graph.compute_ns % 20))
    for search in (evolved, improved_one_device, windows_of_one_device):
        assert violations(graph, comm, search(graph, comm)) == []


@settings(max_examples=40)
@given(problem=problems(), data=st.data())
def test_windows_keep_memory_limits(problem: tuple[TaskGraph, CommCosts], data: st.DataObject) -> None:
    graph, comm = problem
    n = graph.num_tasks
    sizes = st.lists(st.integers(0, 50), min_size=n, max_size=n)
    weights, outputs = (np.array(data.draw(sizes), np.int64) for _ in range(2))
    graph = replace(graph, weight_bytes=weights, output_bytes=outputs)
    before = heft(graph, comm)
    # Just enough for what is there.
    limit = device_need(graph, before.device)
    after = improve_windows(graph, comm, before, work=5_000, size=5, memory_limit=limit)
    assert violations(graph, comm, after) == []
    assert after.makespan_ns <= before.makespan_ns
    assert all(a <= b for a, b in zip(device_need(graph, after.device), limit, strict=True))


@settings(max_examples=40)
@given(problem=problems(), seed=st.integers(0, 100))
def test_improvement_is_never_worse_and_repeats_itself(problem: tuple[TaskGraph, CommCosts], seed: int) -> None:
    graph, comm = problem
    before = heft(graph, comm)
    kept = before.start_ns.copy()
    first, second = (tabu(graph, comm, before, steps=300, seed=seed) for _ in range(2))
    assert violations(graph, comm, first) == []
    assert first.makespan_ns <= before.makespan_ns
    assert first.start_ns.tolist() == second.start_ns.tolist() and first.device.tolist() == second.device.tolist()
    assert before.start_ns.tolist() == kept.tolist()


def test_improvement_asks_for_a_known_effort() -> None:
    graph = task_graph([[1]])
    with pytest.raises(UsageError, match="no effort 'heroic'; expected quick, normal, thorough"):
        auto(graph, uniform_comm(1), effort="heroic")


def test_no_devices_is_an_error() -> None:
    graph = replace(task_graph([[1]]), compute_ns=np.zeros((1, 0), np.int64))
    for scheduler in (heft, ready_dcp, dcp):
        with pytest.raises(UsageError, match="no devices"):
            scheduler(graph, uniform_comm(0))


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_loses_hardly_any_time(seed: int) -> None:
    graph, comm, length = perfect_packing(25, 4, seed)
    narrow, wide = (
        beam(graph, comm, taste=Taste(16, 0), width=width, target_ns=length).makespan_ns for width in (1, 2_000)
    )
    assert length <= wide <= length * 103 // 100 < narrow
    assert heft(graph, comm).makespan_ns > length * 13 // 10
