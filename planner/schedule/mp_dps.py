"""MP-DPS: merge operators, then place those of the critical path by predicting the rest of the path.

The group of FD-DPS, earlier. Theirs: a cost model of several dimensions; node merging that knows of different devices;
graph search with path prediction: the time of the critical path is optimised by predicting the best placement of its
operators. In their public code u is merged into its only successor v when comm(u, v) >= (w(u) + w(v)) / 2, in passes
down to a number of nodes.

Ours, where that is silent: merging stops at ``FEWEST`` nodes; after it, tasks go in the order of their upward rank
(as in HEFT); one on the critical path goes to the device that minimises the predicted finish of the path's remainder
(its own earliest finish, idle slots used, plus the least that the rest of the path takes from that device, over all
placements of it, by dynamic programming), any other one to its earliest finish. Ties: the first device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import InfeasibleError
from planner.graph.paths import bottom_levels, critical_path
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.coarsen import Coarse, contracted, wished
from planner.schedule.lists import place_ahead, priority_order, require_devices
from planner.schedule.timeline import Problem, mean_costs, problem

FEWEST = 64
"""Merging stops here: fewer nodes leave nothing to place."""


def mp_dps(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by MP-DPS; arguments and errors as :func:`planner.schedule.heft.heft`."""
    require_devices(graph)
    merged = merge(graph, comm)
    try:
        return merged.expand(_place(merged.tasks, comm, memory_limit), graph)
    except InfeasibleError:
        # What was merged may be too large for a device where its parts are not.
        return _place(graph, comm, memory_limit)


def merge(graph: TaskGraph, comm: CommCosts) -> Coarse:
    """Merge tasks into their only successor where the transfer costs as much as the two on average."""
    task_ns, edge_ns = mean_costs(problem(graph, comm))
    parent = list(range(graph.num_tasks))
    cost = task_ns.tolist()
    count = graph.num_tasks
    bound = wished(graph)

    def root(task: int) -> int:
        while parent[task] != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    changed = True
    while changed and count > FEWEST:
        changed = False
        delays: dict[int, dict[int, int]] = {}
        for src, dst, ns in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), edge_ns.tolist(), strict=True):
            u, v = root(src), root(dst)
            if u != v:
                delays.setdefault(u, {})
                delays[u][v] = delays[u].get(v, 0) + ns
        for u, after in delays.items():
            if len(after) == 1 and count > FEWEST:
                ((v, ns),) = after.items()
                v = root(v)
                # Its successor may have been merged into u's own group meanwhile: only ever downwards, so it was not.
                if 2 * ns >= cost[u] + cost[v] and not (bound[u] or bound[v]):
                    parent[u] = v
                    cost[v] += cost[u]
                    count -= 1
                    changed = True
    return contracted(graph, parent)


def _place(graph: TaskGraph, comm: CommCosts, memory_limit: Sequence[int] | None) -> Schedule:
    prob = problem(graph, comm)
    task_ns, edge_ns = mean_costs(prob)
    path = critical_path(prob.links, task_ns, edge_ns)
    order = priority_order(prob.links, bottom_levels(prob.links, task_ns, edge_ns))
    return place_ahead(graph, prob, order, _remainders(prob, path), memory_limit)


def _remainders(prob: Problem, path: Sequence[int]) -> I64:
    """[tasks, devices] the least that the path takes behind a task of it on a device; 0 off the path."""
    ahead = np.zeros(prob.compute.shape, np.int64)
    for position in range(len(path) - 2, -1, -1):
        task, following = path[position], path[position + 1]
        edges = prob.links.out_edge[prob.links.out_start[task] : prob.links.out_start[task + 1]]
        nbytes = int(prob.nbytes[edges[prob.links.dst[edges] == following]].max())
        delay = prob.latency + ((nbytes * prob.per_mib + 1048575) >> 20)
        np.fill_diagonal(delay, 0)
        ahead[task] = (delay + (prob.compute[following] + ahead[following])[None, :]).min(axis=1)
    return ahead
