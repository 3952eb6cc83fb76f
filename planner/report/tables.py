"""What a plan says, as tables for the terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.plan.schema import Plan
from planner.report.text import printable
from planner.units import format_size, format_time

# Segments of the critical path that are shown.
_LAST = 4


def device_table(plan: Plan) -> Table:
    """Each device's share: time busy, memory, tasks and segments."""
    table = Table("device", "kind", title="Devices", title_justify="left")
    for heading in ("busy", "of step", "peak memory", "of memory", "tasks", "segments"):
        table.add_column(heading, justify="right")
    loads = {load.device: load for load in plan.predictions.devices}
    queues = {queue.device: queue.segments for queue in plan.devices}
    for device in plan.cluster.devices:
        segments = queues.get(device.name, ())
        load = loads.get(device.name)
        busy_ns, peak = (load.busy_ns, load.peak_bytes) if load else (0, 0)
        table.add_row(
            Text(printable(device.name)),
            Text(printable(device.kind)),
            format_time(busy_ns),
            _percent(busy_ns, plan.predictions.step_ns),
            format_size(peak),
            _percent(peak, device.memory_bytes),
            str(sum(len(segment.tasks) for segment in segments)),
            str(len(segments)),
        )
    return table


def candidates_table(plan: Plan) -> Table:
    """The plan and what else was in the race, fastest first; speed-ups are over one device."""
    table = Table("planner", title="Candidates", title_justify="left")
    table.add_column("predicted step", justify="right")
    table.add_column("speed-up", justify="right")
    table.add_column("")
    chosen = plan.predictions.step_ns
    one_device = plan.predictions.one_device_step_ns
    rows = [(candidate.step_ns, candidate.planner, candidate.infeasible) for candidate in plan.predictions.candidates]
    if all(planner != plan.planner for _, planner, _ in rows):
        rows.insert(0, (chosen, plan.planner, ""))
    # Stable: at equal times the plan's own order stays. Those without a plan come last.
    rows.sort(key=lambda row: (row[0] is None, row[0] or 0, row[1] != plan.planner))
    for step_ns, planner, infeasible in rows:
        note = "this plan" if planner == plan.planner else printable(infeasible)
        table.add_row(
            Text(printable(planner)),
            "-" if step_ns is None else format_time(step_ns),
            _ratio(one_device, step_ns),
            Text(note),
            style="bold" if planner == plan.planner else "",
        )
    return table


def verdict(plan: Plan) -> Text:
    """The predicted step, why this plan won, and how near it is to the bounds."""
    predictions = plan.predictions
    lines = [
        f"predicted step {format_time(predictions.step_ns)}, by {printable(plan.planner)}",
        f"why: {printable(plan.why)}",
    ]
    if predictions.one_device_step_ns is not None:
        one_device = format_time(predictions.one_device_step_ns)
        lines.append(
            f"one device: {one_device}; speed-up {_ratio(predictions.one_device_step_ns, predictions.step_ns)}"
        )
    bounds = predictions.lower_bounds
    lines.append(
        f"no schedule of these tasks takes less than {format_time(bounds.split_ns)}, "
        f"{'no combination of the splits tried' if plan.costs.measured else 'no split of it'} "
        f"less than {format_time(bounds.any_ns)}"
    )
    if predictions.transfer_bytes or plan.transfers:
        transfers = f"{len(plan.transfers)} transfer{'' if len(plan.transfers) == 1 else 's'}"
        size, time = format_size(predictions.transfer_bytes), format_time(predictions.transfer_ns)
        lines.append(f"{transfers}, {size}, {time} in all")
    lines += critical_lines(plan)
    if replicas := replica_line(plan):
        lines.append(replicas)
    costs = plan.costs
    lines.append(f"costs: {costs.measured} measured, {costs.estimated} estimated")
    lines += [f"note: {printable(note)}" for note in plan.notes]
    return Text("\n".join(lines))


def critical_lines(plan: Plan) -> list[str]:
    """The end of the critical path: which segments the step waits for."""
    path = plan.predictions.critical_path
    if not path:
        return []
    where = {s.id: (queue.device, s) for queue in plan.devices for s in queue.segments}
    steps = []
    for number in path[-_LAST:]:
        device, segment = where[number]
        tasks = printable(segment.tasks[0]) if segment.tasks else ""
        more = f" and {len(segment.tasks) - 1} more" if len(segment.tasks) > 1 else ""
        steps.append(f"{number} on {printable(device)} ({tasks}{more}, {format_time(segment.compute_ns)})")
    before = "... -> " if len(path) > _LAST else ""
    return [f"critical path, {len(path)} segments: {before}{' -> '.join(steps)}"]


def replica_line(plan: Plan) -> str:
    """What as many independent sessions as there are equal devices would give."""
    one, step = plan.predictions.one_device_step_ns, plan.predictions.step_ns
    devices = [device for device in plan.cluster.devices if not device.members]
    if not one or not step or len(devices) < 2:
        return ""
    kinds = {device.kind for device in devices}
    if len(kinds) > 1:
        return ""
    count = len(devices)
    theirs, ours = f"{count * 1e9 / one:.1f}", f"{1e9 / step:.1f}"
    # Of two rates that read the same neither is called more.
    compared = "as many as" if theirs == ours else "more than" if count * step > one else "fewer than"
    return f"throughput: {count} replicas give {theirs} steps/s, {compared} this plan's {ours}, each step slower"


def summary(plan: Plan) -> Group:
    """All that ``fddps show`` prints of a plan, but for the Gantt chart."""
    return Group(verdict(plan), device_table(plan), candidates_table(plan))


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def _ratio(before: int | None, after: int | None) -> str:
    return f"{before / after:.2f}x" if before and after else "-"
