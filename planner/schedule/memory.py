"""Memory limits as the schedulers see them: resident weights plus the largest working set of one task.

Weights with the same id are held once per device. A task's working set is its inputs that other tasks make, plus its
outputs. That is less than what a device needs at its peak; ``simulate/`` knows liveness and has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.errors import InfeasibleError, UsageError
from planner.graph.jit import kernel
from planner.graph.task_graph import I32, I64, TaskGraph
from planner.units import format_size

UNLIMITED = np.iinfo(np.int64).max


class Memory(NamedTuple):
    """Demands and limits for kernels.

    Attributes:
        weights: [groups] bytes of each group of shared weights.
        group: [tasks] its group; every task has one.
        working: [tasks] bytes of inputs and outputs.
        limit: [devices] bytes.
    """

    weights: I64
    group: I64
    working: I64
    limit: I64


class Residency(NamedTuple):
    """What is on the devices so far.

    Attributes:
        tasks: [devices, groups] tasks of the group on the device.
        weights: [devices] bytes of weights.
        working: [devices] largest working set.
    """

    tasks: I64
    weights: I64
    working: I64


def memory_of(graph: TaskGraph, memory_limit: Sequence[int] | None) -> Memory:
    """Demands of a graph; ``memory_limit`` is one number of bytes a device, or None for no limit.

    Raises:
        UsageError: if the limits are not one a device.
    """
    n = graph.num_tasks
    if memory_limit is not None and len(memory_limit) != graph.num_devices:
        raise UsageError(f"{len(memory_limit)} memory limits", expected=f"{graph.num_devices}, one a device")
    if memory_limit is None:  # one group without weights: nothing to keep books on
        limit = np.full(graph.num_devices, UNLIMITED, np.int64)
        return Memory(np.zeros(1, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64), limit)
    alone = graph.weight_id.astype(np.int64)
    alone[alone < 0] = np.flatnonzero(alone < 0) + (int(graph.weight_id.max(initial=-1)) + 1)
    # Tasks without weights need no group of their own.
    alone[(graph.weight_id < 0) & (graph.weight_bytes == 0)] = -1
    _, group = np.unique(alone, return_inverse=True)
    weights = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(weights, group, graph.weight_bytes)
    working = graph.output_bytes.astype(np.int64)
    reads = np.unique(np.stack([graph.edge_dst, graph.edge_tensor]), axis=1)
    np.add.at(working, reads[0], graph.tensor_bytes[reads[1]])
    return Memory(weights, group.astype(np.int64), working, np.asarray(memory_limit, np.int64))


def device_need(graph: TaskGraph, device: Sequence[int] | I32) -> list[int]:
    """Bytes that each device needs for a placement: its weights plus its largest working set."""
    memory = memory_of(graph, [0] * graph.num_devices)
    held = empty(memory)
    for task, where in enumerate(device):
        place(memory, held, task, int(where))
    return [int(w) + int(a) for w, a in zip(held.weights, held.working, strict=True)]


@kernel
def empty(memory: Memory) -> Residency:
    """Nothing on any device."""
    devices = len(memory.limit)
    return Residency(
        np.zeros((devices, len(memory.weights)), np.int64), np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    )


@kernel
def fits(memory: Memory, held: Residency, task: int, device: int) -> bool:
    """Whether a task can be added to a device."""
    group = memory.group[task]
    more = 0 if held.tasks[device, group] > 0 else memory.weights[group]
    working = max(held.working[device], memory.working[task])
    need: int = held.weights[device] + more + working
    limit: int = memory.limit[device]
    return need <= limit


@kernel
def place(memory: Memory, held: Residency, task: int, device: int) -> None:
    """Add a task to a device."""
    group = memory.group[task]
    if held.tasks[device, group] == 0:
        held.weights[device] += memory.weights[group]
    held.tasks[device, group] += 1
    held.working[device] = max(held.working[device], memory.working[task])


@kernel
def _pack(memory: Memory, order: I64) -> I64:
    """[tasks] device, -1 where none has room: the one that already has the weights, else the first."""
    held = empty(memory)
    placed = np.full(len(memory.group), -1, np.int64)
    for task in order:
        for shared in range(1, -1, -1):
            for device in range(len(memory.limit)):
                has = held.tasks[device, memory.group[task]] > 0
                if placed[task] < 0 and (has or shared == 0) and fits(memory, held, task, device):
                    place(memory, held, task, device)
                    placed[task] = device
    return placed


def pack(graph: TaskGraph, memory_limit: Sequence[int]) -> I64:
    """[tasks] a placement that fits, found by weights alone: for graphs that a scheduler's greedy choices do not fit.

    First fit in topological order, which keeps neighbours together; if that fails, first fit decreasing
    (Johnson 1973): at most 11/9 of the devices that an optimal packing needs.

    Raises:
        InfeasibleError: if neither fits.
    """
    memory = memory_of(graph, memory_limit)
    orders = (
        np.arange(graph.num_tasks, dtype=np.int64),
        np.lexsort((memory.group, -memory.weights[memory.group])).astype(np.int64),
    )
    for order in orders:
        placed = _pack(memory, order)
        if (placed >= 0).all():
            return placed
    raise _infeasible(graph, memory)


def _infeasible(graph: TaskGraph, memory: Memory) -> InfeasibleError:
    total, largest = int(memory.weights.sum()), int((memory.weights[memory.group] + memory.working).argmax())
    need = int(memory.weights[memory.group[largest]] + memory.working[largest])
    limits = ", ".join(f"device {d}: {format_size(int(limit))}" for d, limit in enumerate(memory.limit))
    return InfeasibleError(
        f"the tasks do not fit the devices' memory: {format_size(total)} of weights, and up to {format_size(need)} "
        f"for one task ({graph.names[largest]})",
        expected=f"at most what there is ({limits})",
        next_step="use more devices, raise their memory, or allow splits",
    )
