"""HEFT: heterogeneous earliest finish time.

Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for heterogeneous computing. IEEE
Transactions on Parallel and Distributed Systems 13(3), 2002.

=============  ===============================================================  =================
paper          meaning                                                          here
=============  ===============================================================  =================
w(i, j)        cost of task i on processor j                                    ``compute[i, j]``
mean w(i)      its mean over the processors (equation 1)                        ``mean_costs``
mean c(i, k)   mean transfer time of edge (i, k) (equation 3)                   ``mean_costs``
EST, EFT       earliest start and finish, idle slots used (equations 5 and 6)   ``earliest_slot``
rank_u(i)      mean w(i) + max over children of mean c + rank_u (equation 8)    ``mean_bottom_levels``
=============  ===============================================================  =================

Tasks by falling rank_u, ties by number; of the devices with the same finish, the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.lists import list_schedule, mean_bottom_levels, require_devices
from planner.schedule.timeline import problem


def heft(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by HEFT.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        memory_limit: bytes a device; a device that a task's weights would overflow is not eligible. None for no limit.

    Raises:
        InfeasibleError: if the weights do not fit.
        UsageError: if there is no device.
    """
    require_devices(graph)
    return list_schedule(graph, comm, mean_bottom_levels(problem(graph, comm)), memory_limit=memory_limit)
