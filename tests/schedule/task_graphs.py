"""Task graphs for the tests of the schedulers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from planner.graph.task_graph import CommCosts, TaskGraph
from planner.schedule.bare import uniform_comm


def task_graph(
    compute: Sequence[Sequence[int]],
    edges: Sequence[tuple[int, int, int]] = (),
    *,
    weights: Sequence[int] | None = None,
    weight_ids: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    devices: int = 1,
) -> TaskGraph:
    """Tasks with costs a device, and edges (from, to, bytes), one tensor an edge."""
    n = len(compute)
    table = np.array(sorted(edges), np.int64).reshape(-1, 3)
    return TaskGraph(
        names=tuple(f"t{i}" for i in range(n)),
        compute_ns=np.array(compute, np.int64).reshape(n, -1) if n else np.zeros((0, devices), np.int64),
        edge_src=table[:, 0].astype(np.int32),
        edge_dst=table[:, 1].astype(np.int32),
        edge_tensor=np.arange(len(table), dtype=np.int32),
        tensor_bytes=table[:, 2].copy(),
        weight_bytes=np.array(weights if weights is not None else [0] * n, np.int64),
        weight_id=np.array(weight_ids if weight_ids is not None else [-1] * n, np.int32),
        output_bytes=np.array(outputs if outputs is not None else [0] * n, np.int64),
    )


def links_of(latency: Sequence[Sequence[int]], ns_per_kib: Sequence[Sequence[int]]) -> CommCosts:
    """Transfer costs from plain lists."""
    return CommCosts(np.array(latency, np.int64), np.array(ns_per_kib, np.int64) * 1024)


@st.composite
def problems(draw: st.DrawFn, max_tasks: int = 14, max_devices: int = 4) -> tuple[TaskGraph, CommCosts]:
    """A random DAG on different devices with different links; costs may be zero, edges may be parallel."""
    n = draw(st.integers(0, max_tasks))
    devices = draw(st.integers(1, max_devices))
    cost = st.one_of(st.just(0), st.integers(0, 30), st.integers(1, 10**12))
    compute = [[draw(cost) for _ in range(devices)] for _ in range(n)]
    edges = []
    if n > 1:
        for _ in range(draw(st.integers(0, 3 * n))):
            src = draw(st.integers(0, n - 2))
            edges.append((src, draw(st.integers(src + 1, n - 1)), draw(st.integers(0, 5_000))))
    link = st.integers(0, 3_000)
    matrices = [[[0 if s == d else draw(link) for d in range(devices)] for s in range(devices)] for _ in range(2)]
    return task_graph(compute, edges, devices=devices), links_of(matrices[0], matrices[1])


def random_layers(n: int, devices: int, seed: int, *, reach: int = 50) -> tuple[TaskGraph, CommCosts]:
    """A large random DAG: each task reads three of the ``reach`` tasks before it; devices differ."""
    rng = np.random.default_rng(seed)
    speed = rng.integers(50, 150, devices)
    compute = rng.integers(10, 1_000, n)[:, None] * speed // 100
    edges = {(int(rng.integers(max(0, v - reach), v)), v) for v in range(1, n) for _ in range(3)}
    graph = task_graph(compute.tolist(), [(s, d, int(rng.integers(0, 1_000))) for s, d in sorted(edges)])
    return graph, uniform_comm(devices, latency_ns=20)


def perfect_packing(each: int, devices: int, seed: int) -> tuple[TaskGraph, CommCosts, int]:
    """A graph that fills equal devices without a gap, every tensor just in time, and how long that takes.

    Args:
        each: tasks of each device.
        devices: number of devices.
        seed: of lengths and edges.
    """
    rng = np.random.default_rng(seed)
    length = 100 * each
    spans = []
    for device in range(devices):
        ends = [*sorted(rng.choice(np.arange(1, length), each - 1, replace=False).tolist()), length]
        spans += [(start, end, device) for start, end in zip([0, *ends], ends, strict=False)]
    spans.sort()
    edges = []
    for task, (start, _, device) in enumerate(spans):
        before = sorted((i for i in range(task) if spans[i][1] <= start), key=lambda i: spans[i][1])[-2 * devices :]
        for i in rng.permutation(before)[:2].tolist():
            edges.append((i, task, start - spans[i][1] if spans[i][2] != device else 300))
    compute = [[end - start] * devices for start, end, _ in spans]
    return task_graph(compute, edges), uniform_comm(devices), length
