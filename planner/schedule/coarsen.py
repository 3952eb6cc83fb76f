"""Contracting tasks that no schedule should part, before scheduling.

Three contractions, none of which can make a cycle: a chain (the only successor of one is the only
successor's only predecessor), a task too small to be worth sending its result away, into its only
successor, and one too small to be worth sending its input to, into its only predecessor. "Too small": the transfer
costs at least as much as the task. The first and the condition's form are after MP-DPS's node merging (public code of
its group: merge u into its only successor v when comm(u, v) >= (w(u) + w(v)) / 2); the condition itself is ours.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from planner.graph.task_graph import CommCosts, Schedule, TaskGraph


@dataclass(frozen=True, slots=True, eq=False)
class Coarse:
    """A contracted task graph.

    Attributes:
        tasks: the contracted graph.
        members: tasks of the fine graph in each contracted one, ascending.
    """

    tasks: TaskGraph
    members: tuple[tuple[int, ...], ...]

    def expand(self, schedule: Schedule, fine: TaskGraph) -> Schedule:
        """The schedule of the fine graph: members run one after the other where their contracted task runs."""
        device = np.zeros(fine.num_tasks, dtype=np.int32)
        start = np.zeros(fine.num_tasks, dtype=np.int64)
        finish = np.zeros(fine.num_tasks, dtype=np.int64)
        for number, tasks in enumerate(self.members):
            where = int(schedule.device[number])
            now = int(schedule.start_ns[number])
            for task in tasks:
                device[task] = where
                start[task] = now
                now += int(fine.compute_ns[task, where])
                finish[task] = now
        return Schedule(device, start, finish)


def coarsen(tasks: TaskGraph, comm: CommCosts) -> Coarse:
    """Contract a task graph.

    Args:
        tasks: the fine graph.
        comm: transfer costs; the cheapest link counts.
    """
    parent = list(range(tasks.num_tasks))
    cost = [int(value) for value in tasks.compute_ns.mean(axis=1)] if tasks.num_tasks else []
    succ: list[dict[int, int]] = [{} for _ in parent]
    pred: list[dict[int, int]] = [{} for _ in parent]
    carried = tasks.tensor_bytes[tasks.edge_tensor].tolist()
    for u, v, nbytes in zip(tasks.edge_src.tolist(), tasks.edge_dst.tolist(), carried, strict=True):
        succ[u][v] = succ[u].get(v, 0) + nbytes
        pred[v][u] = pred[v].get(u, 0) + nbytes
    latency, per_mib = _cheapest(comm)
    bound = wished(tasks)
    changed = True
    while changed:
        changed = False
        for u in range(len(parent)):
            while parent[u] == u and len(succ[u]) == 1:
                ((v, nbytes),) = succ[u].items()
                if bound[u] or bound[v]:
                    break
                if len(pred[v]) > 1 and latency + nbytes * per_mib // 2**20 < cost[u]:
                    break
                _absorb(u, v, parent, cost, succ, pred)
                changed = True
            while parent[u] == u and len(pred[u]) == 1:
                ((v, nbytes),) = pred[u].items()
                if bound[u] or bound[v]:
                    break
                if latency + nbytes * per_mib // 2**20 < cost[u]:
                    break
                _absorb(u, v, parent, cost, succ, pred)
                changed = True
    return contracted(tasks, parent)


def wished(tasks: TaskGraph) -> list[bool]:
    """Whether a task's device is a matter of the user's wishes: such a task is contracted with no other."""
    bound = np.zeros(tasks.num_tasks, np.bool_)
    if tasks.allowed is not None:
        bound |= ~tasks.allowed.all(axis=1)
    if tasks.together is not None:
        bound |= tasks.together >= 0
    found: list[bool] = bound.tolist()
    return found


def _cheapest(comm: CommCosts) -> tuple[int, int]:
    count = comm.latency_ns.shape[0]
    others = ~np.eye(count, dtype=bool)
    if count < 2:
        return 0, 0
    return int(comm.latency_ns[others].min()), int(comm.ns_per_mib[others].min())


def _absorb(
    gone: int, into: int, parent: list[int], cost: list[int], succ: list[dict[int, int]], pred: list[dict[int, int]]
) -> None:
    """Contract ``gone`` into its neighbour ``into``."""
    parent[gone] = into
    cost[into] += cost[gone]
    for other, nbytes in succ[gone].items():
        del pred[other][gone]
        if other != into:
            succ[into][other] = succ[into].get(other, 0) + nbytes
            pred[other][into] = pred[other].get(into, 0) + nbytes
    for other, nbytes in pred[gone].items():
        del succ[other][gone]
        if other != into:
            pred[into][other] = pred[into].get(other, 0) + nbytes
            succ[other][into] = succ[other].get(into, 0) + nbytes
    succ[gone], pred[gone] = {}, {}


def contracted(tasks: TaskGraph, parent: list[int]) -> Coarse:
    """The graph of groups of tasks.

    Args:
        tasks: the fine graph.
        parent: [tasks] another task of its group, or itself: a forest, one tree a group. The groups make no cycle.
    """

    def root(item: int) -> int:
        while parent[item] != item:
            item = parent[item]
        return item

    roots = [root(item) for item in range(len(parent))]
    members: dict[int, list[int]] = {}
    for task, where in enumerate(roots):
        members.setdefault(where, []).append(task)
    order = _topological(roots, list(members), tasks)
    number = {where: position for position, where in enumerate(order)}
    edges = sorted(
        {
            (number[roots[u]], number[roots[v]], t)
            for u, v, t in zip(
                tasks.edge_src.tolist(), tasks.edge_dst.tolist(), tasks.edge_tensor.tolist(), strict=True
            )
            if roots[u] != roots[v]
        }
    )
    columns = np.array(edges, dtype=np.int32).reshape(len(edges), 3)
    groups = [members[where] for where in order]
    weights = [_weights(tasks, group) for group in groups]
    coarse = TaskGraph(
        tuple(tasks.names[group[0]] for group in groups),
        np.array([tasks.compute_ns[group].sum(axis=0) for group in groups], dtype=np.int64).reshape(
            len(groups), tasks.num_devices
        ),
        columns[:, 0].copy(),
        columns[:, 1].copy(),
        columns[:, 2].copy(),
        tasks.tensor_bytes,
        np.array([sum(sizes.values()) for sizes in weights], dtype=np.int64),
        np.array([max(*sizes, -1) if len(sizes) == 1 else -1 for sizes in weights], dtype=np.int32),
        np.array([tasks.output_bytes[group].max() for group in groups], dtype=np.int64),
        None if tasks.allowed is None else np.array([tasks.allowed[group].all(axis=0) for group in groups]),
        None if tasks.together is None else np.array([tasks.together[group].max() for group in groups], np.int64),
        tasks.weights_only,
    )
    return Coarse(coarse, tuple(tuple(group) for group in groups))


def _weights(tasks: TaskGraph, group: list[int]) -> dict[int, int]:
    """Bytes of a group's weights by their number; what has none (-1) gets one of its own that nobody shares."""
    found: dict[int, int] = {}
    for task in group:
        nbytes, number = int(tasks.weight_bytes[task]), int(tasks.weight_id[task])
        if nbytes:
            found[number if number >= 0 else -2 - task] = nbytes
    return found


def _topological(roots: list[int], found: list[int], tasks: TaskGraph) -> list[int]:
    """Roots in a topological order of the contracted graph, earliest member first."""
    waits = dict.fromkeys(found, 0)
    after: dict[int, list[int]] = {where: [] for where in found}
    pairs = {
        (roots[u], roots[v])
        for u, v in zip(tasks.edge_src.tolist(), tasks.edge_dst.tolist(), strict=True)
        if roots[u] != roots[v]
    }
    for u, v in sorted(pairs):
        waits[v] += 1
        after[u].append(v)
    first: dict[int, int] = {}
    for task, where in enumerate(roots):
        first.setdefault(where, task)
    heap = [(first[where], where) for where in found if waits[where] == 0]
    heapq.heapify(heap)
    order = []
    while heap:
        _, where = heapq.heappop(heap)
        order.append(where)
        for other in after[where]:
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(heap, (first[other], other))
    return order
