"""Is this a schedule? Plain Python and its own arithmetic: it shares no code with the schedulers that it checks."""

from __future__ import annotations

from planner.graph.task_graph import CommCosts, Schedule, TaskGraph


def violations(graph: TaskGraph, comm: CommCosts, schedule: Schedule) -> list[str]:
    """What is wrong with a schedule, one line each; empty if nothing is.

    Checked: every task has one existing device and times; no start is negative; each takes its cost on its device; no
    two tasks overlap on a device (a task of no length may touch others at their ends, not lie inside them); an input
    made elsewhere is there before its consumer starts.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        schedule: the schedule to check.
    """
    n = graph.num_tasks
    lengths = {len(schedule.device), len(schedule.start_ns), len(schedule.finish_ns)}
    if lengths != {n}:
        return [f"{n} tasks, but the schedule has columns of {', '.join(str(x) for x in sorted(lengths))} entries"]
    device = [int(d) for d in schedule.device]
    start = [int(t) for t in schedule.start_ns]
    finish = [int(t) for t in schedule.finish_ns]
    absent = [t for t in range(n) if not 0 <= device[t] < graph.num_devices]
    if absent:
        return [f"task {graph.names[t]}: no device {device[t]}" for t in absent]
    return [
        *_times(graph, device, start, finish),
        *_overlaps(graph, device, start, finish),
        *_precedence(graph, comm, device, start, finish),
    ]


def _times(graph: TaskGraph, device: list[int], start: list[int], finish: list[int]) -> list[str]:
    found = []
    for t, name in enumerate(graph.names):
        if start[t] < 0:
            found.append(f"task {name}: starts at {start[t]} ns")
        cost = int(graph.compute_ns[t, device[t]])
        if finish[t] - start[t] != cost:
            found.append(f"task {name}: takes {finish[t] - start[t]} ns, costs {cost} ns on device {device[t]}")
    return found


def _overlaps(graph: TaskGraph, device: list[int], start: list[int], finish: list[int]) -> list[str]:
    found = []
    previous: dict[int, int] = {}
    for t in sorted(range(graph.num_tasks), key=lambda t: (start[t], finish[t], t)):
        last = previous.get(device[t])
        if last is not None and start[t] < finish[last]:
            found.append(
                f"task {graph.names[t]}: starts at {start[t]} ns on device {device[t]}, "
                f"where {graph.names[last]} runs until {finish[last]} ns"
            )
        if last is None or finish[t] >= finish[last]:
            previous[device[t]] = t
    return found


def _precedence(graph: TaskGraph, comm: CommCosts, device: list[int], start: list[int], finish: list[int]) -> list[str]:
    found = []
    for s, d, tensor in zip(graph.edge_src, graph.edge_dst, graph.edge_tensor, strict=True):
        src, dst = int(s), int(d)
        arrival, a, b = finish[src], device[src], device[dst]
        if a != b:
            # The size term is rounded up: a transfer never ends before its last byte.
            scaled = int(graph.tensor_bytes[tensor]) * int(comm.ns_per_mib[a, b])
            arrival += int(comm.latency_ns[a, b]) + -(-scaled // 2**20)
        if start[dst] < arrival:
            found.append(
                f"task {graph.names[dst]}: starts at {start[dst]} ns, "
                f"before what {graph.names[src]} makes arrives at {arrival} ns"
            )
    return found
