"""Running the candidates that are about to win, so that what wins is what was seen to be fast.

A plan of many pieces is predicted from the costs of its operators, many of them estimated; a simple choice was measured
as a whole. Comparing the two favours whichever was guessed too low. So every candidate that is nearly the best runs for
some steps on the devices, by the launcher that will run the plan; the times of its segments go into the profile, and
the race is decided again. With a profile that has been through this, planning measures nothing and decides the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from planner.cost.profile import Measurement, ProfileKey, ProfileTable
from planner.errors import ExecutionError, InputError
from planner.graph.op_graph import Array
from planner.launcher.planned_session import PlannedSession
from planner.profiling.lanes import lower_quartile
from planner.runtime.feeds import random_feeds
from planner.runtime.idle import pause_until_idle
from planner.runtime.values import ort_version
from planner.schedule.cut import with_compute
from planner.schedule.drafts import ONE_DEVICE, SHORT_NS, SIMPLE, Draft, segment_keys
from planner.tried import could_not_run

ROUNDS: Final = 25
# Rounds that take longer are repeated less often, but some are needed.
LEAST_ROUNDS: Final = 3
USUAL_ROUNDS: Final = 9
SECONDS: Final = 8.0
# Short steps need more rounds, and get them if that costs little.
MORE_SECONDS: Final = 5.0
# Candidates within this many thousandths of the best are run, at most so many at once.
NEARLY_PERMILLE: Final = 150
MOST: Final = 3
# Scale of the factors that calibrate segments, and by how much they shrink at most: of a step of mere hand-overs that
# is predicted too long, nothing would be left.
_UNIT: Final = 1 << 24
_MOST_SHRINKING: Final = 4


def finalists(drafts: Sequence[Draft], table: ProfileTable) -> list[Draft]:
    """Drafts that must run before one can be chosen: the nearly best, if the profile lacks a segment of one of them.

    One session alone that is far ahead runs too, though profiling has run it, in a loop: by how much steps that begin
    on idle cores take longer is not the same for all. Where anything runs all simple choices do, so that none that
    never ran wins over one that did, and a speed-up over one device is never put together from a loop and a run. Of
    short steps all single sessions run. One that failed in an earlier planning is tried again: it may have been for
    want of memory, or of other inputs.

    Args:
        drafts: all candidates, with the times known by now.
        table: the profile.
    """
    best = min((draft.step_ns for draft in drafts), default=0)
    near: dict[tuple[ProfileKey, ...], Draft] = {}
    for draft in sorted(drafts, key=lambda draft: draft.step_ns):
        alone_and_short = len(draft.cut.segments) == 1 and best < SHORT_NS
        if alone_and_short or draft.step_ns * 1000 <= best * (1000 + NEARLY_PERMILLE):
            near.setdefault(tuple(segment_keys(draft)), draft)
    again = {keys for keys, draft in near.items() if could_not_run(draft, table)}
    ran = [
        draft
        for draft in drafts
        if all(key in table.entries for key in segment_keys(draft)) and not could_not_run(draft, table)
    ]
    open_keys = [keys for keys in near if keys in again or any(key not in table.entries for key in keys)]
    if not open_keys:
        return []
    # The best of those that ran come along, so that all are timed in turns.
    along = [draft for draft in drafts if draft.planner in SIMPLE and draft not in ran]
    along += sorted(ran, key=lambda draft: draft.step_ns)[:1]
    chosen = {keys: near[keys] for keys in open_keys[:MOST]}
    for draft in (*along, *near.values()):
        if len(chosen) < MOST or draft in along:
            chosen.setdefault(tuple(segment_keys(draft)), draft)
    return sorted(chosen.values(), key=lambda draft: draft.step_ns)


def values_for(session: PlannedSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The given value of each input, or a random one."""
    random = random_feeds([info for info in session.inputs if info.name not in feeds], 0, int_high=2)
    return {info.name: feeds[info.name] if info.name in feeds else random[info.name] for info in session.inputs}


def run_finalists(
    entrants: Sequence[tuple[Draft, PlannedSession]],
    feeds: Mapping[str, Array],
    dispatch_ns: int,
    known: ProfileTable | None = None,
) -> tuple[ProfileTable, dict[str, str]]:
    """Run drafts in turns and note how long each segment takes.

    What workers lose in waiting for each other is in no segment, so the segments of a draft are scaled until the
    simulated step is the measured one, as :func:`step_times` has it.

    Args:
        entrants: candidates with sessions of their plans; segment ``i`` of the draft is ``s<i>``.
        feeds: values for inputs; random ones where missing.
        dispatch_ns: overhead that a plan counts on top of a segment's time.
        known: the profile: a draft whose segments it has ran before, and others are timed by it.

    Returns:
        Times of the segments of drafts that had not run before, and why a planner's draft could not run (by planner).
    """
    runs = [(draft, Runs(session, feeds)) for draft, session in entrants]
    begin = time.monotonic()
    for turn in range(ROUNDS + 1):
        elapsed = time.monotonic() - begin
        if (turn > LEAST_ROUNDS and elapsed > SECONDS) or (turn > USUAL_ROUNDS and elapsed > MORE_SECONDS):
            break
        for _, run in runs:
            if not run.problem:
                pause_until_idle()
                run.step(counts=turn > 0)
    broken = {draft.planner: run.problem for draft, run in runs if run.problem}
    sound = [(draft, run) for draft, run in runs if not run.problem]
    if not sound:
        return ProfileTable(), broken
    before = known.entries if known is not None else {}
    ran = [all(key in before for key in segment_keys(draft)) for draft, _ in sound]
    first = _standard([draft for draft, _ in sound], ran)
    steps = step_times([run.steps_ns for _, run in sound], first, sound[first][0].step_ns if any(ran) else None)
    found: dict[ProfileKey, list[Measurement]] = {}
    for (draft, run), again, step_ns in zip(sound, ran, steps, strict=True):
        if not again:
            taken = [run.segments_ns[f"s{number}"] for number in range(len(draft.cut.segments))]
            for key, ns in calibrated(draft, dispatch_ns, taken, step_ns).items():
                found.setdefault(key, []).append(Measurement(ns, len(run.steps_ns), ort_version()))
    table = ProfileTable({key: _mean(entries) for key, entries in found.items()})
    return table, broken


def _standard(drafts: Sequence[Draft], ran: Sequence[bool]) -> int:
    """Number of the draft that others are timed by: one that ran before if there is any, best the one-device one."""
    return min(range(len(drafts)), key=lambda i: (not ran[i], drafts[i].planner != ONE_DEVICE, drafts[i].step_ns))


def step_times(steps_ns: Sequence[Sequence[int]], standard: int, standard_ns: int | None = None) -> list[int]:
    """What a step of each of several contestants takes, from runs in turns.

    That of one is the lower quartile of its own, since disturbance only adds, or what it took in an earlier contest.
    The others take the median ratio to it within a turn: a machine that is slower today is slower for all, and is not
    mistaken for a slower plan.

    Args:
        steps_ns: of each contestant, one a turn.
        standard: the contestant that the others are compared with.
        standard_ns: what a step of it takes, if that is known.
    """
    own = standard_ns or lower_quartile(steps_ns[standard])
    ratios = [[a * _UNIT // max(b, 1) for a, b in zip(times, steps_ns[standard], strict=True)] for times in steps_ns]
    return [max(own * median_low(ratio) // _UNIT, 1) for ratio in ratios]


@dataclass(slots=True)
class Runs:
    """A session of one plan and its times so far.

    Attributes:
        session: of the plan.
        feeds: values for inputs; random ones where missing.
        values: what is fed, once it is known.
        problem: why it is out; empty as long as it runs.
        steps_ns: of the steps that count.
        by_segment: segment -> one time a step.
    """

    session: PlannedSession
    feeds: Mapping[str, Array]
    values: Mapping[str, Array] | None = None
    problem: str = ""
    steps_ns: list[int] = field(default_factory=list)
    by_segment: dict[str, list[int]] = field(default_factory=dict)

    def step(self, *, counts: bool) -> None:
        """Run one step; the first does not count."""
        try:
            self.values = values_for(self.session, self.feeds) if self.values is None else self.values
            begin = time.perf_counter_ns()
            self.session.run(None, self.values)
            taken = time.perf_counter_ns() - begin
        except (ExecutionError, InputError) as problem:
            self.problem = str(problem)
            return
        if counts:
            self.steps_ns.append(taken)
            for timing in self.session.timings:
                self.by_segment.setdefault(timing.segment, []).append(timing.end_ns - timing.start_ns)

    @property
    def step_ns(self) -> int:
        """A step: lower quartile."""
        return lower_quartile(self.steps_ns)

    @property
    def segments_ns(self) -> dict[str, int]:
        """Segment -> lower quartile, dispatch included."""
        return {name: lower_quartile(times) for name, times in self.by_segment.items()}


def calibrated(draft: Draft, dispatch_ns: int, taken_ns: Sequence[int], step_ns: int) -> dict[ProfileKey, int]:
    """Times of a draft's segments by profile key, such that its simulated step is the measured one.

    What a profile has is one time a key, so segments of one key get their mean before all are scaled. Dispatch and
    transfers are not scaled, so the factor is searched for; the simulated step grows with it.

    Args:
        draft: what ran.
        dispatch_ns: overhead that a plan counts on top of a segment's time.
        taken_ns: what each segment of the draft took, dispatch included.
        step_ns: what a step took.
    """
    keys = segment_keys(draft)
    by_key: dict[ProfileKey, list[int]] = {}
    for key, ns in zip(keys, taken_ns, strict=True):
        by_key.setdefault(key, []).append(max(ns - dispatch_ns, 1))
    mean = {key: sum(found) // len(found) for key, found in by_key.items()}

    def scaled(factor: int) -> dict[ProfileKey, int]:
        return {key: max(ns * factor // _UNIT, 1) for key, ns in mean.items()}

    def simulated_ns(factor: int) -> int:
        times = scaled(factor)
        return with_compute(draft.cut, draft.cluster, dispatch_ns, [times[key] for key in keys]).step_ns

    low = high = _UNIT // _MOST_SHRINKING
    while keys and simulated_ns(high) < step_ns:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if simulated_ns(middle) < step_ns else (low, middle)
    return scaled(high)


def _mean(entries: Sequence[Measurement]) -> Measurement:
    ns = sum(entry.ns for entry in entries) // len(entries)
    return Measurement(ns, sum(entry.repeats for entry in entries), entries[0].ort_version)
