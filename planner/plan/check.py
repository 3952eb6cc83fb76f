"""Rules of a plan that can be checked without its model.

Each check yields one line for each violation, in the order of the file. That the tasks are those of the split
graph, and that every tensor reaches its consumers, is checked where the model is known: in ``partition/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from planner.errors import PlanError
from planner.plan.schema import DeviceSpec, Plan, TransferSpec

# No system counts so many.
_MOST_CORES: Final = 2**16


def violations(plan: Plan) -> list[str]:
    """What is wrong with a plan, one line each; empty for a sound one."""
    return [
        *_cluster(plan),
        *_links(plan),
        *_members(plan),
        *_merged(plan),
        *_splits(plan),
        *_queues(plan),
        *_unknown_ends(plan),
        *_transfers(plan),
        *_names(plan),
        *_deadlock(plan),
    ]


def require_runnable(plan: Plan, where: str) -> None:
    """Refuse a plan that cannot be run whatever its model is: it names what is not there, or it deadlocks.

    What only predictions need (links between all devices, say) is not asked for: anyone may write a plan.

    Args:
        plan: the plan.
        where: its file, for the message.

    Raises:
        PlanError: with the first of them.
    """
    found = [*_cluster(plan), *_members(plan), *_queues(plan), *_unknown_ends(plan), *_deadlock(plan)]
    if found:
        more = f" (and {len(found) - 1} more, see `fddps validate`)" if len(found) > 1 else ""
        raise PlanError(found[0] + more, where=where, next_step="correct the file, or plan again")


def find_cycle(plan: Plan) -> tuple[str, ...]:
    """Segments that wait for each other through device queues and transfers.

    Returns:
        Segment ids in the order in which each is waited for by the next, the last by the first; empty if the plan
        can run to its end. Transfers of unknown segments are passed over.
    """
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for queue in plan.devices:
        for segment in queue.segments:
            before.setdefault(segment.id, [])
    edges = [(first.id, second.id) for queue in plan.devices for first, second in pairwise(queue.segments)]
    edges += [(t.src, t.dst) for t in plan.transfers if t.src in before and t.dst in before]
    for src, dst in edges:
        before[dst].append(src)
        after.setdefault(src, []).append(dst)
    waiting = {name: len(sources) for name, sources in before.items()}
    free = [name for name, count in waiting.items() if not count]
    while free:
        name = free.pop()
        del waiting[name]
        for following in after.get(name, ()):
            waiting[following] -= 1
            if not waiting[following]:
                free.append(following)
    return _walk_back(before, waiting)


def _walk_back(before: dict[str, list[str]], stuck: dict[str, int]) -> tuple[str, ...]:
    """Every stuck segment waits for a stuck one, so going back must come round."""
    path: list[str] = []
    seen: dict[str, int] = {}
    name = next(iter(stuck), None)
    while name is not None and name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = next(source for source in before[name] if source in stuck)
    return tuple(reversed(path[seen[name] :])) if name is not None else ()


def _repeated(names: Iterable[str]) -> Iterator[str]:
    """Each name that occurs more than once, at its second occurrence."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        if counts[name] == 2:
            yield name


def _cluster(plan: Plan) -> Iterator[str]:
    cluster = plan.cluster
    if not cluster.devices:
        yield "cluster.devices: there is no device"
    for name in _repeated(device.name for device in cluster.devices):
        yield f"cluster.devices: the device {name!r} occurs twice"
    for name in _repeated(cluster.nodes):
        yield f"cluster.nodes: the node {name!r} occurs twice"
    for device in cluster.devices:
        if device.node not in cluster.nodes:
            yield f"cluster.devices: {device.name!r} is on the node {device.node!r}, which cluster.nodes lacks"
        if device.memory_bytes == 0:
            yield f"cluster.devices: {device.name!r} has no memory"
        for core in _repeated(map(str, device.cores)):
            yield f"cluster.devices: {device.name!r} has the core {core} twice"
        for number in device.cores:
            if not 0 <= number < _MOST_CORES:
                yield f"cluster.devices: {device.name!r} has the core {number}, and cores are 0 to {_MOST_CORES - 1}"


def _links(plan: Plan) -> Iterator[str]:
    devices = {device.name: device for device in plan.cluster.devices}
    pairs = set()
    for link in plan.cluster.links:
        for end in dict.fromkeys((link.src, link.dst)):
            if end not in devices:
                yield f"cluster.links: {link.src!r} to {link.dst!r}: there is no device {end!r}"
        if link.src == link.dst:
            yield f"cluster.links: {link.src!r} is linked to itself"
        if (link.src, link.dst) in pairs:
            yield f"cluster.links: {link.src!r} to {link.dst!r} occurs twice"
        pairs.add((link.src, link.dst))
    # A merged device is its members: it has links only where a plan sends something over them.
    single = [name for name, device in devices.items() if not device.members]
    for src in single:
        for dst in single:
            if src != dst and (src, dst) not in pairs:
                yield f"cluster.links: there is no link from {src!r} to {dst!r}"


def _members(plan: Plan) -> Iterator[str]:
    names = {device.name for device in plan.cluster.devices}
    for merged in plan.cluster.devices:
        for name in merged.members:
            if name not in names or name == merged.name:
                yield f"cluster.devices: {merged.name!r} spans {name!r}, which is no other device"


def _merged(plan: Plan) -> Iterator[str]:
    devices = {device.name: device for device in plan.cluster.devices}
    used = {queue.device for queue in plan.devices if queue.segments}
    for merged in plan.cluster.devices:
        if not merged.members:
            continue
        members = [devices[name] for name in merged.members if name in devices]
        for name in merged.members:
            if name in used and merged.name in used and name != merged.name:
                yield f"devices: {merged.name!r} and its member {name!r} both have segments, on the same cores"
        yield from _merged_fields(merged, members)


def _merged_fields(merged: DeviceSpec, members: list[DeviceSpec]) -> Iterator[str]:
    for name in _repeated(merged.members):
        yield f"cluster.devices: {merged.name!r} spans {name!r} twice"
    cores = {core for member in members for core in member.cores}
    if set(merged.cores) != cores:
        yield f"cluster.devices: the cores of {merged.name!r} are not those of its members"
    for member in members:
        if (member.node, member.type) != (merged.node, merged.type):
            yield f"cluster.devices: {merged.name!r} spans {member.name!r} of another node or type"


def _splits(plan: Plan) -> Iterator[str]:
    counts: dict[str, int] = {}
    seen = set()
    for split in plan.splits:
        if (split.op, split.axis) in seen:
            yield f"splits: {split.op!r} is split twice along {split.axis!r}"
        seen.add((split.op, split.axis))
        counts[split.op] = counts.get(split.op, 0) + 1
        if counts[split.op] == 3:
            yield f"splits: {split.op!r} is split more than twice"
        if not split.sizes or min(split.sizes) < 1:
            yield f"splits: {split.op!r} along {split.axis!r} has a shard without size"


def _queues(plan: Plan) -> Iterator[str]:
    devices = {device.name for device in plan.cluster.devices}
    for queue in plan.devices:
        if queue.device not in devices:
            yield f"devices: {queue.device!r} is no device of the cluster"
    for name in _repeated(queue.device for queue in plan.devices):
        yield f"devices: {name!r} has two queues"
    segments = [segment for queue in plan.devices for segment in queue.segments]
    for segment in segments:
        if not segment.id:
            yield "devices: a segment has an empty id"
        if not segment.tasks:
            yield f"devices: the segment {segment.id!r} has no task"
    for name in _repeated(segment.id for segment in segments):
        yield f"devices: the segment {name!r} occurs twice"
    for name in _repeated(task for segment in segments for task in segment.tasks):
        yield f"devices: the task {name!r} occurs twice"


def transfer_place(transfer: TransferSpec) -> str:
    """Which transfer a violation is about."""
    return f"transfers: {transfer.tensor!r} from {transfer.src!r} to {transfer.dst!r}"


def _unknown_ends(plan: Plan) -> Iterator[str]:
    segments = {segment.id for queue in plan.devices for segment in queue.segments}
    for transfer in plan.transfers:
        for end in dict.fromkeys((transfer.src, transfer.dst)):
            if end not in segments:
                yield f"{transfer_place(transfer)}: there is no segment {end!r}"


def _transfers(plan: Plan) -> Iterator[str]:
    device_of = {segment.id: queue.device for queue in plan.devices for segment in queue.segments}
    links = {(link.src, link.dst) for link in plan.cluster.links}
    names = {device.name for device in plan.cluster.devices}
    sent = set()
    for transfer in plan.transfers:
        if transfer.src not in device_of or transfer.dst not in device_of:
            continue
        place = transfer_place(transfer)
        src, dst = device_of[transfer.src], device_of[transfer.dst]
        if src == dst:
            yield f"{place}: both are on {src!r}, which needs no transfer"
        elif (src, dst) not in links and {src, dst} <= names:
            yield f"{place}: there is no link from {src!r} to {dst!r}"
        if (transfer.tensor, dst) in sent:
            yield f"{place}: it is sent to {dst!r} twice"
        sent.add((transfer.tensor, dst))


def _names(plan: Plan) -> Iterator[str]:
    """Names in predictions and states."""
    devices = {device.name for device in plan.cluster.devices}
    segments = {segment.id for queue in plan.devices for segment in queue.segments}
    predicted = [load.device for load in plan.predictions.devices]
    for name in predicted:
        if name not in devices:
            yield f"predictions.devices: {name!r} is no device of the cluster"
    for name in _repeated(predicted):
        yield f"predictions.devices: {name!r} occurs twice"
    for name in plan.predictions.critical_path:
        if name not in segments:
            yield f"predictions.critical_path: there is no segment {name!r}"
    for name in _repeated(state.input for state in plan.states):
        yield f"states: the input {name!r} occurs twice"
    for name in _repeated(state.output for state in plan.states):
        yield f"states: the output {name!r} occurs twice"


def _deadlock(plan: Plan) -> Iterator[str]:
    cycle = find_cycle(plan)
    if cycle:
        shown = [*cycle[:8], *(["..."] if len(cycle) > 8 else []), cycle[0]]
        yield f"devices and transfers: deadlock, each waits for the one before: {' -> '.join(shown)}"
