"""Lower bounds on the makespan of a task graph on given devices, in integers.

Each holds for every schedule: (1) a path takes at least the sum of its tasks' least costs, with all transfers free;
(2) the least costs of all tasks, spread evenly over the devices; (3) for each ``h``, the work of all tasks that cannot
start before ``h``, spread evenly over the devices, after ``h`` (Fernandez and Bussell 1973, one-sided); likewise from
the end.
"""

from __future__ import annotations

import numpy as np

from planner.graph.paths import bottom_levels, links, top_levels
from planner.graph.task_graph import I64, TaskGraph


def lower_bound_ns(graph: TaskGraph) -> int:
    """The largest of all bounds here; 0 for an empty graph."""
    return max(critical_path_bound_ns(graph), work_bound_ns(graph), staggered_bound_ns(graph))


def critical_path_bound_ns(graph: TaskGraph) -> int:
    """Longest path with each task at its least cost and free transfers. At least the longest single task."""
    return int(_bottom(graph).max(initial=0))


def work_bound_ns(graph: TaskGraph) -> int:
    """Sum of the least costs over the number of devices, rounded up."""
    if not graph.num_tasks:
        return 0
    return -(-int(_least(graph).sum()) // graph.num_devices)


def staggered_bound_ns(graph: TaskGraph) -> int:
    """Work that cannot start before a time, spread over the devices after it; and the mirror image from the end."""
    if not graph.num_tasks:
        return 0
    least, bottom = _least(graph), _bottom(graph)
    adjacency = links(graph.num_tasks, graph.edge_src, graph.edge_dst)
    head = top_levels(adjacency, least, np.zeros(len(graph.edge_src), np.int64))
    tail = bottom - least  # what must still run after a task
    return max(_staggered(level, least, graph.num_devices) for level in (head, tail))


def _staggered(level: I64, work: I64, devices: int) -> int:
    """Max over thresholds of threshold + ceil(work of tasks at or above it / devices)."""
    order = np.argsort(-level, kind="stable")
    above = np.cumsum(work[order])
    # Of tasks with the same level only the last sums them all; the others give smaller, valid bounds.
    return int((level[order] - (-above // devices)).max())


def _least(graph: TaskGraph) -> I64:
    return graph.compute_ns.min(axis=1).astype(np.int64) if graph.num_tasks else np.zeros(0, np.int64)


def _bottom(graph: TaskGraph) -> I64:
    adjacency = links(graph.num_tasks, graph.edge_src, graph.edge_dst)
    return bottom_levels(adjacency, _least(graph), np.zeros(len(graph.edge_src), np.int64))
