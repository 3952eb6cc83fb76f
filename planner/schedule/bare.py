"""Task graphs without a model: the format of public collections of schedules with a known optimum.

One JSON object: ``processors``, ``weights`` (duration of each task), ``edges`` ([from, to] or [from, to, delay]; the
delay counts if the two run on different processors). Tasks may be in any order.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.errors import UsageError
from planner.graph.task_graph import CommCosts, TaskGraph


def load_bare(line: Mapping[str, Any]) -> tuple[TaskGraph, CommCosts]:
    """A bare instance as arrays: a time unit is a nanosecond, a delay of ``n`` a tensor of ``n`` bytes at 1 ns a byte.

    Args:
        line: ``processors``, ``weights`` and ``edges`` of one instance.

    Raises:
        UsageError: if the edges are no DAG over the tasks.
    """
    weights, devices = line["weights"], int(line["processors"])
    edges = [(int(e[0]), int(e[1]), int(e[2]) if len(e) > 2 else 0) for e in line["edges"]]
    order = _topological(len(weights), edges, str(line.get("name", "instance")))
    number = {task: position for position, task in enumerate(order)}
    renumbered = sorted((number[s], number[d], delay) for s, d, delay in edges)
    columns = np.array(renumbered, np.int64).reshape(-1, 3)
    durations = np.array([weights[task] for task in order], np.int64).reshape(-1, 1)
    zeros = np.zeros(len(order), np.int64)
    graph = TaskGraph(
        names=tuple(str(task) for task in order),
        compute_ns=np.repeat(durations, devices, axis=1),
        edge_src=columns[:, 0].astype(np.int32),
        edge_dst=columns[:, 1].astype(np.int32),
        edge_tensor=np.arange(len(columns), dtype=np.int32),
        tensor_bytes=columns[:, 2].copy(),
        weight_bytes=zeros,
        weight_id=np.full(len(order), -1, np.int32),
        output_bytes=zeros,
    )
    return graph, uniform_comm(devices)


def uniform_comm(devices: int, ns_per_mib: int = 2**20, latency_ns: int = 0) -> CommCosts:
    """Equal links between all devices; by default 1 ns a byte."""
    away = 1 - np.eye(devices, dtype=np.int64)
    return CommCosts(latency_ns=away * latency_ns, ns_per_mib=away * ns_per_mib)


def _topological(num_tasks: int, edges: Sequence[tuple[int, int, int]], name: str) -> list[int]:
    """The topological order with the lowest numbers first (Kahn 1962, with a heap)."""
    waiting = [0] * num_tasks
    after: list[list[int]] = [[] for _ in range(num_tasks)]
    for src, dst, _ in edges:
        if not (0 <= src < num_tasks and 0 <= dst < num_tasks):
            raise UsageError(f"edge {src} -> {dst} names no task", where=name, expected=f"tasks 0 to {num_tasks - 1}")
        waiting[dst] += 1
        after[src].append(dst)
    ready = [task for task in range(num_tasks) if not waiting[task]]
    order = []
    while ready:
        task = heapq.heappop(ready)
        order.append(task)
        for dst in after[task]:
            waiting[dst] -= 1
            if not waiting[dst]:
                heapq.heappush(ready, dst)
    if len(order) < num_tasks:
        raise UsageError("the edges form a cycle", where=name, expected="a directed acyclic graph")
    return order
