"""Our HEFT and anrg-saga's on the same graphs: the conversion is right, and only ties and ranks tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.schedule.bare import parse_bare
from planner.schedule.heft import heft
from planner.schedule.lists import NO_TABLE, place_ahead
from planner.schedule.timeline import problem
from tests.schedule.bare_checker import bare_problems
from tools.beside_saga import SHAPES, compare, from_saga, instance, to_saga

TASKS = 60


def small(shape: str) -> dict[str, Any]:
    return instance(shape, TASKS, 4, 1)


def need_saga() -> None:
    pytest.importorskip("saga", reason="anrg-saga is not installed: pip install '.[saga]'")


@pytest.mark.parametrize("shape", SHAPES)
def test_an_instance_is_a_bare_task_graph_in_whole_numbers(shape: str) -> None:
    line = small(shape)
    found = parse_bare(line)
    assert found.scale == 1
    assert bare_problems(line, found.answer(heft(found.graph, found.comm))) == []
    # Costs differ by the speed alone, without a rest.
    of_kind = {tuple(column) for column in (found.graph.compute_ns[:, :1] // found.graph.compute_ns)}
    assert of_kind == {(1, 1, 1, 1) if shape == "equal" else (1, 2, 3, 4)}
    assert (found.graph.compute_ns * np.array(of_kind.pop()) == found.graph.compute_ns[:, :1]).all()


def test_tasks_of_more_than_one_cost_have_no_counterpart() -> None:
    need_saga()
    with pytest.raises(ValueError, match="one speed"):
        to_saga({"processors": 2, "weights": [[4, 4], [2, 4]], "edges": []})


def test_of_parallel_edges_the_longest_counts() -> None:
    need_saga()
    line = {"processors": 2, "weights": [1, 1], "edges": [[0, 1, 3], [0, 1, 7], [0, 1, 5]]}
    assert to_saga(line)[1].get_dependency("0", "1").size == 7


@pytest.mark.parametrize("shape", SHAPES)
def test_our_schedule_takes_as_long_in_saga(shape: str) -> None:
    """Our devices and order, times by saga: every task starts and ends as in ours."""
    need_saga()
    from saga import Schedule, ScheduledTask

    line = small(shape)
    found = parse_bare(line)
    answer = found.answer(heft(found.graph, found.comm))
    network, graph = to_saga(line)
    theirs = Schedule(graph, network)
    extra = sorted(task.name for task in graph.tasks if not task.name.isdigit())
    if "__super_source__" in extra:
        theirs.add_task(ScheduledTask(node="0", name="__super_source__", start=0, end=0))
    # Every task takes time, so that the order of starts is a topological one.
    for task in sorted(range(TASKS), key=lambda task: answer["tasks"][task][1]):
        device, start, finish = answer["tasks"][task]
        begin = theirs.get_earliest_start_time(str(task), str(device), append_only=True)
        end = begin + graph.get_task(str(task)).cost / network.get_node(str(device)).speed
        assert (begin, end) == (start, finish)
        theirs.add_task(ScheduledTask(node=str(device), name=str(task), start=begin, end=end))
    assert theirs.makespan == answer["makespan"]


@pytest.mark.parametrize("shape", SHAPES)
def test_in_their_order_of_tasks_and_processors_ours_is_their_schedule(shape: str) -> None:
    need_saga()
    from saga.schedulers import HeftScheduler
    from saga.schedulers.heft import heft_rank_sort

    line = small(shape)
    network, graph = to_saga(line)
    theirs = from_saga(HeftScheduler().schedule(network, graph), TASKS)
    assert bare_problems(line, theirs) == []
    # Ties between processors are decided by their order in a set.
    processors = [int(node.name) for node in network.nodes]
    kinds = line.get("kinds", [0] * len(processors))
    node_of = line.get("node_of", [0] * len(processors))
    line["kinds"] = [kinds[processor] for processor in processors]
    line["node_of"] = [node_of[processor] for processor in processors]
    found = parse_bare(line)
    order = np.array([int(task) for task in heft_rank_sort(network, graph) if task.isdigit()])
    ours = found.answer(place_ahead(found.graph, problem(found.graph, found.comm), order, NO_TABLE, None))
    assert [[processors[device], start, end] for device, start, end in ours["tasks"]] == theirs["tasks"]
    assert ours["makespan"] == theirs["makespan"]


def test_ours_is_a_hundred_times_faster() -> None:
    """Far from the limit even on a small graph; tests/bench/SCHEDULES.md has 1,000 tasks."""
    need_saga()
    line = instance("equal", 300, 8, 0)
    list(compare(line, 1))
    assert max(theirs / ours for theirs, ours, _, _ in compare(line, 2)) >= 100
