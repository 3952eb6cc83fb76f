"""All planners by name: what each is, in a line, and how it schedules bare tasks and models.

The order is that of ``fddps planners``, from the simple choices to ours; where two plans are equally fast, the earlier
planner's is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from planner.errors import UsageError
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.auto import auto, on_one_device
from planner.schedule.auto_drafts import auto_draft
from planner.schedule.dcp import dcp
from planner.schedule.drafts import Draft, Setting, all_cores_draft, data_parallel_draft, list_draft, one_device_draft
from planner.schedule.etf import etf
from planner.schedule.fastt import fastt
from planner.schedule.fastt_drafts import fastt_dp_draft, fastt_draft
from planner.schedule.fd_dps import fd_dps_draft
from planner.schedule.heft import heft
from planner.schedule.m_etf import m_etf
from planner.schedule.m_sct import m_sct
from planner.schedule.m_topo import m_topo
from planner.schedule.mp_dps import mp_dps
from planner.schedule.peft import peft
from planner.schedule.pipeline import pipeline
from planner.schedule.pipeline_drafts import pipeline_draft
from planner.schedule.ready_dcp import ready_dcp


class TaskScheduler(Protocol):
    """Schedules tasks that cannot be split."""

    def __call__(self, graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
        """Schedule within limits (bytes a device; None for none)."""
        ...


@dataclass(frozen=True, slots=True)
class Planner:
    """A planner.

    Attributes:
        name: what ``--planner`` takes.
        about: one line.
        on_model: makes a candidate for a model.
        on_tasks: schedules bare tasks; None for one that needs a model.
    """

    name: str
    about: str
    on_model: Callable[[Setting], Draft]
    on_tasks: TaskScheduler | None = None


def _plain(name: str, about: str, scheduler: TaskScheduler) -> Planner:
    """A planner of the unsplit graph."""
    return Planner(name, about, lambda setting: list_draft(setting, name, scheduler), scheduler)


_ALL: Final = (
    Planner("one-device", "everything on the device that is fastest alone", one_device_draft, on_one_device),
    Planner("all-cores", "one session over the cores of all CPU devices", all_cores_draft),
    Planner("data-parallel", "the batch cut at the inputs, a shard a device", data_parallel_draft),
    _plain("heft", "heterogeneous earliest finish time (Topcuoglu et al. 2002)", heft),
    _plain("peft", "predict earliest finish time: optimistic cost table (Arabnejad, Barbosa 2014)", peft),
    _plain("etf", "earliest task first (Hwang et al. 1989)", etf),
    _plain("m-topo", "topological order, memory shared out evenly (Baechi, Jeon et al. 2020)", m_topo),
    _plain("m-etf", "earliest task first within memory limits (Baechi)", m_etf),
    _plain("m-sct", "small communication times: a favourite child stays (Baechi; Hanen, Munier 2001)", m_sct),
    _plain("dcp", "dynamic critical path as published (Kwok, Ahmad 1996), devices given", dcp),
    _plain("mp-dps", "merged operators, the rest of the critical path predicted (FD-DPS' forerunner)", mp_dps),
    Planner("fastt", "critical path on one device, its operators split (Yi et al. 2020)", fastt_draft, fastt),
    Planner("fastt-dp", "the same, from the data-parallel graph", fastt_dp_draft),
    Planner("pipeline", "contiguous stages by dynamic programming, micro-batches", pipeline_draft, pipeline),
    Planner("fd-dps", "splits, dynamic critical path, priority schedule (Zeng et al. 2022)", fd_dps_draft, ready_dcp),
    Planner("auto", "ours: all that helps, then improved by search", auto_draft, auto),
)
PLANNERS: Final = {planner.name: planner for planner in _ALL}


def find_planner(name: str) -> Planner:
    """A planner by name.

    Raises:
        UsageError: if there is none.
    """
    if name not in PLANNERS:
        raise UsageError(f"there is no planner '{name}'", where="--planner", expected=f"one of {', '.join(PLANNERS)}")
    return PLANNERS[name]
