"""Edges that say nothing: leaving them out makes every pass over a graph shorter and changes no schedule.

An edge from u to v is implied if another path from u to v takes at least as long as the edge's longest delay, by the
least costs of the tasks between alone. The tasks between then hold v up as long as the edge would, wherever all of
them run. With no delays this is the transitive reduction (Aho, Garey, Ullman 1972). All implied edges may go at once:
where a path leads over one of them, the path that implies that one leads past even more tasks.
"""

from __future__ import annotations

import numpy as np

from planner.graph.jit import kernel
from planner.graph.paths import Links, links
from planner.graph.task_graph import I64
from planner.schedule.sequences import Flags
from planner.schedule.timeline import Problem

MOST_TASKS = 3_000
"""Larger graphs keep all edges: the work grows with tasks times edges."""


def essential(prob: Problem) -> Problem:
    """The problem without the edges that others imply."""
    if len(prob.compute) > MOST_TASKS or not len(prob.nbytes) or not prob.compute.size:
        return prob
    longest = np.zeros(len(prob.nbytes), np.int64)
    for latency, per_mib in sorted(set(zip(prob.latency.ravel().tolist(), prob.per_mib.ravel().tolist(), strict=True))):
        np.maximum(longest, latency + ((prob.nbytes * per_mib + 1048575) >> 20), out=longest)
    implied = _implied(prob.links, prob.compute.min(axis=1), longest)
    if not implied.any():
        return prob
    kept = np.flatnonzero(~implied)
    src, dst = prob.links.src[kept].astype(np.int32), prob.links.dst[kept].astype(np.int32)
    return prob._replace(links=links(len(prob.compute), src, dst), nbytes=prob.nbytes[kept])


@kernel
def _implied(adjacency: Links, cost: I64, delay: I64) -> Flags:
    """[edges] whether another path makes the edge needless; of parallel edges the longest delay stays."""
    n = len(cost)
    implied = np.zeros(len(delay), np.bool_)
    between = np.empty(n, np.int64)  # longest sum of costs of the tasks between u and a task, -1: no path with any
    direct = np.zeros(n, np.bool_)
    for u in range(n):
        last = u
        for i in range(adjacency.out_start[u], adjacency.out_start[u + 1]):
            last = max(last, adjacency.dst[adjacency.out_edge[i]])
        for task in range(u, last + 1):
            between[task] = -1
            direct[task] = False
        for i in range(adjacency.out_start[u], adjacency.out_start[u + 1]):
            direct[adjacency.dst[adjacency.out_edge[i]]] = True
        for task in range(u + 1, last + 1):
            for i in range(adjacency.in_start[task], adjacency.in_start[task + 1]):
                src = adjacency.src[adjacency.in_edge[i]]
                if src > u and (between[src] >= 0 or direct[src]):
                    between[task] = max(between[task], max(between[src], 0) + cost[src])
        for i in range(adjacency.out_start[u], adjacency.out_start[u + 1]):
            edge = adjacency.out_edge[i]
            task = adjacency.dst[edge]
            if between[task] >= delay[edge]:
                implied[edge] = True
            for j in range(adjacency.out_start[u], i):
                other = adjacency.out_edge[j]
                if adjacency.dst[other] == task and not implied[other]:
                    if delay[other] >= delay[edge]:
                        implied[edge] = True
                    else:
                        implied[other] = True
    return implied
