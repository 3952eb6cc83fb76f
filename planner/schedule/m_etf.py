"""m-ETF: earliest task first within memory limits.

Jeon, Cai, Srivastava, Jiang, Ke, Meng, Xie, Gupta: Baechi: fast device placement of machine learning graphs. SoCC 2020
(public code: beomyeol/baechi). Theirs: of all pairs of a ready operator and a device that has room for it, the one that
can start earliest; a device without room is out. Ours, where that ends with an operator that fits nowhere: the packing
by weights alone that all planners here share, with ETF's order.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InfeasibleError
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.etf import etf
from planner.schedule.lists import schedule_fixed
from planner.schedule.memory import pack


def m_etf(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by m-ETF; arguments and errors as :func:`planner.schedule.etf.etf`."""
    try:
        return etf(graph, comm, memory_limit=memory_limit)
    except InfeasibleError:
        if memory_limit is None:
            raise
        return schedule_fixed(graph, comm, pack(graph, memory_limit))
