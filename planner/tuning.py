"""The adaptive loop: plan, run, feed measured times back into the profile, plan again, until it stops improving.

The method's title says adaptive; that costs are fed back and a plan that is slower in practice is rolled back is known
of FastT (Yi et al., Middleware 2020). How is ours: the costs of operators are scaled until they add up to what their
segments took, and every new plan has to beat the best one so far in a duel, in turns, before it takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from planner.cluster.types import Cluster
from planner.cost.profile import Measurement, ProfileKey, ProfileTable, link_key
from planner.errors import ExecutionError, InfeasibleError, InputError, PlanError, UsageError
from planner.finalists import Runs, calibrated
from planner.launcher.planned_session import PlannedSession
from planner.model.load import load_model
from planner.model.types import LoadedModel
from planner.pipeline import make_plan, make_setting
from planner.plan.diff import diff_plans
from planner.plan.schema import Plan
from planner.profiling.lanes import lower_quartile
from planner.request import Request
from planner.runtime.idle import pause_until_idle
from planner.runtime.values import ort_version
from planner.schedule.drafts import Draft
from planner.schedule.from_plan import draft_from_plan

# Rounds without a better plan after which there is none to be expected.
PATIENCE: Final = 2
# A new plan must be faster by so many thousandths: what is left of noise in medians of ratios.
BETTER_PERMILLE: Final = 10
_DUEL: Final = 15
_DUEL_S: Final = 10.0
_LEAST_DUEL: Final = 4
# No operator's cost is changed by more in one round: one disturbed segment must not turn everything over.
_MOST_PERMILLE: Final = 2000
_LEAST_PERMILLE: Final = 500


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of tuning showed.

    Attributes:
        number: from 1.
        planner: of the plan of this round.
        predicted_ns: its step, before it ran.
        measured_ns: its step, median; None if it could not be run.
        best_ns: step of the best plan before, in the same duel; None if there was none, or it could not be run.
        kept: whether this plan is the best now.
    """

    number: int
    planner: str
    predicted_ns: int
    measured_ns: int | None
    best_ns: int | None
    kept: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The best plan and how it was found.

    Attributes:
        plan: what measured best; its prediction is what it measured.
        rounds: in order.
        why_stopped: in words.
        notes: one line each.
        profile: costs with what was fed back.
    """

    plan: Plan
    rounds: tuple[Round, ...]
    why_stopped: str
    notes: tuple[str, ...]
    profile: ProfileTable


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What one plan did in a duel.

    Attributes:
        steps_ns: one entry a turn.
        segments_ns: segment -> lower quartile, dispatch included.
        waits_ns: (source, destination device) -> median time from sending to taking, where the receiver had nothing
            else to do.
        problem: why it cannot be run; empty if it can.
    """

    steps_ns: list[int]
    segments_ns: Mapping[str, int]
    waits_ns: Mapping[tuple[str, str], int]
    problem: str = ""

    @property
    def median_ns(self) -> int | None:
        """Median step; None if it cannot be run."""
        return None if self.problem else round(median(self.steps_ns))


def tune(
    request: Request,
    *,
    rounds: int,
    time_limit_s: float | None = None,
    on_round: Callable[[Round, Plan], None] = lambda found, best: None,
) -> Tuned:
    """Plan and run, again and again.

    Args:
        request: what to plan; ``start``, if given, is the plan to beat.
        rounds: at most so many.
        time_limit_s: no round is begun later than this; None for no limit.
        on_round: called after every round with what it showed and the best plan so far, so that it can be written.

    Raises:
        UsageError: if nothing can be measured here, or devices share cores.
        ExecutionError: if neither a round's plan nor the best before it can be run.
        FddpsError: as :func:`make_plan`.
    """
    if not request.measure:
        raise UsageError("tuning runs plans on the devices of this machine", expected="--cpus or --gpus, no --profile")
    _check_apart(request.cluster)
    begin = time.monotonic()
    model = load_model(request.model, request.load)
    best = request.start
    if best is not None:
        _check_rival(best, model, request.cluster)
    best_measured = 0
    table = request.profile
    found: list[Round] = []
    notes: dict[str, None] = {}
    tried: list[Plan] = []
    stale = 0
    why = "the one round is over" if rounds == 1 else f"{rounds} rounds are over"
    for number in range(1, rounds + 1):
        if time_limit_s is not None and number > 1 and time.monotonic() - begin > time_limit_s:
            why = f"{time_limit_s:g} s are over"
            break
        outcome = make_plan(replace(request, profile=table, start=None))
        table = outcome.profile
        notes.update(dict.fromkeys(outcome.notes))
        plan = outcome.plan
        if any(diff_plans(plan, other).same_decisions for other in tried):
            why = "the same plan came out again"
            break
        tried.append(plan)
        entrants = [plan] if best is None or diff_plans(plan, best).same_decisions else [plan, best]
        results = _duel(request, entrants)
        for entrant, result in zip(entrants, results, strict=True):
            if not result.problem:
                table = fed_back(request, model, table, entrant, result)
        request.keep(table)
        notes.update(dict.fromkeys(_failures(number, entrants, results)))
        measured, rival = results[0].median_ns, results[1].median_ns if len(results) > 1 else None
        kept = measured is not None and (rival is None or _faster(results[0], results[1]))
        found.append(Round(number, plan.planner, plan.predictions.step_ns, measured, rival, kept))
        if kept:
            best, best_measured, stale = plan, measured or 0, 0
        else:
            best_measured, stale = rival or best_measured, stale + 1
        if best is not None:
            on_round(found[-1], _as_measured(best, best_measured))
        if stale >= PATIENCE:
            why = f"{PATIENCE} rounds brought nothing better"
            break
    if best is None:
        raise InfeasibleError("no round was run", next_step="allow at least one round")
    return Tuned(_as_measured(best, best_measured), tuple(found), why, tuple(notes), table)


def _check_apart(cluster: Cluster) -> None:
    """Whether each device has cores of its own: times of devices that share some count neither here nor in a cache.

    Raises:
        UsageError: if not.
    """
    crowded = [device for device in cluster.devices if device.shared]
    if crowded:
        cores = {core for device in cluster.devices for core in device.cores}
        raise UsageError(
            f"{len(crowded)} devices share {len(cores)} cores, so that their times would not count",
            where="--cpus",
            expected="devices with cores of their own",
            next_step="ask for fewer devices, or fewer cores each",
        )


def _check_rival(plan: Plan, model: LoadedModel, cluster: Cluster) -> None:
    """Whether a plan can be beaten: if it won, it would be kept as the answer to what is asked now.

    Raises:
        UsageError: if it is for something else.
    """
    own = {device.name: len(device.cores) for device in plan.cluster.devices if not device.members}
    differs = ""
    if plan.model.digest != model.digest:
        differs = "another model, or other shapes"
    elif own != {device.name: len(device.cores) for device in cluster.devices}:
        differs = "other devices"
    if differs:
        raise UsageError(
            f"it is for {differs}", where="the plan to beat", next_step="name another file with -o, or use --force"
        )


def _failures(number: int, entrants: Sequence[Plan], results: Sequence[Ran]) -> list[str]:
    """A note on each entrant that could not be run: it has lost.

    Raises:
        ExecutionError: if none could; names the last, which is the best so far if there is one.
    """
    problems = [(plan, result.problem) for plan, result in zip(entrants, results, strict=True) if result.problem]
    if len(problems) == len(entrants):
        plan, problem = problems[-1]
        which = "neither the new plan nor the best before" if len(problems) > 1 else "the plan"
        cannot = "can" if len(problems) > 1 else "cannot"
        raise ExecutionError(f"{which}, by {plan.planner}, {cannot} be run: {problem}", where=f"round {number}")
    return [
        f"round {number}: {'the new plan' if plan is entrants[0] else 'the best plan before'}, by {plan.planner}, has "
        f"lost, because it cannot be run: {problem}"
        for plan, problem in problems
    ]


@dataclass(slots=True)
class _Duellist:
    """One entrant and its times so far; ``problem``: why it has no session."""

    runs: Runs | None
    problem: str = ""
    waits: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def turn(self, *, counts: bool) -> None:
        """Run one step when the process is idle; the first does not count. Nothing, if it is out."""
        if self.runs is None or self.runs.problem:
            return
        pause_until_idle()
        self.runs.step(counts=counts)
        if counts and not self.runs.problem:
            for link, wait in _waits(self.runs.session):
                self.waits.setdefault(link, []).append(wait)

    def result(self) -> Ran:
        """How it did."""
        if self.runs is None or self.runs.problem:
            return Ran([], {}, {}, self.problem if self.runs is None else self.runs.problem)
        waits = {link: round(median(times)) for link, times in self.waits.items()}
        return Ran(self.runs.steps_ns, self.runs.segments_ns, waits)


def _duel(request: Request, plans: Sequence[Plan]) -> list[Ran]:
    """Run plans in turns, each when the process is idle; one that fails is out, and the others go on.

    Args:
        request: with the model and its feeds.
        plans: the new one, then the best before, if there is one.
    """
    with ExitStack() as stack:
        # The best before is opened first: where memory is short, the newcomer has to do with what is left.
        duellists = [_entered(stack, request, plan) for plan in reversed(plans)][::-1]
        begin = time.monotonic()
        for turn in range(_DUEL + 1):
            request.progress("running the plan" if len(plans) == 1 else "running both plans", turn, _DUEL + 1)
            if turn > _LEAST_DUEL and time.monotonic() - begin > _DUEL_S:
                break
            for duellist in duellists:
                duellist.turn(counts=turn > 0)  # the first warms up
        return [duellist.result() for duellist in duellists]


def _entered(stack: ExitStack, request: Request, plan: Plan) -> _Duellist:
    """An entrant with its session, which is closed with the others."""
    try:
        session = stack.enter_context(PlannedSession(plan, model_path=request.model, allow_outside=True))
    except (ExecutionError, InputError, PlanError) as problem:
        return _Duellist(None, str(problem))
    return _Duellist(Runs(session, request.load.feeds or {}))


def _waits(session: PlannedSession) -> Iterator[tuple[tuple[str, str], int]]:
    """How long values of the last step were on their way; what waited for a busy receiver is left out."""
    for handover in session.handovers:
        busy_until = max(
            (t.end_ns for t in session.timings if t.device == handover.dst and t.end_ns <= handover.end_ns), default=0
        )
        if busy_until < handover.start_ns:
            yield (handover.src, handover.dst), handover.end_ns - handover.start_ns


def _faster(challenger: Ran, best: Ran) -> bool:
    """Whether the challenger wins the duel: by the median of the ratios within a turn."""
    ratios = [own * 1000 // max(other, 1) for own, other in zip(challenger.steps_ns, best.steps_ns, strict=True)]
    return median(ratios) < 1000 - BETTER_PERMILLE


def _as_measured(plan: Plan, step_ns: int) -> Plan:
    """The plan with what it took as its prediction."""
    if step_ns <= 0:
        return plan
    bounds = plan.predictions.lower_bounds
    bounds = bounds.model_copy(
        update={"split_ns": min(bounds.split_ns, step_ns), "any_ns": min(bounds.any_ns, step_ns)}
    )
    predictions = plan.predictions.model_copy(update={"step_ns": step_ns, "lower_bounds": bounds})
    return plan.model_copy(update={"predictions": predictions})


def fed_back(
    request: Request,
    model: LoadedModel,
    table: ProfileTable,
    plan: Plan,
    ran: Ran,
) -> ProfileTable:
    """A profile after a run, with which the plan is predicted to take what it took.

    Whole segments are calibrated as those of finalists are; operators are scaled to add up to their segments.

    Args:
        request: what was planned.
        model: loaded.
        table: costs that the plan was made with.
        plan: what ran.
        ran: how it did.
    """
    # Links first: segments are calibrated with what transfers take.
    table = _with_waits(request.cluster, table, ran.waits_ns)
    setting = make_setting(request, model, table)
    try:
        draft = draft_from_plan(setting, plan)
    except InfeasibleError:
        return table
    ids = [segment.id for queue in plan.devices for segment in queue.segments]
    if len(ids) != len(draft.cut.segments):
        return table  # the model has changed under the plan
    taken = [ran.segments_ns.get(ident, 0) for ident in _in_draft_order(plan, draft)]
    whole = {
        key: Measurement(ns, len(ran.steps_ns), ort_version())
        for key, ns in calibrated(draft, setting.dispatch_ns, taken, lower_quartile(ran.steps_ns)).items()
    }
    return table.merged(ProfileTable({**whole, **_operators(draft, setting.dispatch_ns, table, taken)}))


def _with_waits(cluster: Cluster, table: ProfileTable, waits_ns: Mapping[tuple[str, str], int]) -> ProfileTable:
    """Links with the latency that was seen: of links of one key the mean."""
    by_name = {device.name: device for device in cluster.devices}
    found: dict[ProfileKey, list[int]] = {}
    for (src, dst), wait in waits_ns.items():
        link = ProfileKey(by_name[src].kind, by_name[src].type, link_key(by_name[dst].kind))
        if link in table.entries:
            found.setdefault(link, []).append(wait)
    seen = {link: replace(table.entries[link], ns=sum(waits) // len(waits)) for link, waits in found.items()}
    return table.merged(ProfileTable(seen))


def _operators(
    draft: Draft, dispatch_ns: int, table: ProfileTable, taken_ns: Sequence[int]
) -> dict[ProfileKey, Measurement]:
    """Operators scaled to add up to what their segments took.

    What workers lose in waiting for each other is not in them: another plan need not lose it.
    """
    wanted: dict[ProfileKey, list[tuple[int, int]]] = {}
    for segment, whole in zip(draft.cut.segments, taken_ns, strict=True):
        taken = whole - dispatch_ns
        if taken <= 0:
            continue
        device = draft.cluster.devices[segment.device]
        costly = [task for task in segment.tasks if draft.workload.tasks.compute_ns[task, segment.device] > 0]
        parts = [ProfileKey(device.kind, device.type, part) for part in draft.workload.segment_keys(costly)]
        known = [(part, table.entries[part].ns) for part in parts if part in table.entries]
        predicted = sum(ns for _, ns in known)
        if len(known) < len(parts) or predicted <= 0:
            continue  # what was only estimated takes an unknown part of the time
        ratio = min(max(taken * 1000 // predicted, _LEAST_PERMILLE), _MOST_PERMILLE)
        for part, ns in known:
            wanted.setdefault(part, []).append((ratio, max(ns, 1)))
    scaled = {}
    for part, found in wanted.items():
        ratio = sum(r * weight for r, weight in found) // sum(weight for _, weight in found)
        scaled[part] = replace(table.entries[part], ns=table.entries[part].ns * ratio // 1000)
    return scaled


def _in_draft_order(plan: Plan, draft: Draft) -> list[str]:
    """Ids of a plan's segments in the order of the draft's, which counts device by device too."""
    by_device = {queue.device: [segment.id for segment in queue.segments] for queue in plan.devices}
    names = [draft.cluster.devices[segment.device].name for segment in draft.cut.segments]
    return [by_device[name].pop(0) for name in names]
