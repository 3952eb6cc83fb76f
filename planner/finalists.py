"""Running the candidates that are about to win, so that what wins is what was seen to be fast.

A plan of many pieces is predicted from the costs of its operators, many of them estimated; a simple choice was measured
as a whole. Comparing the two favours whichever was guessed too low. So every candidate that is nearly the best runs for
some steps on the devices, by the launcher that will run the plan; the times of its segments go into the profile, and
the race is decided again. With a profile that has been through this, planning measures nothing and decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import Final

from planner.cost.keys import segment_digest
from planner.cost.profile import Measurement, ProfileKey, ProfileTable, segment_key
from planner.graph.op_graph import Array, TensorInfo
from planner.launcher.planned_session import PlannedSession
from planner.plan.schema import Plan
from planner.runtime.feeds import random_feeds
from planner.schedule.drafts import Draft

STEPS: Final = 5
# Candidates within this many thousandths of the best are run.
NEARLY_PERMILLE: Final = 150


def finalists(drafts: Sequence[Draft]) -> list[Draft]:
    """Drafts nearly as good as the best that consist of several segments and so may owe their place to an estimate."""
    best = min((draft.step_ns for draft in drafts), default=0)
    near = [d for d in drafts if d.step_ns * 1000 <= best * (1000 + NEARLY_PERMILLE) and len(d.cut.segments) > 1]
    return sorted(near, key=lambda draft: draft.step_ns)


def missing_segments(draft: Draft, table: ProfileTable) -> bool:
    """Whether the profile lacks the time of some segment of a draft."""
    return any(key not in table.entries for key in segment_keys(draft))


def segment_keys(draft: Draft) -> list[ProfileKey]:
    """Profile key of each segment of a draft."""
    keys = []
    for segment in draft.cut.segments:
        device = draft.cluster.devices[segment.device]
        digest = segment_digest(draft.workload.segment_keys(segment.tasks))
        keys.append(ProfileKey(device.kind, device.type, segment_key(digest)))
    return keys


def run_finalist(
    draft: Draft, plan: Plan, model_path: Path, feeds: Mapping[str, Array], ort_version: str, dispatch_ns: int
) -> ProfileTable:
    """Run a draft's plan for some steps and note how long each segment takes.

    Args:
        draft: the candidate.
        plan: its plan; segment ``i`` of the draft is ``s<i>``.
        model_path: the model's file.
        feeds: values for inputs; random ones where missing.
        ort_version: for the profile.
        dispatch_ns: overhead that the plan counts on top of a segment's time.

    Raises:
        ExecutionError: if a segment cannot run.
    """
    infos = [TensorInfo(name, spec.dtype, spec.shape) for name, spec in plan.inputs.items()]
    values = {**random_feeds([info for info in infos if info.name not in feeds], 0, int_high=2), **feeds}
    times: dict[str, list[int]] = {}
    with PlannedSession(plan, model_path=model_path, allow_outside=True) as session:
        for step in range(STEPS + 1):
            session.run(None, {name: values[name] for name in plan.inputs})
            for timing in session.timings if step else ():
                times.setdefault(timing.segment, []).append(timing.end_ns - timing.start_ns)
    found: dict[ProfileKey, list[int]] = {}
    for number, key in enumerate(segment_keys(draft)):
        found.setdefault(key, []).append(max(median_low(times[f"s{number}"]) - dispatch_ns, 1))
    return ProfileTable({key: Measurement(sum(ns) // len(ns), STEPS, ort_version) for key, ns in found.items()})
