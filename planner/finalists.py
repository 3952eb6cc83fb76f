"""Running the candidates that are about to win, so that what wins is what was seen to be fast.

A plan of many pieces is predicted from the costs of its operators, many of them estimated; a simple choice was measured
as a whole. Comparing the two favours whichever was guessed too low. So every candidate that is nearly the best runs for
some steps on the devices, by the launcher that will run the plan; the times of its segments go into the profile, and
the race is decided again. With a profile that has been through this, planning measures nothing and decides the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Final

from planner.cost.keys import segment_digest
from planner.cost.profile import Measurement, ProfileKey, ProfileTable, segment_key
from planner.graph.op_graph import Array
from planner.launcher.planned_session import PlannedSession
from planner.profiling.lanes import lower_quartile
from planner.runtime.feeds import random_feeds
from planner.runtime.values import ort_version
from planner.schedule.cut import with_compute
from planner.schedule.drafts import Draft

ROUNDS: Final = 9
# A round of slow plans is repeated less often, but at least this often.
LEAST_ROUNDS: Final = 3
SECONDS: Final = 8.0
# Threads of a session may spin for a moment after a run.
PAUSE_S: Final = 0.01
# Candidates within this many thousandths of the best are run, at most so many at once.
NEARLY_PERMILLE: Final = 150
MOST: Final = 3


def finalists(drafts: Sequence[Draft], table: ProfileTable) -> list[Draft]:
    """Drafts that must run before one can be chosen: the nearly best, if the profile lacks a segment of one of many.

    Args:
        drafts: all candidates, with the times known by now.
        table: the profile.
    """
    best = min((draft.step_ns for draft in drafts), default=0)
    near: dict[tuple[ProfileKey, ...], Draft] = {}
    for draft in sorted(drafts, key=lambda draft: draft.step_ns):
        if draft.step_ns * 1000 <= best * (1000 + NEARLY_PERMILLE):
            near.setdefault(tuple(segment_keys(draft)), draft)
    open_keys = [
        keys
        for keys, draft in near.items()
        if len(draft.cut.segments) > 1 and any(k not in table.entries for k in keys)
    ]
    if not open_keys:
        return []
    # The best of the others come along, so that all are timed in turns.
    chosen = list(dict.fromkeys((*open_keys[:MOST], *near)))[:MOST]
    return [near[keys] for keys in near if keys in chosen]


def segment_keys(draft: Draft) -> list[ProfileKey]:
    """Profile key of each segment of a draft."""
    keys = []
    for segment in draft.cut.segments:
        device = draft.cluster.devices[segment.device]
        digest = segment_digest(draft.workload.segment_keys(segment.tasks))
        keys.append(ProfileKey(device.kind, device.type, segment_key(digest)))
    return keys


def values_for(session: PlannedSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The given value of each input, or a random one."""
    random = random_feeds([info for info in session.inputs if info.name not in feeds], 0, int_high=2)
    return {info.name: feeds[info.name] if info.name in feeds else random[info.name] for info in session.inputs}


def run_finalists(
    entrants: Sequence[tuple[Draft, PlannedSession]], feeds: Mapping[str, Array], dispatch_ns: int
) -> ProfileTable:
    """Run drafts in turns and note how long each segment takes.

    A segment's time is the lower quartile, since disturbance only adds; but what workers lose in waiting for each other
    is in no segment. So the segments of a draft are scaled until the simulated step is the median of the measured ones.

    Args:
        entrants: candidates with sessions of their plans; segment ``i`` of the draft is ``s<i>``.
        feeds: values for inputs; random ones where missing.
        dispatch_ns: overhead that a plan counts on top of a segment's time.

    Raises:
        ExecutionError: if a segment cannot run.
    """
    times: list[dict[str, list[int]]] = [{} for _ in entrants]
    steps: list[list[int]] = [[] for _ in entrants]
    values = values_for(entrants[0][1], feeds)
    begin = time.monotonic()
    for turn in range(ROUNDS + 1):
        if turn > LEAST_ROUNDS and time.monotonic() - begin > SECONDS:
            break
        for taken, step, (_, session) in zip(times, steps, entrants, strict=True):
            time.sleep(PAUSE_S)
            start = time.perf_counter_ns()
            session.run(None, values)
            if turn:
                step.append(time.perf_counter_ns() - start)
                for timing in session.timings:
                    taken.setdefault(timing.segment, []).append(timing.end_ns - timing.start_ns)
    found: dict[ProfileKey, list[int]] = {}
    for taken, step, (draft, _) in zip(times, steps, entrants, strict=True):
        segments = [
            max(lower_quartile(taken[f"s{number}"]) - dispatch_ns, 1) for number in range(len(draft.cut.segments))
        ]
        simulated = max(with_compute(draft.cut, draft.cluster, dispatch_ns, segments).step_ns, 1)
        measured = median_low(step)
        for key, ns in zip(segment_keys(draft), segments, strict=True):
            found.setdefault(key, []).append(max(ns * measured // simulated, 1))
    return ProfileTable({key: Measurement(sum(ns) // len(ns), ROUNDS, ort_version()) for key, ns in found.items()})
