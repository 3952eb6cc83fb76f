"""PEFT: predict earliest finish time.

Arabnejad, Barbosa: List scheduling algorithm for heterogeneous systems by an optimistic cost table. IEEE Transactions
on Parallel and Distributed Systems 25(3), 2014.

===========  ======================================================================  ===========
paper        meaning                                                                 here
===========  ======================================================================  ===========
OCT(t, p)    max over children s of min over devices w of OCT(s, w) + w(s, w) + the  ``table``
             mean delay of the edge, 0 for w = p (equation 5)
rank_oct     mean of OCT(t, .) (equation 6): ready tasks by falling rank             ``rank``
O_EFT        earliest finish, idle slots used, plus OCT (equation 7): the least      ``ahead``
             decides
===========  ======================================================================  ===========

The inner minimum needs no loop over pairs of devices: the delay is one number an edge, so it is the smaller of the
least over all devices plus the delay, and the device's own without it. Ties: lower task number, first device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.lists import place_ahead, priority_order, require_devices
from planner.schedule.timeline import Problem, mean_costs, problem


def peft(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by PEFT.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        memory_limit: bytes a device; a device that a task's weights would overflow is not eligible. None for no limit.

    Raises:
        InfeasibleError: if the weights do not fit.
        UsageError: if there is no device.
    """
    require_devices(graph)
    prob = problem(graph, comm)
    table = optimistic_costs(prob)
    rank = table.sum(axis=1) // max(graph.num_devices, 1)
    return place_ahead(graph, prob, priority_order(prob.links, rank), table, memory_limit)


def optimistic_costs(prob: Problem) -> I64:
    """[tasks, devices] OCT: the least that must still run after a task on a device, by mean delays."""
    _, edge_ns = mean_costs(prob)
    table = np.zeros(prob.compute.shape, np.int64)
    first, out, dst = prob.links.out_start, prob.links.out_edge, prob.links.dst
    for task in range(len(table) - 1, -1, -1):
        edges = out[first[task] : first[task + 1]]
        if len(edges):
            own = table[dst[edges]] + prob.compute[dst[edges]]
            away = own.min(axis=1, keepdims=True) + edge_ns[edges][:, None]
            table[task] = np.minimum(own, away).max(axis=0)
    return table
