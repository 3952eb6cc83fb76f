"""Schedulable units: operators that belong together.

Operators that ONNX Runtime fuses into one kernel, and operators joined by a value that cannot leave its
segment (a sequence, an optional), are scheduled as one task. Contracting them must leave the graph acyclic: where two
groups would wait for each other, they become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from planner.cost.fusion import fused_groups
from planner.graph.op_graph import Op, OpGraph
from planner.partition.free import free_ops


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The tasks of a split graph as groups of operators.

    Attributes:
        members: operators of each group in the graph's order; groups are in a topological order.
        group_of: operator name -> group number. Free operators have none.
    """

    members: tuple[tuple[Op, ...], ...]
    group_of: dict[str, int]


def group_ops(graph: OpGraph, *device_types: str) -> Groups:
    """Group the operators of a split graph.

    Args:
        graph: the split graph.
        device_types: of all devices that a task may run on, ``cpu`` or ``cuda``. What is fused differs; a task is what
            each of them fuses, so that it has one meaning everywhere.
    """
    free = free_ops(graph)
    tasks = [position for position, op in enumerate(graph.ops) if op.name not in free]
    parent = {position: position for position in tasks}
    places: dict[int, tuple[int, ...]] = dict.fromkeys(tasks, ())
    for is_cuda in sorted({device_type == "cuda" for device_type in device_types}):
        for number, fused in enumerate(fused_groups(graph, "cuda" if is_cuda else "cpu")):
            for position in fused:
                if position in places:
                    places[position] += (number,)
    first: dict[tuple[int, ...], int] = {}
    for position, place in places.items():
        _union(parent, first.setdefault(place, position), position)
    _join_untransferable(graph, tasks, parent)
    return _ordered(graph, tasks, parent)


def _find(parent: dict[int, int], item: int) -> int:
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


def _union(parent: dict[int, int], a: int, b: int) -> None:
    low, high = sorted((_find(parent, a), _find(parent, b)))
    parent[high] = low


def _join_untransferable(graph: OpGraph, tasks: Sequence[int], parent: dict[int, int]) -> None:
    maker: dict[str, int] = {}
    for position in tasks:
        for name in graph.ops[position].reads:
            if name in maker:
                _union(parent, maker[name], position)
        for name in graph.ops[position].writes:
            if graph.tensors[name].kind != "tensor":
                maker[name] = position


def _ordered(graph: OpGraph, tasks: Sequence[int], parent: dict[int, int]) -> Groups:
    contracted = nx.DiGraph()
    maker = {name: position for position in tasks for name in graph.ops[position].writes}
    for position in tasks:
        here = _find(parent, position)
        contracted.add_node(here)
        for name in graph.ops[position].reads:
            if name in maker and (there := _find(parent, maker[name])) != here:
                contracted.add_edge(there, here)
    for component in nx.strongly_connected_components(contracted):
        first = min(component)
        for other in sorted(component):
            _union(parent, first, other)
    merged = nx.DiGraph()
    members: dict[int, list[int]] = {}
    for position in tasks:
        members.setdefault(_find(parent, position), []).append(position)
    merged.add_nodes_from(members)
    merged.add_edges_from(
        (_find(parent, a), _find(parent, b)) for a, b in contracted.edges if _find(parent, a) != _find(parent, b)
    )
    order = list(nx.lexicographical_topological_sort(merged))
    group_of = {graph.ops[p].name: number for number, root in enumerate(order) for p in members[root]}
    return Groups(tuple(tuple(graph.ops[p] for p in members[root]) for root in order), group_of)
