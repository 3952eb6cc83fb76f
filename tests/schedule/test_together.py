"""Tasks that must stay together, under memory limits: what can be placed with room to spare is never refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.auto import auto
from planner.schedule.bare import parse_bare
from planner.schedule.planners import PLANNERS, TaskScheduler
from tests.schedule.bare_checker import bare_problems


def quick(graph: TaskGraph, comm: CommCosts, *, memory_limit: Any = None) -> Schedule:
    return auto(graph, comm, memory_limit=memory_limit, effort="quick")


# One device and plain ETF refuse what they could not place; all others fall back on packing.
PACKING: dict[str, TaskScheduler] = {
    p.name: quick if p.name == "auto" else p.on_tasks
    for p in PLANNERS.values()
    if p.on_tasks is not None and p.name not in ("one-device", "etf")
}


@st.composite
def roomy_lines(draw: st.DrawFn) -> dict[str, Any]:
    """A line made from a placement of its groups: every processor has twice the memory that it needs for its own."""
    processors = draw(st.integers(1, 4))
    homes = draw(st.lists(st.integers(0, processors - 1), min_size=1, max_size=6))
    together = draw(st.lists(st.integers(0, len(homes) - 1) | st.none(), min_size=1, max_size=14))
    n = len(together)
    memory = draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))
    used = [0] * processors
    for group, size in zip(together, memory, strict=True):
        used[draw(st.integers(0, processors - 1)) if group is None else homes[group]] += size
    pairs = [(a, b) for b in range(n) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=20, unique=True)) if pairs else []
    return {
        "processors": processors,
        "weights": draw(st.lists(st.integers(1, 30), min_size=n, max_size=n)),
        "edges": [[a, b, draw(st.integers(0, 20))] for a, b in chosen],
        "memory": memory,
        "memory_limit": [2 * size for size in used],
        "together": together,
    }


def problems_of(line: dict[str, Any], scheduler: TaskScheduler) -> list[str]:
    """What is wrong with a schedule of a line; InfeasibleError if it is refused."""
    found = parse_bare(line)
    schedule = scheduler(found.graph, found.comm, memory_limit=found.memory_limit)
    return bare_problems(line, found.answer(schedule))


@pytest.mark.parametrize("scheduler", PACKING.values(), ids=PACKING)
@settings(max_examples=40, deadline=None)
@given(line=roomy_lines())
def test_what_fits_with_room_to_spare_is_scheduled(scheduler: TaskScheduler, line: dict[str, Any]) -> None:
    assert problems_of(line, scheduler) == []


@pytest.mark.parametrize("scheduler", PACKING.values(), ids=PACKING)
def test_groups_are_packed_whole(scheduler: TaskScheduler) -> None:
    # Everything is drawn to the first processor, and the large members of both groups fit there; both groups do not.
    line = {
        "processors": 2,
        "weights": [[1] * 6, [50] * 6],
        "edges": [],
        "memory": [50, 45, 10, 45, 40, 10],
        "memory_limit": 100,
        "together": [0, 1, 0, 1, 0, 1],
    }
    assert problems_of(line, scheduler) == []
