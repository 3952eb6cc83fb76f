"""Is a plan right? Asked without any of the code that made it: this module only reads the Plan and the split OpGraph.

Every test that makes a plan ends with :func:`plan_problems`, so that a mistake that planner and simulator share
is still found. :func:`naive_step_ns` advances a clock from event to event; the planner's simulator works on arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.graph.op_graph import Op, OpGraph
from planner.plan.schema import LinkSpec, Plan

_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")


@dataclass(frozen=True)
class Place:
    """Where a task runs: device, position of its segment in the queue, position in the segment, segment id."""

    device: str
    queue: int
    step: int
    segment: str


def plan_problems(plan: Plan, graph: OpGraph) -> list[str]:
    """What is wrong with a plan for a split graph, one line each; empty for a sound one."""
    places = _places(plan)
    return [
        *_each_task_once(plan, graph, places),
        *_order(graph, places),
        *_transfers(plan, graph, places),
        *_convex(graph, places),
        *_dry_run(plan, graph, places),
        *_predictions(plan),
    ]


def _places(plan: Plan) -> dict[str, Place]:
    return {
        task: Place(queue.device, position, step, segment.id)
        for queue in plan.devices
        for position, segment in enumerate(queue.segments)
        for step, task in enumerate(segment.tasks)
    }


def _reads(graph: OpGraph, places: Mapping[str, Place]) -> Iterator[tuple[Op, str, Op]]:
    """(reader, value, maker) for every value that one task makes and another reads."""
    makers = {name: op for op in graph.ops for name in op.outputs if name}
    for op in graph.ops:
        if op.name in places:
            for name in dict.fromkeys((*op.inputs, *op.captures)):
                if name in makers and makers[name].name in places:
                    yield op, name, makers[name]


def _each_task_once(plan: Plan, graph: OpGraph, places: Mapping[str, Place]) -> Iterator[str]:
    listed = [task for queue in plan.devices for segment in queue.segments for task in segment.tasks]
    names = [op.name for op in graph.ops]
    if len(set(names)) != len(names):
        yield "two operators of the graph have one name"
    known_names, seen = set(names), set()
    for task in listed:
        if task in seen:
            yield f"{task!r} is planned twice"
        if task not in known_names:
            yield f"{task!r} is no operator of the graph"
        seen.add(task)
    # What is left out must follow from constants alone, and be no result and not random.
    known = set(graph.weights)
    for op in graph.ops:
        if op.name in places:
            continue
        unknown = [name for name in (*op.inputs, *op.captures) if name and name not in known]
        if unknown or op.op_type in _RANDOM or set(op.outputs) & set(graph.outputs):
            yield f"{op.name!r} is in no segment, and depends on {unknown or 'chance, or is a result'}"
        known.update(op.outputs)


def _order(graph: OpGraph, places: Mapping[str, Place]) -> Iterator[str]:
    for reader, name, maker in _reads(graph, places):
        here, there = places[reader.name], places[maker.name]
        if here.device == there.device and (here.queue, here.step) <= (there.queue, there.step):
            yield f"{reader.name!r} runs before {maker.name!r} on {here.device}, and reads {name!r}"


def _transfers(plan: Plan, graph: OpGraph, places: Mapping[str, Place]) -> Iterator[str]:
    wanted: dict[tuple[str, str], tuple[Place, Place]] = {}
    for reader, name, maker in _reads(graph, places):
        here, there = places[reader.name], places[maker.name]
        if here.segment != there.segment and graph.tensors[name].kind != "tensor":
            yield f"{name!r} is a {graph.tensors[name].kind} and leaves its segment"
        if here.device != there.device:
            first = wanted.get((name, here.device), (there, here))[1]
            wanted[name, here.device] = (there, min(first, here, key=lambda place: place.queue))
    device_of = {segment.id: queue.device for queue in plan.devices for segment in queue.segments}
    seen: set[tuple[str, str]] = set()
    for transfer in plan.transfers:
        key = (transfer.tensor, device_of[transfer.dst])
        if key in seen:
            yield f"{key} is sent twice"
        seen.add(key)
        if key not in wanted:
            yield f"nobody reads {key}"
            continue
        src, dst = wanted[key]
        if (transfer.src, transfer.dst) != (src.segment, dst.segment):
            yield f"{key} goes {transfer.src}->{transfer.dst}, is needed {src.segment}->{dst.segment}"
        if transfer.nbytes != graph.tensors[transfer.tensor].nbytes:
            yield f"{key} has {graph.tensors[transfer.tensor].nbytes} bytes, not {transfer.nbytes}"
    yield from (f"{key} is read and not sent" for key in wanted if key not in seen)


def _convex(graph: OpGraph, places: Mapping[str, Place]) -> Iterator[str]:
    """No path leaves a segment and comes back: contracting segments leaves the data edges acyclic."""
    after: dict[str, set[str]] = {}
    waits: dict[str, int] = {place.segment: 0 for place in places.values()}
    for reader, _, maker in _reads(graph, places):
        src, dst = places[maker.name].segment, places[reader.name].segment
        if src != dst and dst not in after.setdefault(src, set()):
            after[src].add(dst)
            waits[dst] += 1
    free = [name for name, count in waits.items() if not count]
    for name in free:
        for other in sorted(after.get(name, ())):
            waits[other] -= 1
            if not waits[other]:
                free.append(other)
    if len(free) < len(waits):
        yield f"segments that are not convex: {sorted(name for name, count in waits.items() if count)[:6]}"


def _dry_run(plan: Plan, graph: OpGraph, places: Mapping[str, Place]) -> Iterator[str]:
    """Devices take turns; one whose next segment lacks a value waits. Stops when all wait."""
    needs: dict[str, set[str]] = {}
    for reader, name, maker in _reads(graph, places):
        if places[maker.name].segment != places[reader.name].segment:
            needs.setdefault(places[reader.name].segment, set()).add(name)
    writes = {op.name: op.outputs for op in graph.ops}
    made: set[str] = set()
    at = [0] * len(plan.devices)
    moved = True
    while moved:
        moved = False
        for number, queue in enumerate(plan.devices):
            while at[number] < len(queue.segments):
                segment = queue.segments[at[number]]
                if not needs.get(segment.id, set()) <= made:
                    break
                made.update(name for task in segment.tasks for name in writes.get(task, ()))
                at[number] += 1
                moved = True
    for number, queue in enumerate(plan.devices):
        if at[number] < len(queue.segments):
            yield f"deadlock: {queue.device} waits before {queue.segments[at[number]].id}"


def _predictions(plan: Plan) -> Iterator[str]:
    naive = naive_step_ns(plan)
    if plan.predictions.step_ns != naive:
        yield f"predicts {plan.predictions.step_ns} ns, a clock says {naive} ns"
    bounds = plan.predictions.lower_bounds
    if not bounds.any_ns <= bounds.split_ns <= plan.predictions.step_ns:
        yield f"bounds {bounds.any_ns} <= {bounds.split_ns} <= step {plan.predictions.step_ns} do not hold"


def naive_step_ns(plan: Plan) -> int | None:
    """One step of a plan by a clock that jumps from event to event; None if it never ends.

    Every segment must take some time (``dispatch_ns`` or its tasks).
    """
    links = {(link.src, link.dst): link for link in plan.cluster.links}
    device_of = {segment.id: queue.device for queue in plan.devices for segment in queue.segments}
    duration = {s.id: plan.dispatch_ns + s.compute_ns for queue in plan.devices for s in queue.segments}
    missing = dict.fromkeys(duration, 0)
    for transfer in plan.transfers:
        missing[transfer.dst] += 1
    queues = {queue.device: [segment.id for segment in queue.segments] for queue in plan.devices}
    running: dict[str, tuple[int, str]] = {}
    on_wire: dict[str, tuple[int, int]] = {}
    waiting: list[tuple[int, int]] = []
    now = last = 0
    while True:
        for device, (end, segment) in list(running.items()):
            if end == now:
                del running[device]
                last = now
                waiting.extend((now, i) for i, t in enumerate(plan.transfers) if t.src == segment)
        settled = False
        while not settled:
            settled = True
            for channel, (end, index) in list(on_wire.items()):
                if end == now:
                    del on_wire[channel]
                    missing[plan.transfers[index].dst] -= 1
            for ready, index in sorted(waiting):
                transfer = plan.transfers[index]
                link = links[device_of[transfer.src], device_of[transfer.dst]]
                channel = link.channel or f"{link.src}->{link.dst}"
                if not link.channel and not link.bytes_per_s:  # shared memory: a wake-up, nothing that queues
                    channel = f"#{index}"
                if channel not in on_wire:
                    on_wire[channel] = (now + _carry_ns(link, transfer.nbytes), index)
                    waiting.remove((ready, index))
                    settled = False
        for device, queue in queues.items():
            if queue and device not in running and not missing[queue[0]]:
                segment = queue.pop(0)
                assert duration[segment] > 0
                running[device] = (now + duration[segment], segment)
        ends = [end for end, _ in (*running.values(), *on_wire.values())]
        if not ends:
            return None if any(queues.values()) else last
        now = min(ends)


def _carry_ns(link: LinkSpec, nbytes: int) -> int:
    if not link.bytes_per_s:
        return link.latency_ns
    whole, rest = divmod(nbytes * 1_000_000_000, link.bytes_per_s)
    return link.latency_ns + whole + (1 if rest else 0)
