"""Choosing among the candidates: what fits, what is fastest, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from planner.cluster.sheets import load_sheets
from planner.cost.profile import DISPATCH_KEY, ProfileKey, ProfileTable, link_key
from planner.errors import ExecutionError, FddpsError, InfeasibleError
from planner.model.digest import file_sha256
from planner.model.simplify import SIMPLIFICATION_VERSION
from planner.plan.files import relative_model_path
from planner.plan.schema import Candidate, CostProvenance, LowerBounds, ModelRef, Plan
from planner.request import Request
from planner.schedule.bounds import lower_bound_ns
from planner.schedule.build import Header, build_plan, with_candidates
from planner.schedule.drafts import ONE_DEVICE, SHORT_NS, SIMPLE, Draft, Setting, segment_keys
from planner.schedule.from_plan import NAME
from planner.schedule.planners import PLANNERS
from planner.schedule.split_bounds import any_split_bound_ns
from planner.tried import could_not_run
from planner.units import format_size, format_time
from planner.version import __version__

# A plan of many pieces must be predicted better than a simple choice by this much, in thousandths, to be preferred:
# predictions of whole sessions are measured, those of pieces are put together.
MARGIN_PERMILLE: Final = 20
# Where all was run: by what medians of some rounds differ without a reason on a busy machine, and from one process to
# the next. Once 356 ms won against 367, and then took 355 against 310; once a plan won by 5% and then lost by 5%.
NOISE_PERMILLE: Final = 100
# Of short steps they differ by more: 10.9 against 9.7 ms once became 9.1 against 11.4.
SHORT_NOISE_PERMILLE: Final = 120
# By this much a simple choice that needs more than one device must win over one where steps are short: 0.86 against
# 0.92 ms once became 1.0 against 0.9. No more than that: what is not taken is lost, and 50 lost 4% of a step of 11 ms.
MORE_THAN_ONE_PERMILLE: Final = 30
# And by this much if some of its pieces were never seen to run, while all of the simple choice was.
GUESS_PERMILLE: Final = 250

CANNOT_RUN: Final = "its plan cannot be run: "
FAILED_BEFORE: Final = "its plan could not be run when the profile was measured"

# A plan that was started from is kept unless another is faster by this many thousandths.
KEEP_PERMILLE: Final = 10


def choose(
    request: Request,
    setting: Setting,
    header: Header,
    drafts: list[Draft],
    candidates: list[Candidate],
) -> tuple[Plan, tuple[str, ...]]:
    """The best of the drafts as a plan, with what every candidate was predicted to take.

    Args:
        request: what was asked for.
        setting: costs and cluster of the race; its profile has all that the drafts' times rest on.
        header: what a plan of this request says about itself.
        drafts: one a planner that has any.
        candidates: planners that had none, with the reason; added to.

    Raises:
        InfeasibleError: if no draft that was asked for fits the devices' memory.
        ExecutionError: if ONNX Runtime runs none of them.
    """
    plans: list[Plan] = []
    too_large: list[Plan] = []
    table = setting.costs.profile or ProfileTable()
    for draft in drafts:
        if could_not_run(draft, table):
            candidates.append(Candidate(planner=draft.planner, infeasible=FAILED_BEFORE))
            continue
        plan, _ = build_plan(draft, setting.model, header)
        problem = memory_problem(plan)
        if problem:
            candidates.append(Candidate(planner=draft.planner, infeasible=problem))
            too_large.append(plan)
        else:
            candidates.append(Candidate(planner=draft.planner, step_ns=plan.predictions.step_ns))
            plans.append(plan)
    wanted = [plan for plan in plans if request.planner in ("auto", plan.planner)]
    if not wanted:
        raise _nothing_fits(request.planner, candidates, too_large)
    seen = _seen(setting, drafts)
    winner = _best(wanted, seen)
    best = _kept(request, plans, winner)
    kept = best is not winner
    passed_over = [plan for plan in wanted if plan.predictions.step_ns < best.predictions.step_ns]
    one = next((plan.predictions.step_ns for plan in plans if plan.planner == ONE_DEVICE), None)
    order = {name: position for position, name in enumerate(PLANNERS)}
    candidates.sort(key=lambda c: order.get(c.planner, len(order)))
    draft = next(draft for draft in drafts if draft.planner == best.planner)
    best = best.model_copy(update={"costs": _provenance(best, draft, setting)})
    bounds = _bounds(setting, draft, best, candidates)
    rival = best if kept else _simplest(wanted, seen) or best
    why = _why(best, rival, candidates, passed_over, seen, kept=kept)
    why = f"{why}; {draft.gain}" if draft.gain else why
    plan = with_candidates(best, why, candidates, one, bounds)
    if request.start is not None and plan.planner == NAME:
        why = f"kept from the plan that was started from ('{NAME}'): {why}"
        plan = plan.model_copy(update={"planner": request.start.planner, "why": why})
    return plan, _plan_notes(plan)


def _seen(setting: Setting, drafts: Sequence[Draft]) -> list[str]:
    """Planners all of whose segments have been measured as wholes."""
    table = setting.costs.profile
    if table is None:
        return []
    return [draft.planner for draft in drafts if all(key in table.entries for key in segment_keys(draft))]


def _kept(request: Request, plans: list[Plan], best: Plan) -> Plan:
    """The plan that was to be started from, unless the best one is faster by the margin."""
    before = next((plan for plan in plans if plan.planner == NAME), None)
    if request.start is None or before is None:
        return best
    return best if _faster_by(best, before, KEEP_PERMILLE) else before


def _best(plans: list[Plan], seen: Collection[str]) -> Plan:
    """The fastest, of equal ones the first.

    One of many pieces wins only if it beats all simple ones by the margin; of those, where steps are short, one device
    wins over the others unless they are clearly faster.
    """
    simple = _simplest(plans, seen)
    pieces = [plan for plan in plans if plan.planner not in SIMPLE]
    if simple is None:
        return _fastest(pieces) or plans[0]
    # Each by its own margin: one that was guessed far too low must not hide one that was seen to be fast.
    clear = [plan for plan in pieces if _faster_by(plan, simple, _margin(simple, plan, seen))]
    if clear:
        return _fastest(clear) or simple
    one = next((plan for plan in plans if plan.planner == ONE_DEVICE), None)
    return simple if one is None or _clearly_faster(simple, one, seen) else one


def _fastest(plans: list[Plan]) -> Plan | None:
    return min(plans, key=lambda plan: plan.predictions.step_ns, default=None)


def _faster_by(plan: Plan, other: Plan, permille: int) -> bool:
    return plan.predictions.step_ns * 1000 < other.predictions.step_ns * (1000 - permille)


def _simplest(plans: list[Plan], seen: Collection[str]) -> Plan | None:
    """The simple choice that plans of many pieces have to beat."""
    return _not_guessed([plan for plan in plans if plan.planner in SIMPLE], seen)


def _not_guessed(plans: list[Plan], seen: Collection[str]) -> Plan | None:
    """The fastest, but one whose costs are guessed in part only if it beats all that was measured by a margin."""
    first = _fastest(plans)
    known = [p for p in plans if p.planner in seen or (p.costs.measured and not p.costs.estimated)]
    sure = _fastest(known)
    if first is None or sure is None or first in known:
        return first
    return first if _faster_by(first, sure, GUESS_PERMILLE) else sure


def _clearly_faster(simple: Plan, one: Plan, seen: Collection[str]) -> bool:
    """Whether another simple choice beats one device: where both ran, by more than short steps differ by chance."""
    short = one.predictions.step_ns < SHORT_NS and simple.planner in seen and one.planner in seen
    return _faster_by(simple, one, MORE_THAN_ONE_PERMILLE if short else 0)


def _margin(simple: Plan, pieces: Plan, seen: Collection[str]) -> int:
    """By how many thousandths a plan of many pieces must be faster than a simple choice."""
    if pieces.planner in seen:
        return SHORT_NOISE_PERMILLE if simple.predictions.step_ns < SHORT_NS else NOISE_PERMILLE
    if simple.costs.estimated == 0 < pieces.costs.estimated:
        return GUESS_PERMILLE
    if simple.planner in seen or simple.costs.measured or pieces.costs.measured:
        return MARGIN_PERMILLE
    return 0  # Data sheets alone: one cost function for all, nothing that one plan knows better than another.


def plan_header(request: Request, setting: Setting) -> Header:
    """What a plan of this request says about itself."""
    reference = ModelRef(
        path=relative_model_path(request.model, request.plan_dir / "plan.yaml"),
        digest=setting.model.digest,
        simplification=SIMPLIFICATION_VERSION,
        file_sha256=file_sha256(request.model) if request.hash_file else "",
        batch=request.load.batch,
        batch_axes=dict(request.load.batch_axes),
    )
    marks = (
        ["devices share cores: results count, times do not"] if any(d.shared for d in setting.cluster.devices) else []
    )
    return Header(
        request.command,
        __version__,
        reference,
        request.effort,
        request.seed,
        CostProvenance(profiles=dict(request.profile_names)),
        setting.cluster,
        setting.dispatch_ns,
        (*setting.model.notes, *marks),
    )


def _provenance(plan: Plan, draft: Draft, setting: Setting) -> CostProvenance:
    """Which measurements the plan rests on: a digest of just those, so that others in the same file do not matter."""
    table = setting.costs.profile
    if table is None:
        return plan.costs
    devices = draft.cluster.devices
    keys = set(segment_keys(draft))
    for device in devices:
        of_device = [DISPATCH_KEY, *(link_key(other.kind) for other in devices)]
        of_device += draft.workload.segment_keys(range(draft.workload.tasks.num_tasks))
        keys.update(ProfileKey(device.kind, device.type, key) for key in of_device)
    found = {key: table.entries[key] for key in keys if key in table.entries}
    if not found:
        return plan.costs
    used = ProfileTable(found)
    versions = ", ".join(sorted({entry.ort_version for entry in found.values()}))
    return plan.costs.model_copy(
        update={"profiles": {**plan.costs.profiles, "measured": used.digest()}, "onnxruntime": versions}
    )


def step_bound_ns(setting: Setting, steps: Sequence[int]) -> int:
    """The bound over any split that plans of one setting are measured by.

    Args:
        setting: costs and cluster.
        steps: of plans; measured costs promise no more than the shortest.
    """
    bound = any_split_bound_ns(setting)
    return min(bound, *steps) if _has_measurements(setting) and steps else bound


def _has_measurements(setting: Setting) -> bool:
    return setting.costs.profile is not None and bool(setting.costs.profile.entries)


def memory_problem(plan: Plan) -> str:
    """Why a plan does not fit its devices' memory; empty if it does."""
    limits = {device.name: device.memory_bytes for device in plan.cluster.devices}
    over = [p for p in plan.predictions.devices if p.peak_bytes > limits[p.device]]
    return ", ".join(f"{p.device} needs {format_size(p.peak_bytes)} of {format_size(limits[p.device])}" for p in over)


def _nothing_fits(planner: str, candidates: list[Candidate], too_large: list[Plan]) -> FddpsError:
    """What the devices lack, and what would be enough: for the plan with the least need, and for one device."""
    wanted = [plan for plan in too_large if planner in ("auto", plan.planner)]
    if not wanted:
        broken = [c for c in candidates if planner in ("auto", c.planner) and c.infeasible.startswith(CANNOT_RUN)]
        if broken:
            # One reason for all, most of the time: the model's.
            simplest = next((c for c in broken if c.planner == ONE_DEVICE), broken[0])
            return ExecutionError(f"no plan of this model can be run here: {simplest.infeasible[len(CANNOT_RUN) :]}")
        reasons = "; ".join(f"{c.planner}: {c.infeasible}" for c in candidates if planner in ("auto", c.planner))
        return InfeasibleError(f"no plan fits the devices: {reasons}", next_step="choose other devices or planners")
    needs = {plan.planner: max(p.peak_bytes for p in plan.predictions.devices) for plan in wanted}
    best = min(wanted, key=lambda plan: needs[plan.planner])
    sizes = {name: sheet.memory_bytes for name, sheet in load_sheets().items() if sheet.type == "cuda"}
    kinds = [name for name in sizes if sizes[name] >= needs[best.planner]]
    enough = f"devices with at least {format_size(needs[best.planner])} each for this plan"
    if ONE_DEVICE in needs and best.planner != ONE_DEVICE:
        enough += f", or one with {format_size(needs[ONE_DEVICE])} for the whole model"
    if kinds and any(device.type == "cuda" for device in best.cluster.devices):
        enough += f" (large enough: {', '.join(sorted(kinds, key=lambda name: (sizes[name], name))[:4])})"
    return InfeasibleError(
        f"no plan fits the devices' memory: the least, {best.planner}, does not: {memory_problem(best)}",
        expected=enough,
        next_step="use such devices, more devices, or a smaller --batch",
    )


def _bounds(setting: Setting, draft: Draft, plan: Plan, candidates: list[Candidate]) -> LowerBounds:
    """Bounds by the plan's costs; beside measured segments, which may take less than their tasks, no more than a step.

    With estimated costs they are proven and need no such care.
    """
    split = lower_bound_ns(draft.workload.tasks)
    if _has_measurements(setting):
        split = min(split, plan.predictions.step_ns)
    any_ns = step_bound_ns(setting, [candidate.step_ns for candidate in candidates if candidate.step_ns is not None])
    return LowerBounds(split_ns=max(split, any_ns), any_ns=any_ns)


def _why(
    best: Plan,
    rival: Plan,
    candidates: list[Candidate],
    passed_over: list[Plan],
    seen: Collection[str],
    *,
    kept: bool,
) -> str:
    """What was chosen, and by what those that are predicted to be faster missed it.

    Args:
        best: what was chosen.
        rival: what others had to beat.
        candidates: all.
        passed_over: those that are faster than ``best``.
        seen: planners whose plans were run.
        kept: whether it was chosen for being the plan that was started from.
    """
    ranked = sorted((c.step_ns, c.planner) for c in candidates if c.step_ns is not None)
    others = [f"{name} {format_time(ns)}" for ns, name in ranked if name != best.planner]
    text = f"{best.planner} is predicted to take {format_time(best.predictions.step_ns)} a step"
    text = f"{text}; the others: {', '.join(others)}" if others else text
    for plan in passed_over:
        margin, reason = _margin(rival, plan, seen), "it has many pieces"
        if kept:
            margin, reason = KEEP_PERMILLE, "the plan that was started from is kept if nothing is"
        elif plan.planner in SIMPLE and plan.costs.estimated and plan.planner not in seen:
            margin, reason = GUESS_PERMILLE, "it was only estimated"
        elif plan.planner in SIMPLE:
            margin, reason = MORE_THAN_ONE_PERMILLE, "steps are short and one device is simpler"
        elif margin == GUESS_PERMILLE:
            reason = "some of its pieces were only estimated"
        than = rival.planner if rival is not plan else best.planner
        text += f"; {plan.planner} is not {margin // 10}% faster than {than}, which is asked because {reason}"
    return text


def _plan_notes(plan: Plan) -> tuple[str, ...]:
    idle = [queue.device for queue in plan.devices if not queue.segments]
    spanning = any(device.members for device in plan.cluster.devices)
    notes = [f"idle devices: {', '.join(idle)}"] if idle and not spanning else []
    one, step = plan.predictions.one_device_step_ns, plan.predictions.step_ns
    devices = [device for device in plan.cluster.devices if not device.members]
    if one is not None and len({device.kind for device in devices}) == 1 and one > 1.2 * len(devices) * step:
        notes.append(
            f"a speed-up of {one / step:.2f} over one of {len(devices)} equal devices is more than they can give: "
            "costs were measured on a busy machine, or pieces that the profile lacks are guessed too low"
        )
    return tuple(notes)
