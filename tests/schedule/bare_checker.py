"""Is an answer of ``fddps schedule`` a schedule of its line? Plain Python on the JSON alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any


def bare_problems(line: Mapping[str, Any], answer: Mapping[str, Any], processors: int | None = None) -> list[str]:
    """What is wrong, one line each; empty if nothing is.

    Args:
        line: the task graph.
        answer: ``makespan`` and ``tasks``.
        processors: of a line that has none.
    """
    count = line.get("processors", processors)
    weights = line["weights"]
    rows = weights if weights and isinstance(weights[0], list) else [weights]
    n = len(rows[0])
    kinds = line.get("kinds", [p // (count // len(rows)) for p in range(count)])
    tasks = answer["tasks"]
    if len(tasks) != n:
        return [f"{len(tasks)} of {n} tasks"]
    found = []
    for task, (device, start, finish) in enumerate(tasks):
        if not 0 <= device < count:
            return [f"task {task} on no device: {device}"]
        if start < 0 or not math.isclose(finish - start, rows[kinds[device]][task], abs_tol=2e-6):
            found.append(f"task {task} from {start} to {finish}")
    for device in range(count):
        spans = sorted((s, f) for d, s, f in tasks if d == device)
        found += [f"overlap on {device} at {b[0]}" for a, b in pairwise(spans) if b[0] < a[1] - 2e-6]
    node_of = line.get("node_of", [0] * count)
    for edge in line["edges"]:
        src, dst, delay = (*edge, 0)[:3]
        a, b = tasks[src][0], tasks[dst][0]
        if a == b:
            delay = 0
        elif node_of[a] != node_of[b]:
            delay *= line.get("remote_factor", 1)
        if tasks[dst][1] < tasks[src][2] + delay - 2e-6:
            found.append(f"edge {src} -> {dst}")
    if "memory_limit" in line:
        limit = line["memory_limit"]
        limits = limit if isinstance(limit, list) else [limit] * count
        for device in range(count):
            used = sum(line["memory"][t] for t in range(n) if tasks[t][0] == device)
            if used > limits[device]:
                found.append(f"device {device} holds {used} of {limits[device]}")
    homes: dict[int, int] = {}
    for task, group in enumerate(line.get("together", ())):
        if group is not None and homes.setdefault(group, tasks[task][0]) != tasks[task][0]:
            found.append(f"task {task} is apart from the others of {group}")
    if not math.isclose(answer["makespan"], max((f for _, _, f in tasks), default=0), abs_tol=1e-9):
        found.append(f"makespan {answer['makespan']}")
    return found
