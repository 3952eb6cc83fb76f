"""m-SCT: small communication times, within memory limits.

Hanen, Munier: An approximation algorithm for scheduling dependent tasks on m processors with small communication
delays. Discrete Applied Mathematics 108, 2001; made aware of memory in Jeon et al.: Baechi, SoCC 2020. Theirs: each
task has at most one favourite child, and is the favourite of at most one parent; the edge to it costs no delay on
unlimited devices; which child is favourite is found by relaxing an integer programme that minimises the longest path,
and rounding. Then tasks are scheduled as by ETF, but a device is kept for the favourite child of what it ran last.

Ours: the integer programme (minimise the longest path over x in {0, 1}, with x = 0 on one edge a parent and one a
child) is solved by ascent in place of relaxed and rounded: as long as it shortens the longest path, the edge with the
largest delay on it becomes the favourite one. No solver is needed, and nothing has to be rounded. Then both the
schedule that keeps devices free and the one that only prefers the parent's device are made; the shorter one is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import InfeasibleError
from planner.graph.paths import bottom_levels, top_levels
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph
from planner.schedule.etf import earliest_first, static_levels
from planner.schedule.lists import require_devices, schedule_fixed
from planner.schedule.memory import Held, pack
from planner.schedule.timeline import Problem, mean_costs, problem, to_schedule


def m_sct(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """Schedule by m-SCT; arguments and errors as :func:`planner.schedule.heft.heft`."""
    require_devices(graph)
    prob = problem(graph, comm)
    favourite = favourite_children(prob)
    task_ns, edge_ns = mean_costs(prob)
    kept = edge_ns.copy()
    kept[favourite[prob.links.src] == prob.links.dst] = 0
    found = []
    for level, children in ((static_levels(prob), favourite), (bottom_levels(prob.links, task_ns, kept), None)):
        try:
            placed = earliest_first(prob, Held(graph, memory_limit), level, children)
        except InfeasibleError:
            continue
        found.append(to_schedule(prob, *placed))
    if not found:
        return schedule_fixed(graph, comm, pack(graph, memory_limit))
    return min(found, key=lambda schedule: schedule.makespan_ns)


def favourite_children(prob: Problem) -> I64:
    """[tasks] the child that should follow at once on the same device, -1 for none."""
    n = len(prob.compute)
    task_ns, edge_ns = mean_costs(prob)
    edge_ns = edge_ns.copy()
    favourite, has_parent = np.full(n, -1, np.int64), np.zeros(n, bool)
    links = prob.links
    if not n:
        return favourite
    # Every round fixes one edge or ends; long paths of large graphs are dealt with several edges at a time.
    for _ in range(n):
        bottom, top = bottom_levels(links, task_ns, edge_ns), top_levels(links, task_ns, edge_ns)
        length = int(bottom.max())
        through = top[links.src] + task_ns[links.src] + edge_ns + bottom[links.dst]
        on_path = (through == length) & (favourite[links.src] < 0) & ~has_parent[links.dst] & (edge_ns > 0)
        candidates = np.flatnonzero(on_path)
        if not len(candidates):
            break
        for edge in candidates[np.argsort(-edge_ns[candidates], kind="stable")].tolist():
            parent, child = int(links.src[edge]), int(links.dst[edge])
            if favourite[parent] < 0 and not has_parent[child]:
                favourite[parent], has_parent[child] = child, True
                edge_ns[(links.src == parent) & (links.dst == child)] = 0
                if len(candidates) < n // 64 + 2:
                    break
    return favourite
