"""What changed between two plans, in terms of decisions.

A plan's decisions are where each task runs, in which order, cut into which segments, split how, sent where, for which
model and devices. Its tool version, command, costs, predictions, notes and UUIDs are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.plan.schema import Plan
from planner.units import format_time


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not the same; an empty ``before`` or ``after`` means that it was not there."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Differences between two plans.

    Attributes:
        model: digest, input and state changes.
        devices: device changes (UUIDs aside), and links that are new, gone or on another channel.
        splits: operator and axis, with the sizes.
        moved: tasks, with the devices' names; empty where only one plan has the task, as after another split.
        reordered: devices that run the same tasks in another order.
        recut: devices that run the same tasks in the same order, cut into other segments.
        transfers: how many are sent in one plan only.
        before_ns: predicted step of the first plan.
        after_ns: predicted step of the second plan.
    """

    model: tuple[Change, ...]
    devices: tuple[Change, ...]
    splits: tuple[Change, ...]
    moved: tuple[Change, ...]
    reordered: tuple[str, ...]
    recut: tuple[str, ...]
    transfers: int
    before_ns: int
    after_ns: int

    @property
    def same_decisions(self) -> bool:
        """Whether nothing but predictions may differ."""
        return not (
            self.model or self.devices or self.splits or self.moved or self.reordered or self.recut or self.transfers
        )


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """Compare two plans; pure."""
    tasks = [{queue.device: _segments(plan, queue.device) for queue in plan.devices} for plan in (before, after)]
    placements = [
        {task: device for device, segments in queues.items() for segment in segments for task in segment}
        for queues in tasks
    ]
    reordered, recut = [], []
    for device in dict.fromkeys((*tasks[0], *tasks[1])):
        old, new = tasks[0].get(device, ()), tasks[1].get(device, ())
        old_order, new_order = ([task for segment in segments for task in segment] for segments in (old, new))
        if old_order == new_order:
            recut += [device] if old != new else []
        elif sorted(old_order) == sorted(new_order) or placements[0] == placements[1]:
            reordered.append(device)
    same_queues = tasks[0] == tasks[1]
    return PlanDiff(
        model=_changes(_model(before, after), _model(after, before)),
        devices=_changes(_devices(before), _devices(after)),
        splits=_changes(_splits(before), _splits(after)),
        moved=_changes(*placements),
        reordered=tuple(reordered),
        recut=tuple(recut),
        transfers=_count_changes(_transfers(before, same_queues), _transfers(after, same_queues)),
        before_ns=before.predictions.step_ns,
        after_ns=after.predictions.step_ns,
    )


def same_decisions(before: Plan, after: Plan) -> bool:
    """Whether two plans do the same, whatever they predict and whoever wrote them."""
    return diff_plans(before, after).same_decisions


def slowdown(before: Plan, after: Plan) -> float:
    """By which fraction the second plan's predicted step is longer; negative if it is shorter."""
    return _slowdown(before.predictions.step_ns, after.predictions.step_ns)


def diff_lines(diff: PlanDiff, *, limit: int = 10) -> list[str]:
    """The difference as text: the step, counts, and the first ``limit`` changes of each sort."""
    change = _slowdown(diff.before_ns, diff.after_ns)
    lines = [f"predicted step: {format_time(diff.before_ns)} -> {format_time(diff.after_ns)} ({change:+.1%})"]
    if diff.same_decisions:
        return [*lines, "the decisions are the same"]
    moved = tuple(change for change in diff.moved if change.before and change.after)
    single = tuple(change for change in diff.moved if not (change.before and change.after))
    sorts = (
        ("model", diff.model),
        ("devices", diff.devices),
        ("splits", diff.splits),
        ("tasks moved", moved),
        ("tasks of one plan only", single),
    )
    for title, changes in sorts:
        if not changes:
            continue
        lines.append(f"{title}: {len(changes)} changed")
        lines += [f"  {_one_line(c.name)}: {c.before or 'none'} -> {c.after or 'none'}" for c in changes[:limit]]
        if len(changes) > limit:
            lines.append(f"  ... and {len(changes) - limit} more")
    if diff.reordered:
        lines.append(f"order changed on: {', '.join(diff.reordered)}")
    if diff.recut:
        lines.append(f"segments cut differently on: {', '.join(diff.recut)}")
    if diff.transfers:
        lines.append(f"transfers: {diff.transfers} changed")
    return lines


def _slowdown(before_ns: int, after_ns: int) -> float:
    if before_ns == after_ns:
        return 0.0
    return after_ns / before_ns - 1 if before_ns else math.inf


def _one_line(name: str) -> str:
    """A name as it is, unless a terminal would do something with it."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """In the first plan's order, then what only the second has."""
    names = dict.fromkeys((*before, *after))
    rows = (Change(name, before.get(name, ""), after.get(name, "")) for name in names)
    return tuple(row for row in rows if row.before != row.after)


def _count_changes(before: Iterable[Any], after: Iterable[Any]) -> int:
    """Entries of one list that the other lacks, both ways; repeated ones count."""
    balance: dict[Any, int] = {}
    for step, entries in ((1, before), (-1, after)):
        for entry in entries:
            balance[entry] = balance.get(entry, 0) + step
    return sum(map(abs, balance.values()))


def _segments(plan: Plan, device: str) -> tuple[tuple[str, ...], ...]:
    return tuple(s.tasks for queue in plan.devices if queue.device == device for s in queue.segments)


def _model(plan: Plan, other: Plan) -> dict[str, str]:
    model = plan.model
    rows = {"digest": model.digest, "simplification": str(model.simplification)}
    if model.file_sha256 and other.model.file_sha256:
        rows["file"] = model.file_sha256[:12]
    if model.batch is not None:
        axes = "".join(f", {name} along {axis}" for name, axis in sorted(model.batch_axes.items()))
        rows["batch"] = f"{model.batch}{axes}"
    for name in sorted(plan.inputs):
        rows[f"input {name}"] = f"{plan.inputs[name].dtype} {list(plan.inputs[name].shape)}"
    for state in plan.states:
        rows[f"state {state.input}"] = state.output
    return rows


def _devices(plan: Plan) -> dict[str, str]:
    rows = {}
    for device in plan.cluster.devices:
        parts = [device.kind, device.type, f"{device.memory_bytes} bytes", device.node, f"index {device.index}"]
        parts += [f"cores {list(device.cores)}"] if device.cores else []
        parts += [f"members {list(device.members)}"] if device.members else []
        parts += ["shared"] if device.shared else []
        rows[device.name] = ", ".join(parts)
    for link in plan.cluster.links:
        rows[f"{link.src} -> {link.dst}"] = f"linked ({link.channel or 'own channel'})"
    return rows


def _splits(plan: Plan) -> dict[str, str]:
    """The order of two splits of one operator matters: the second splits the shards of the first."""
    rows: dict[str, str] = {}
    for split in plan.splits:
        text = f"{split.axis} {list(split.sizes)}"
        rows[split.op] = f"{rows[split.op]}, then {text}" if split.op in rows else text
    return rows


def _transfers(plan: Plan, by_segment: bool) -> list[tuple[str, tuple[str, int], tuple[str, int]]]:
    """Tensor, source, destination. Segment ids are labels, so segments count by their place in the queue.

    Where the queues differ anyway, only the devices are compared: a cut would else change every transfer behind it.
    """
    place = {
        segment.id: (queue.device, position if by_segment else 0)
        for queue in plan.devices
        for position, segment in enumerate(queue.segments)
    }
    nowhere = ("", 0)
    return [(t.tensor, place.get(t.src, nowhere), place.get(t.dst, nowhere)) for t in plan.transfers]
