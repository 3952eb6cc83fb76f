"""Memory limits as the schedulers see them: resident weights plus the largest working set of one task.

Weights with the same id are held once per device. A task's working set is its inputs that other tasks make, plus its
outputs. That is less than what a device needs at its peak; ``simulate/`` knows liveness and has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from planner.errors import InfeasibleError, UsageError
from planner.graph.jit import kernel
from planner.graph.task_graph import I32, I64, TaskGraph
from planner.units import format_size

UNLIMITED = np.iinfo(np.int64).max


Flags = npt.NDArray[np.bool_]


class Memory(NamedTuple):
    """Demands and limits for kernels.

    Attributes:
        weights: [groups] bytes of each group of shared weights.
        group: [tasks] its group; every task has one.
        working: [tasks] bytes of inputs and outputs.
        limit: [devices] bytes.
        allowed: [tasks, devices] where a task may run; without rows: anywhere.
        together: [tasks] tasks of the same non-negative number share a device; empty: no such wish.
    """

    weights: I64
    group: I64
    working: I64
    limit: I64
    allowed: Flags
    together: I64


class Residency(NamedTuple):
    """What is on the devices so far.

    Attributes:
        tasks: [devices, groups] tasks of the group on the device.
        weights: [devices] bytes of weights.
        working: [devices] largest working set.
        members: [numbers of ``together``] tasks placed so far.
        home: [numbers of ``together``] their device.
    """

    tasks: I64
    weights: I64
    working: I64
    members: I64
    home: I64


def memory_of(graph: TaskGraph, memory_limit: Sequence[int] | None) -> Memory:
    """Demands of a graph; ``memory_limit`` is one number of bytes a device, or None for no limit.

    Raises:
        UsageError: if the limits are not one a device.
    """
    n = graph.num_tasks
    allowed = np.zeros((0, 0), np.bool_) if graph.allowed is None else graph.allowed
    together = np.zeros(0, np.int64) if graph.together is None else graph.together
    if memory_limit is not None and len(memory_limit) != graph.num_devices:
        raise UsageError(f"{len(memory_limit)} memory limits", expected=f"{graph.num_devices}, one a device")
    if memory_limit is None:  # one group without weights: nothing to keep books on
        limit = np.full(graph.num_devices, UNLIMITED, np.int64)
        none = np.zeros(n, np.int64)
        return Memory(np.zeros(1, np.int64), none, none, limit, allowed, together)
    alone = graph.weight_id.astype(np.int64)
    alone[alone < 0] = np.flatnonzero(alone < 0) + (int(graph.weight_id.max(initial=-1)) + 1)
    # Tasks without weights need no group of their own.
    alone[(graph.weight_id < 0) & (graph.weight_bytes == 0)] = -1
    _, group = np.unique(alone, return_inverse=True)
    weights = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(weights, group, graph.weight_bytes)
    working = graph.output_bytes.astype(np.int64)
    if not graph.weights_only:
        reads = np.unique(np.stack([graph.edge_dst, graph.edge_tensor]), axis=1)
        np.add.at(working, reads[0], graph.tensor_bytes[reads[1]])
    limits = np.asarray(memory_limit, np.int64)
    return Memory(weights, group.astype(np.int64), working, limits, allowed, together)


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
    count = memory.together.max() + 1 if len(memory.together) > 0 else 0
    return Residency(
        np.zeros((devices, len(memory.weights)), np.int64),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )


@kernel
def fits(memory: Memory, held: Residency, task: int, device: int) -> bool:
    """Whether a task can be added to a device: it may run there, with those it must stay with, and there is room."""
    if len(memory.allowed) > 0 and not memory.allowed[task, device]:
        return False
    if len(memory.together) > 0:
        number = memory.together[task]
        if number >= 0 and held.members[number] > 0 and held.home[number] != device:
            return False
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
    if len(memory.together) > 0 and memory.together[task] >= 0:
        held.members[memory.together[task]] += 1
        held.home[memory.together[task]] = device


@kernel
def hold_all(memory: Memory, held: Residency, placed: I64) -> None:
    """Add all tasks where they are."""
    for task in range(len(placed)):
        place(memory, held, task, placed[task])


@kernel
def take(memory: Memory, held: Residency, task: int, device: int) -> None:
    """Take a task away; working sets are kept: they only grow."""
    group = memory.group[task]
    held.tasks[device, group] -= 1
    if held.tasks[device, group] == 0:
        held.weights[device] -= memory.weights[group]
    if len(memory.together) > 0 and memory.together[task] >= 0:
        held.members[memory.together[task]] -= 1


class Held:
    """What is on the devices so far, for planners in plain Python: all devices are asked at once.

    Args:
        graph: the tasks.
        memory_limit: bytes a device; None for no limit.
    """

    def __init__(self, graph: TaskGraph, memory_limit: Sequence[int] | None) -> None:
        self._graph = graph
        self._memory = memory_of(graph, memory_limit)
        self._limited = memory_limit is not None
        self._home: dict[int, int] = {}
        self._everywhere = np.ones(graph.num_devices, bool)
        groups = len(self._memory.weights) if self._limited else 0
        self._has = np.zeros((groups, graph.num_devices), bool)
        self._weights = np.zeros(graph.num_devices, np.int64)
        self._working = np.zeros(graph.num_devices, np.int64)

    def fitting(self, task: int) -> npt.NDArray[np.bool_]:
        """[devices] whether the task can be added."""
        wished = self._wished(task)
        if not self._limited:
            return wished
        group = self._memory.group[task]
        more = np.where(self._has[group], 0, self._memory.weights[group])
        working = np.maximum(self._working, self._memory.working[task])
        return np.asarray((self._weights + more + working <= self._memory.limit) & wished)

    def _wished(self, task: int) -> Flags:
        """[devices] where the task may run, and those it must stay with."""
        allowed = self._memory.allowed[task] if len(self._memory.allowed) else self._everywhere
        home = self._home.get(int(self._memory.together[task])) if len(self._memory.together) else None
        return allowed if home is None else allowed & (np.arange(len(allowed)) == home)

    def add(self, task: int, device: int) -> None:
        """Put a task on a device."""
        if len(self._memory.together) and self._memory.together[task] >= 0:
            self._home[int(self._memory.together[task])] = device
        if not self._limited:
            return
        group = self._memory.group[task]
        if not self._has[group, device]:
            self._has[group, device] = True
            self._weights[device] += self._memory.weights[group]
        self._working[device] = max(self._working[device], self._memory.working[task])

    def refuse(self) -> NoReturn:
        """Say what is lacking.

        Raises:
            InfeasibleError: always.
        """
        raise _infeasible(self._graph, self._memory)


@kernel
def _add_unit(memory: Memory, held: Residency, unit: I64, device: int) -> bool:
    """Add tasks that share a device; nothing is changed if they do not fit."""
    working = held.working[device]
    for position in range(len(unit)):
        if not fits(memory, held, unit[position], device):
            _take_unit(memory, held, unit[:position], device, working)
            return False
        place(memory, held, unit[position], device)
    return True


@kernel
def _take_unit(memory: Memory, held: Residency, unit: I64, device: int, working: int) -> None:
    """Take tasks away again; ``working`` is the device's largest working set without them."""
    for task in unit:
        take(memory, held, task, device)
    held.working[device] = working


@kernel
def _pack(memory: Memory, first: I64, members: I64, order: I64) -> I64:
    """[tasks] device, -1 where none has room: the one that lacks least of the weights, of equal ones the first.

    Args:
        memory: limits.
        first: [units + 1] where the tasks of each unit begin in ``members``.
        members: [tasks] by unit; those of one unit share a device.
        order: [units] in which they are placed.
    """
    held = empty(memory)
    placed = np.full(len(memory.group), -1, np.int64)
    for number in order:
        unit = members[first[number] : first[number + 1]]
        best, least = -1, 0
        for device in range(len(memory.limit)):
            weights, working = held.weights[device], held.working[device]
            if _add_unit(memory, held, unit, device):
                more = held.weights[device] - weights
                _take_unit(memory, held, unit, device, working)
                if best < 0 or more < least:
                    best, least = device, more
        if best < 0:
            break
        _add_unit(memory, held, unit, best)
        placed[unit] = best
    return placed


def pack(graph: TaskGraph, memory_limit: Sequence[int] | None) -> I64:
    """[tasks] a placement that fits, found by weights alone: for graphs that a scheduler's greedy choices do not fit.

    Tasks that stay together are one item. First fit in topological order, which keeps neighbours together; if that
    fails, first fit decreasing (Johnson 1973): at most 11/9 of the devices that an optimal packing needs. Where
    no weights are shared it never fails if each device has twice the memory that it needs in some placement.

    Raises:
        InfeasibleError: if neither fits.
    """
    memory = memory_of(graph, memory_limit)
    first, members, size = _units(memory)
    orders = (
        np.argsort(members[first[:-1]], kind="stable").astype(np.int64),
        np.lexsort((memory.group[members[first[:-1]]], -size)).astype(np.int64),
    )
    for order in orders:
        placed = _pack(memory, first, members, order)
        if (placed >= 0).all():
            return placed
    raise _infeasible(graph, memory)


def _units(memory: Memory) -> tuple[I64, I64, I64]:
    """Tasks by the units that share a device: see :func:`_pack`; and [units] bytes of each unit's weights."""
    tasks = np.arange(len(memory.group), dtype=np.int64)
    # A task without such a wish is a unit of its own.
    number = -1 - tasks
    if len(memory.together):
        number = np.where(memory.together >= 0, memory.together, number)
    _, unit = np.unique(number, return_inverse=True)
    members = np.argsort(unit, kind="stable").astype(np.int64)
    count = int(unit.max(initial=-1)) + 1
    first = np.searchsorted(unit[members], np.arange(count + 1)).astype(np.int64)
    held = np.unique(np.stack([unit, memory.group]), axis=1)
    size = np.zeros(count, np.int64)
    np.add.at(size, held[0], memory.weights[held[1]])
    return first, members, size


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
