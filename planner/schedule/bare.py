"""Task graphs without a model: the format of public collections of schedules with a known optimum.

One JSON object: ``weights`` (duration of each task; or one list a device kind), ``edges`` ([from, to] or [from, to,
delay]; the delay counts if the two run on different processors), ``processors``. Optional: ``kinds`` (kind of each
processor; by default they are shared out evenly in their order), ``memory`` (of each task) with ``memory_limit`` (one
number, or one a processor), ``node_of`` (node of each processor) with ``remote_factor`` (delays between nodes are that
many times as long), ``together`` (of each task a number, or null: tasks of the same number run on one processor). Tasks
may be in any order. Times may be fractions: they count in millionths then.
"""

from __future__ import annotations

import difflib
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from planner.errors import InputError
from planner.graph.task_graph import I64, CommCosts, Schedule, TaskGraph

FINE: Final = 10**6
"""Units of a time unit, where some time is a fraction."""
_LARGEST: Final = 2**53
# Delays are multiplied by 2**20, and many may add up on a path.
_LONGEST_DELAY: Final = 2**40
_MOST_PROCESSORS: Final = 4096
_KEYS: Final = (
    "name",
    "processors",
    "weights",
    "edges",
    "kinds",
    "memory",
    "memory_limit",
    "node_of",
    "remote_factor",
    "together",
)
# What collections of task graphs say about a line, and a schedule does not depend on.
_IGNORED: Final = ("optimal_length", "optimum", "best_known", "lower_bound", "seed", "source", "comment")


@dataclass(frozen=True, slots=True, eq=False)
class BareProblem:
    """A bare task graph for the schedulers.

    Attributes:
        name: of the instance.
        graph: its tasks in a topological order; a time unit is ``scale`` nanoseconds.
        comm: delays: a delay of ``n`` units is a tensor of ``n * scale`` bytes at 1 ns a byte.
        order: [tasks] the task's own number.
        memory_limit: of each processor; None for no limit.
        scale: nanoseconds of a time unit.
    """

    name: str
    graph: TaskGraph
    comm: CommCosts
    order: I64
    memory_limit: tuple[int, ...] | None
    scale: int

    def answer(self, schedule: Schedule) -> dict[str, Any]:
        """``name``, ``makespan`` and ``tasks``: [device, start, finish] in the order of the instance's own numbers."""
        columns = np.empty((len(self.order), 3), np.int64)
        columns[self.order] = np.stack([schedule.device, schedule.start_ns, schedule.finish_ns], axis=1)
        tasks: list[list[Any]] = columns.tolist()
        if self.scale != 1:
            tasks = [[device, start / self.scale, finish / self.scale] for device, start, finish in tasks]
        makespan = schedule.makespan_ns
        return {
            "name": self.name,
            "makespan": makespan if self.scale == 1 else makespan / self.scale,
            "tasks": tasks,
        }


def load_bare(line: Mapping[str, Any]) -> tuple[TaskGraph, CommCosts]:
    """A bare instance as arrays; see :func:`parse_bare`."""
    found = parse_bare(line)
    return found.graph, found.comm


def parse_bare(line: Any, *, processors: int | None = None, where: str = "") -> BareProblem:
    """A bare instance, checked.

    Args:
        line: the JSON object.
        processors: number of processors where the line has none.
        where: file and line number, for errors; by default the instance's name.

    Raises:
        InputError: if something is wrong; names the key.
    """
    if not isinstance(line, Mapping):
        raise InputError(f"a {type(line).__name__}", where=where, expected="a JSON object with weights and edges")
    where = where or str(line.get("name", "instance"))
    _check_keys(line, where)
    missing = [key for key in ("weights", "edges") if key not in line]
    if missing:
        raise InputError(f"no '{missing[0]}'", where=where, expected="weights and edges")
    count = _processors(line, processors, where)
    weights = _weights(line["weights"], where)
    n = len(weights[0]) if weights else 0
    edges = _edges(line["edges"], n, where)
    factor = _number(line.get("remote_factor", 1), f"{where}:remote_factor")
    exact = all(value == int(value) for row in weights for value in row) and all(
        value == int(value) for value in (*{edge[2] for edge in edges}, factor)
    )
    scale = 1 if exact else FINE
    order = _topological(n, edges, where)
    number = np.empty(n, np.int64)
    number[order] = np.arange(n)
    table = np.array([(a, b, _units(delay, scale)) for a, b, delay in edges], np.int64).reshape(-1, 3)
    table[:, 0], table[:, 1] = number[table[:, 0]], number[table[:, 1]]
    table = table[np.lexsort((table[:, 2], table[:, 1], table[:, 0]))]
    longest = int(table[:, 2].max(initial=0))
    if max(longest, 1) * max(factor, 1) > _LONGEST_DELAY:
        raise InputError("a delay is too long", where=f"{where}:edges", expected=f"at most {_LONGEST_DELAY // scale}")
    kinds = _kinds(line, count, len(weights), where)
    if max((value for row in weights for value in row), default=0) * scale * max(n, 1) >= 2**62:
        raise InputError("the weights are too large to add up", where=f"{where}:weights", expected="a sum below 2**62")
    by_kind = np.array([[_units(value, scale) for value in row] for row in weights], np.int64).reshape(len(weights), n)
    memory, limit = _memory(line, n, count, where)
    graph = TaskGraph(
        names=tuple(map(str, order.tolist())),
        compute_ns=np.ascontiguousarray(by_kind[kinds][:, order].T) if n else np.zeros((0, count), np.int64),
        edge_src=table[:, 0].astype(np.int32),
        edge_dst=table[:, 1].astype(np.int32),
        edge_tensor=np.arange(len(table), dtype=np.int32),
        tensor_bytes=table[:, 2].copy(),
        weight_bytes=memory[order],
        weight_id=np.full(n, -1, np.int32),
        output_bytes=np.zeros(n, np.int64),
        weights_only=True,
        together=_together(line, n, order, where),
    )
    return BareProblem(_name(line, where), graph, _comm(line, count, factor, where), order, limit, scale)


def uniform_comm(devices: int, ns_per_mib: int = 2**20, latency_ns: int = 0) -> CommCosts:
    """Equal links between all devices; by default 1 ns a byte."""
    away = 1 - np.eye(devices, dtype=np.int64)
    return CommCosts(latency_ns=away * latency_ns, ns_per_mib=away * ns_per_mib)


def _short(value: Any) -> str:
    """A stranger's value in a message."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _check_keys(line: Mapping[str, Any], where: str) -> None:
    """A key that is passed over silently is a limit that does not hold."""
    known = (*_KEYS, *_IGNORED)
    for key in line:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, 0.7)
            next_step = f"perhaps '{near[0]}' is meant" if near else "leave it out, or call it 'comment'"
            expected = f"one of {', '.join(_KEYS)}; passed over: {', '.join(_IGNORED)}"
            raise InputError(f"the key {_short(key)} is not known", where=where, expected=expected, next_step=next_step)


def _name(line: Mapping[str, Any], where: str) -> str:
    """The instance's name, which goes into a file in UTF-8."""
    name = "" if line.get("name") is None else str(line["name"])
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f"{_short(name)} is no text", where=f"{where}:name", expected="characters of Unicode"
        ) from None
    return name


def _processors(line: Mapping[str, Any], given: int | None, where: str) -> int:
    found = line.get("processors", given)
    if found is None:
        raise InputError("no 'processors'", where=where, next_step="give --processors N")
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= _MOST_PROCESSORS:
        raise InputError(_short(found), where=f"{where}:processors", expected=f"1 to {_MOST_PROCESSORS}")
    return found


def _number(value: Any, where: str) -> float:
    """A time, a size or a factor."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    if not good:  # not a number is not within any bounds
        raise InputError(_short(value), where=where, expected="a number from 0 to 2**53")
    found: float = value
    return found


def _units(value: float, scale: int) -> int:
    """A time in whole units."""
    return int(value) if scale == 1 else round(Fraction(value) * scale)


def _weights(given: Any, where: str) -> list[list[float]]:
    """One list a device kind."""
    if not isinstance(given, list):
        raise InputError("no list", where=f"{where}:weights", expected="a duration for each task")
    rows = given if given and all(isinstance(row, list) for row in given) else [given]
    for row in rows:
        if len(row) != len(rows[0]):
            raise InputError(
                f"lists of {len(rows[0])} and {len(row)} tasks", where=f"{where}:weights", expected="equal lengths"
            )
        for task, value in enumerate(row):
            if type(value) is not int or not 0 <= value <= _LARGEST:
                _number(value, f"{where}:weights[{task}]")
    return rows


def _edges(given: Any, n: int, where: str) -> list[tuple[int, int, float]]:
    if not isinstance(given, list):
        raise InputError("no list", where=f"{where}:edges", expected="[from, to] or [from, to, delay] each")
    edges = []
    for position, edge in enumerate(given):
        here = f"{where}:edges[{position}]"
        if not isinstance(edge, list) or len(edge) not in (2, 3):
            raise InputError(_short(edge), where=here, expected="[from, to] or [from, to, delay]")
        src, dst = edge[0], edge[1]
        if type(src) is not int or type(dst) is not int or not (0 <= src < n and 0 <= dst < n):
            raise InputError(
                f"edge {_short(src)} -> {_short(dst)} names no task", where=here, expected=f"tasks 0 to {n - 1}"
            )
        delay = edge[2] if len(edge) > 2 else 0
        if type(delay) is not int or not 0 <= delay <= _LARGEST:
            delay = _number(delay, here)
        edges.append((src, dst, delay))
    return edges


def _per_processor(line: Mapping[str, Any], key: str, count: int, where: str) -> list[Any]:
    found = line[key]
    if not isinstance(found, list) or len(found) != count:
        raise InputError("wrong length", where=f"{where}:{key}", expected=f"a list of {count}, one a processor")
    return found


def _kinds(line: Mapping[str, Any], count: int, kinds: int, where: str) -> I64:
    """[processors] which list of weights counts."""
    if "kinds" in line:
        found = _per_processor(line, "kinds", count, where)
        if any(type(kind) is not int or not 0 <= kind < kinds for kind in found):
            raise InputError("no such kind", where=f"{where}:kinds", expected=f"0 to {kinds - 1}, one a processor")
        return np.array(found, np.int64)
    if count % kinds:
        raise InputError(
            f"{kinds} lists of weights for {count} processors",
            where=f"{where}:weights",
            expected="a number that divides the processors",
            next_step="say in 'kinds' which processor is of which kind",
        )
    return np.arange(count, dtype=np.int64) // (count // kinds)


def _memory(line: Mapping[str, Any], n: int, count: int, where: str) -> tuple[I64, tuple[int, ...] | None]:
    """([tasks] memory, limit of each processor)."""
    memory = line.get("memory", [0] * n)
    if not isinstance(memory, list) or len(memory) != n:
        raise InputError("wrong length", where=f"{where}:memory", expected=f"a list of {n}, one a task")
    for task, value in enumerate(memory):
        _number(value, f"{where}:memory[{task}]")
    limit = line.get("memory_limit")
    limits: list[Any] = (
        _per_processor(line, "memory_limit", count, where) if isinstance(limit, list) else [limit] * count
    )
    if limit is not None:
        for value in limits:
            _number(value, f"{where}:memory_limit")
    known = [*memory, *(limits if limit is not None else ())]
    scale = 1 if all(value == int(value) for value in known) else FINE
    if sum(memory) * scale >= 2**62 or (limit is not None and max(limits) * scale >= 2**62):
        raise InputError("the memory is too large to add up", where=f"{where}:memory", expected="a sum below 2**62")
    # A task needs no less than it says, and a processor has no more.
    sizes = np.array([math.ceil(Fraction(value) * scale) for value in memory], np.int64)
    return sizes, None if limit is None else tuple(math.floor(Fraction(value) * scale) for value in limits)


def _together(line: Mapping[str, Any], n: int, order: I64, where: str) -> I64 | None:
    """[tasks, in topological order] who shares a processor; -1: nobody."""
    given = line.get("together")
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != n:
        raise InputError("wrong length", where=f"{where}:together", expected=f"a list of {n}, one a task")
    for task, group in enumerate(given):
        if group is not None and (type(group) is not int or not 0 <= group <= _LARGEST):
            raise InputError(_short(group), where=f"{where}:together[{task}]", expected="null or a number from 0")
    number = {group: position for position, group in enumerate(dict.fromkeys(g for g in given if g is not None))}
    return np.array([-1 if group is None else number[group] for group in given], np.int64)[order]


def _comm(line: Mapping[str, Any], count: int, factor: float, where: str) -> CommCosts:
    comm = uniform_comm(count)
    if "node_of" not in line:
        return comm
    nodes = _per_processor(line, "node_of", count, where)
    if any(isinstance(node, list | dict) for node in nodes):
        raise InputError("a list or an object", where=f"{where}:node_of", expected="a name or a number of each node")
    number = {node: position for position, node in enumerate(dict.fromkeys(nodes))}
    of = np.array([number[node] for node in nodes])
    away = of[:, None] != of[None, :]
    return CommCosts(comm.latency_ns, np.where(away, round(Fraction(factor) * 2**20), comm.ns_per_mib))


def _topological(num_tasks: int, edges: Sequence[tuple[int, int, float]], where: str) -> I64:
    """The topological order with the lowest numbers first (Kahn 1962, with a heap)."""
    if all(src < dst for src, dst, _ in edges):
        return np.arange(num_tasks, dtype=np.int64)
    waiting = [0] * num_tasks
    after: list[list[int]] = [[] for _ in range(num_tasks)]
    for src, dst, _ in edges:
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
        raise InputError("the edges form a cycle", where=f"{where}:edges", expected="a directed acyclic graph")
    return np.array(order, np.int64)
