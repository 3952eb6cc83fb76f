"""Lanes: shard ``i`` of every operator belongs to lane ``i``, and what is no shard to the lane it serves."""

from __future__ import annotations

from collections.abc import Sequence

from planner.partition.split_graph import SplitGraph


def op_lanes(split: SplitGraph, num_lanes: int, shares: Sequence[int] = ()) -> dict[str, int]:
    """Lane of each operator of a split graph.

    Glue and operators that were not split go to their readers' lane where all readers have the same one, else to where
    most of their input comes from, else to lane 0.

    Args:
        split: a split graph.
        num_lanes: lanes to use; shards beyond it start again at 0.
        shares: relative speeds of the lanes, equal if not given. Of an operator in fewer shards than lanes the slowest
            lanes get none, as in ``split.propagate.sizes_for``.
    """
    graph, origin = split.graph, split.origin
    counts: dict[str, int] = {}
    for name, _ in origin.values():
        counts[name] = counts.get(name, 0) + 1
    ranked = sorted(range(num_lanes), key=lambda lane: (-shares[lane] if shares else 0, lane))

    def fastest(number: int) -> list[int]:
        return sorted(ranked[:number])

    lanes: dict[str, int] = {
        op.name: fastest(counts[origin[op.name][0]])[origin[op.name][1] % num_lanes]
        for op in graph.ops
        if op.name in origin and counts[origin[op.name][0]] > 1
    }
    readers = graph.consumers()
    for op in reversed(graph.ops):
        if op.name not in lanes:
            found = {lanes.get(reader.name, -1) for name in op.writes for reader in readers.get(name, ())}
            if len(found) == 1 and (lane := next(iter(found))) >= 0:
                lanes[op.name] = lane
    producers = graph.producers()
    for op in graph.ops:
        if op.name not in lanes:
            received = [0] * num_lanes
            for name in op.reads:
                if name in producers:
                    received[lanes[producers[name].name]] += graph.tensors[name].nbytes
            lanes[op.name] = max(range(num_lanes), key=lambda lane: (received[lane], -lane))
    return lanes
