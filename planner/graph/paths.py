"""Adjacency in compressed form and longest paths over edge lists.

Tasks are numbered in a topological order, so that one pass forwards (backwards) over the tasks visits every
producer before (after) its consumers. All lengths are integer nanoseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.graph.jit import kernel
from planner.graph.task_graph import I32, I64


class Links(NamedTuple):
    """Edges by task: those that leave ``t`` are ``out_edge[out_start[t]:out_start[t + 1]]``; likewise those that enter.

    Attributes:
        src: [edges] producer.
        dst: [edges] consumer.
        out_start: [tasks + 1] first position in ``out_edge``.
        out_edge: [edges] edge indices grouped by producer, in edge order.
        in_start: [tasks + 1] first position in ``in_edge``.
        in_edge: [edges] edge indices grouped by consumer, in edge order.
    """

    src: I64
    dst: I64
    out_start: I64
    out_edge: I64
    in_start: I64
    in_edge: I64


def group(keys: I64, num_groups: int) -> tuple[I64, I64]:
    """Indices of ``keys`` grouped by key: (first position of each group [num_groups + 1], indices [len(keys)])."""
    start = np.zeros(num_groups + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=num_groups), out=start[1:])
    return start, np.argsort(keys, kind="stable").astype(np.int64)


def links(num_tasks: int, edge_src: I32, edge_dst: I32) -> Links:
    """Adjacency of an edge list; parallel edges are kept.

    Args:
        num_tasks: number of tasks.
        edge_src: [edges] producers.
        edge_dst: [edges] consumers.
    """
    src, dst = edge_src.astype(np.int64), edge_dst.astype(np.int64)
    return Links(src, dst, *group(src, num_tasks), *group(dst, num_tasks))


@kernel
def levels(adjacency: Links) -> I64:
    """[tasks] largest number of edges on a path that ends in each task."""
    n = len(adjacency.in_start) - 1
    level = np.zeros(n, np.int64)
    for t in range(n):
        for k in range(adjacency.in_start[t], adjacency.in_start[t + 1]):
            level[t] = max(level[t], level[adjacency.src[adjacency.in_edge[k]]] + 1)
    return level


@kernel
def top_levels(adjacency: Links, task_ns: I64, edge_ns: I64) -> I64:
    """[tasks] length of the longest path that ends where each task starts; the task itself not counted."""
    n = len(task_ns)
    top = np.zeros(n, np.int64)
    for t in range(n):
        for k in range(adjacency.in_start[t], adjacency.in_start[t + 1]):
            e = adjacency.in_edge[k]
            s = adjacency.src[e]
            top[t] = max(top[t], top[s] + task_ns[s] + edge_ns[e])
    return top


@kernel
def bottom_levels(adjacency: Links, task_ns: I64, edge_ns: I64) -> I64:
    """[tasks] length of the longest path that begins with each task; the task itself counted."""
    n = len(task_ns)
    bottom = np.zeros(n, np.int64)
    for t in range(n - 1, -1, -1):
        longest = 0
        for k in range(adjacency.out_start[t], adjacency.out_start[t + 1]):
            e = adjacency.out_edge[k]
            longest = max(longest, edge_ns[e] + bottom[adjacency.dst[e]])
        bottom[t] = task_ns[t] + longest
    return bottom


def critical_path(adjacency: Links, task_ns: I64, edge_ns: I64) -> tuple[int, ...]:
    """Tasks of a longest path from first to last; of several, the one with the lowest numbers. Empty for no tasks."""
    bottom = bottom_levels(adjacency, task_ns, edge_ns)
    if len(bottom) == 0:
        return ()
    path = [int(np.argmax(bottom))]
    while True:
        task = path[-1]
        rest = int(bottom[task] - task_ns[task])
        edges = adjacency.out_edge[adjacency.out_start[task] : adjacency.out_start[task + 1]]
        following = [int(adjacency.dst[e]) for e in edges if int(edge_ns[e] + bottom[adjacency.dst[e]]) == rest]
        if not following:
            return tuple(path)
        path.append(min(following))
