"""A split graph with its costs: what every planner schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cluster.types import Cluster, Device
from planner.cost.estimate import CostTable
from planner.cost.keys import group_key
from planner.cost.model import Cost
from planner.graph.op_graph import Op, OpContext, OpGraph
from planner.graph.task_graph import CommCosts, TaskGraph
from planner.model.types import LoadedModel
from planner.partition.groups import Groups, group_ops
from planner.partition.lanes import op_lanes
from planner.partition.split_graph import ShardCache, SplitGraph, build_split_graph
from planner.schedule.limits import check_sizes, check_times
from planner.schedule.wishes import Wishes
from planner.split.types import SplitSpec
from planner.units import NS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A split graph, grouped and costed for the devices of a cluster.

    Attributes:
        splits: the decisions behind the split graph.
        split: the split graph.
        groups: its tasks; task ``i`` of ``tasks`` is group ``i``.
        tasks: arrays for the schedulers.
        tensors: name of each tensor that ``tasks.edge_tensor`` numbers.
        readers: value name -> operators that read it.
        position: operator name -> its place in the split graph.
        outputs: the graph outputs.
        weights: weight keys and sizes of each group, for memory.
        measured: how many (group, device) costs were measured.
        estimated: how many were estimated.
    """

    splits: tuple[SplitSpec, ...]
    split: SplitGraph
    groups: Groups
    tasks: TaskGraph
    tensors: tuple[str, ...]
    readers: Mapping[str, Sequence[Op]]
    position: Mapping[str, int]
    outputs: frozenset[str]
    weights: tuple[dict[str, int], ...]
    measured: int
    estimated: int

    def segment_keys(self, tasks: Sequence[int]) -> list[str]:
        """Profile keys of a segment's tasks."""
        graph = self.split.graph
        return [group_key([graph.context(op) for op in self.groups.members[task]]) for task in tasks]

    def lanes(self, shares: Sequence[int]) -> list[int]:
        """Device of each group when every shard goes to the device of its number.

        Args:
            shares: relative speeds of the devices, which the shards were cut for.
        """
        lanes = op_lanes(self.split, len(shares), shares)
        return [lanes[members[0].name] for members in self.groups.members]


class Workloads:
    """Builds workloads of one model on one cluster; costs of operators seen before are remembered."""

    def __init__(self, model: LoadedModel, cluster: Cluster, costs: CostTable, wishes: Wishes | None = None) -> None:
        self.model = model
        self.wishes = wishes or Wishes()
        self.cluster = cluster
        self.costs = costs
        # Operators that no split touches are the same objects in every split graph.
        self._known: dict[tuple[int, ...], tuple[tuple[Op, ...], tuple[Cost, ...]]] = {}
        self._shards: ShardCache = {}
        self._alike: dict[tuple[object, ...], tuple[tuple[OpContext, ...], tuple[Cost, ...]]] = {}
        self._built: dict[tuple[SplitSpec, ...], Workload] = {}
        self._parents: dict[str, tuple[OpContext, ...]] = {}
        self._kinds: dict[str, Device] = {}
        for device in cluster.devices:
            self._kinds.setdefault(device.kind, device)

    def build(self, splits: Sequence[SplitSpec]) -> Workload:
        """The workload after the given splits.

        Raises:
            PlanError: if a split cannot be carried out.
            UsageError: if the model takes longer, or more memory, than a plan's numbers can say.
        """
        key = tuple(splits)
        if key not in self._built:
            if key and not self._built:
                self.build(())  # parents of shards come from the unsplit graph
            self._built[key] = self._build(key)
        return self._built[key]

    def _build(self, splits: tuple[SplitSpec, ...]) -> Workload:
        split = build_split_graph(self.model, splits, self._shards)
        groups = group_ops(split.graph, *(device.type for device in self.cluster.devices))
        if not splits:
            for members in groups.members:
                contexts = tuple(split.graph.context(op) for op in members)
                self._parents.update({op.name: contexts for op in members})
        costs = [self._group_costs(split, members) for members in groups.members]
        measured = sum(cost.measured for row in costs for cost in row)
        tensors, src, dst, carried = _edges(split.graph, groups)
        if not splits:
            check_times([members[0].name for members in groups.members], costs, self.cluster)
            check_sizes((name, split.graph.tensors[name].nbytes) for name in tensors)
        compute = np.array([[cost.ns for cost in row] for row in costs], dtype=np.int64)
        weights = tuple(self._weights(split, members) for members in groups.members)
        names = [[split.origin[op.name][0] if op.name in split.origin else op.name for op in m] for m in groups.members]
        allowed, together = self.wishes.of_groups(names, [device.name for device in self.cluster.devices])
        tasks = TaskGraph(
            tuple(members[0].name for members in groups.members),
            compute.reshape(len(groups.members), len(self.cluster.devices)),
            src,
            dst,
            carried,
            np.array([split.graph.tensors[name].nbytes for name in tensors], dtype=np.int64),
            np.array([sum(sizes.values()) for sizes in weights], dtype=np.int64),
            _weight_ids(weights),
            np.array([_output_bytes(split.graph, members) for members in groups.members], dtype=np.int64),
            allowed,
            together,
        )
        total = sum(len(row) for row in costs)
        return Workload(
            splits,
            split,
            groups,
            tasks,
            tensors,
            split.graph.consumers(),
            {op.name: number for number, op in enumerate(split.graph.ops)},
            frozenset(split.graph.outputs),
            weights,
            measured,
            total - measured,
        )

    def _group_costs(self, split: SplitGraph, members: tuple[Op, ...]) -> tuple[Cost, ...]:
        """Cost on each device of the cluster."""
        identity = tuple(id(op) for op in members)
        known = self._known.get(identity)
        if known is not None:
            return known[1]
        contexts = tuple(split.graph.context(op) for op in members)
        # Equal shards of one operator are the rule: found by their shapes and their (shared) attributes, without a key.
        shard = next((split.origin[op.name][0] for op in members if op.name in split.origin), "")
        parent = self._parents.get(shard)
        alike = id(parent), *(_likeness(context) for context in contexts)
        if alike in self._alike:
            return self._alike[alike][1]
        by_kind = {kind: self.costs.group_ns(contexts, device, parent) for kind, device in self._kinds.items()}
        row = tuple(by_kind[device.kind] for device in self.cluster.devices)
        self._known[identity] = (members, row)
        self._alike[alike] = (contexts, row)
        return row

    @staticmethod
    def _weights(split: SplitGraph, members: Sequence[Op]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for op in members:
            for name in op.reads:
                if name in split.weights:
                    weight = split.weights[name]
                    sizes[weight.key or name] = weight.info.nbytes
        return sizes


def _likeness(context: OpContext) -> tuple[object, ...]:
    op = context.op
    shapes = tuple(None if info is None else (info.dtype, info.dims) for info in (*context.inputs, *context.outputs))
    return op.domain, op.op_type, id(op.attributes), shapes, context.weights


def comm_costs(cluster: Cluster) -> CommCosts:
    """Link costs of a cluster as arrays."""
    number = {device.name: position for position, device in enumerate(cluster.devices)}
    latency = np.zeros((len(number), len(number)), dtype=np.int64)
    per_mib = np.zeros_like(latency)
    for link in cluster.links:
        src, dst = number[link.src], number[link.dst]
        latency[src, dst] = link.latency_ns
        per_mib[src, dst] = 0 if link.bytes_per_s == 0 else -(-(2**20) * NS_PER_S // link.bytes_per_s)
    return CommCosts(latency, per_mib)


def _edges(graph: OpGraph, groups: Groups) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
    maker = {name: op.name for members in groups.members for op in members for name in op.writes}
    number: dict[str, int] = {}
    found: list[tuple[int, int, int]] = []
    for here, members in enumerate(groups.members):
        read = dict.fromkeys(name for op in members for name in op.reads)
        for name in read:
            if name in maker and (there := groups.group_of[maker[name]]) != here:
                found.append((there, here, number.setdefault(name, len(number))))
    found.sort()
    columns = np.array(found, dtype=np.int32).reshape(len(found), 3)
    return tuple(number), columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


def _weight_ids(weights: Sequence[dict[str, int]]) -> np.ndarray:
    number: dict[tuple[str, ...], int] = {}
    return np.array(
        [number.setdefault(tuple(sorted(sizes)), len(number)) if sizes else -1 for sizes in weights], dtype=np.int32
    )


def _output_bytes(graph: OpGraph, members: Sequence[Op]) -> int:
    return sum(graph.tensors[name].nbytes for op in members for name in op.writes)
