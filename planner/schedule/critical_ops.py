"""Which operators make a simulated step as long as it is."""

from __future__ import annotations

from planner.graph.op_graph import Op
from planner.schedule.cut import link_costs
from planner.schedule.drafts import Draft, Setting
from planner.simulate.critical import critical_path

MOST = 64


def critical_ops(draft: Draft, setting: Setting) -> list[Op]:
    """Operators of the unsplit graph on the simulated critical path, costliest first, at most ``MOST``."""
    workload = draft.workload
    costs: dict[str, int] = {}
    for number in _critical_segments(draft, setting):
        segment = draft.cut.segments[number]
        for task in segment.tasks:
            cost = int(workload.tasks.compute_ns[task, segment.device])
            for operator in workload.groups.members[task][:1]:
                if operator.name in workload.split.origin:
                    name = workload.split.origin[operator.name][0]
                    costs[name] = max(costs.get(name, 0), cost)
    by_name = {op.name: op for op in setting.model.graph.ops}
    position = {name: number for number, name in enumerate(by_name)}
    ranked = sorted(costs, key=lambda name: (-costs[name], position[name]))
    return [by_name[name] for name in ranked[:MOST]]


def _critical_segments(draft: Draft, setting: Setting) -> list[int]:
    """Segments on the critical path of the simulated step."""
    segments, transfers, times = draft.cut.segments, draft.cut.transfers, draft.cut.times
    previous = [
        number - 1 if number and segments[number - 1].device == segment.device else -1
        for number, segment in enumerate(segments)
    ]
    ends = [(segments[t.src].device, segments[t.dst].device, t.nbytes) for t in transfers]
    return critical_path(
        times.start_ns.tolist(),
        times.finish_ns.tolist(),
        previous,
        [t.src for t in transfers],
        [t.dst for t in transfers],
        link_costs(setting.cluster, ends)[1].tolist(),
        times.sent_ns.tolist(),
        times.arrival_ns.tolist(),
    )
