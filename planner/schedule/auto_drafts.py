"""Ours on models: the splits of FD-DPS' search, scheduled in several ways, and improved by search.

Every set of splits is scheduled by dynamic critical path, by HEFT, and with each shard on the device of its number. The
plans of most rivals are among the drafts as well, and the search goes on from the best of all; those of ``fd-dps`` and
of the simple choices, which race beside, are not made a second time.
With thorough effort the best is then improved by tabu search (``tabu.py``), which thinks in tasks and delays; what it
finds is cut into segments and simulated, and counts only if the simulated step is shorter. With less effort it is left
out: on the networks tried it found nothing, and its kernels take long to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from planner.errors import InfeasibleError
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.bounds import lower_bound_ns
from planner.schedule.coarsen import coarsen
from planner.schedule.drafts import (
    Draft,
    LimitedScheduler,
    Setting,
    dcp_schedule,
    finish,
    list_draft,
    list_schedule_of,
)
from planner.schedule.etf import etf
from planner.schedule.fastt_drafts import fastt_dp_draft, fastt_draft
from planner.schedule.heft import heft
from planner.schedule.hybrids import hybrid_ways
from planner.schedule.lists import schedule_fixed
from planner.schedule.m_sct import m_sct
from planner.schedule.m_topo import m_topo
from planner.schedule.memory import device_need
from planner.schedule.mp_dps import mp_dps
from planner.schedule.peft import peft
from planner.schedule.pipeline_drafts import pipeline_draft
from planner.schedule.split_search import SplitSearch
from planner.schedule.tabu import tabu
from planner.split.types import SplitSpec

# Tasks and edges visited by the improving search.
WORK: Final = 100_000_000


def auto_draft(setting: Setting) -> Draft:
    """The best that our search finds.

    Raises:
        InfeasibleError: if nothing could be scheduled at all.
    """
    search = SplitSearch(setting, _drafts, hybrid_ways, _rivals)
    search.run()
    if search.best is None:
        raise InfeasibleError("no schedule of the graph, split or not, fits the devices' memory")
    if len(setting.cluster.devices) > 1 and setting.effort == "thorough":
        improved = _improved(setting, search.best)
        if improved is not None:
            search.offer(improved)
    return search.best


def _drafts(setting: Setting, splits: Sequence[SplitSpec]) -> Iterator[Draft]:
    workload = setting.workloads.build(splits)
    if splits:
        placement = workload.lanes(setting.shares())
        yield finish(setting, "auto", workload, schedule_fixed(workload.tasks, setting.comm, placement))
    with suppress(InfeasibleError):
        yield finish(setting, "auto", workload, dcp_schedule(setting, workload))
    with suppress(InfeasibleError):
        yield finish(setting, "auto", workload, list_schedule_of(setting, workload, heft))


def _rivals(setting: Setting) -> Iterator[Draft]:
    """What the other planners find; not fd-dps, whose search takes as long as ours and which races beside it anyway."""
    lists = (peft, etf, m_topo, m_sct, mp_dps)
    for make in (fastt_draft, fastt_dp_draft, pipeline_draft, *map(_by, lists)):
        with suppress(InfeasibleError):
            yield replace(make(setting), planner="auto")


def _by(scheduler: LimitedScheduler) -> Callable[[Setting], Draft]:
    return lambda setting: list_draft(setting, "auto", scheduler)


def _improved(setting: Setting, best: Draft) -> Draft | None:
    """The best draft's placement, improved; None if it is no better as a schedule."""
    workload = best.workload
    comm = setting.comm
    coarse = coarsen(workload.tasks, comm)
    where = placement_of(best)
    placement = [where[tasks[0]] for tasks in coarse.members]
    limit = setting.memory_limit
    if any(need > most for need, most in zip(device_need(coarse.tasks, placement), limit, strict=True)):
        return None
    start = schedule_fixed(coarse.tasks, comm, placement)
    found = _search(setting, coarse.tasks, comm, start)
    if found is start:
        return None
    return finish(setting, "auto", workload, coarse.expand(found, workload.tasks))


def _search(setting: Setting, tasks: TaskGraph, comm: CommCosts, start: Schedule) -> Schedule:
    steps = WORK // (tasks.num_tasks + len(tasks.edge_src) + 1)
    return tabu(
        tasks,
        comm,
        start,
        steps=steps,
        target_ns=lower_bound_ns(tasks),
        seed=setting.seed,
        memory_limit=setting.memory_limit,
    )


def placement_of(draft: Draft) -> list[int]:
    """Device of each task of a draft's workload."""
    device = np.zeros(draft.workload.tasks.num_tasks, np.int64)
    for segment in draft.cut.segments:
        device[list(segment.tasks)] = segment.device
    found: list[int] = device.tolist()
    return found
