"""The whole flow on one page: model and cluster in, the best plan out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from planner.choice import CANNOT_RUN, choose, memory_problem, plan_header, step_bound_ns
from planner.cluster.sheets import load_sheets
from planner.cluster.types import Cluster
from planner.cost.estimate import CostTable
from planner.cost.profile import ProfileTable, link_key
from planner.errors import ExecutionError, InfeasibleError, InputError, UsageError
from planner.finalists import finalists, run_finalists
from planner.graph.op_graph import Array
from planner.launcher.planned_session import PlannedSession
from planner.model.load import load_model
from planner.model.types import LoadedModel
from planner.plan.schema import Candidate, Plan
from planner.profiling.measure import jobs_for, measure
from planner.request import Outcome, Request
from planner.runtime.values import dtype_of
from planner.schedule.build import Header, build_plan
from planner.schedule.drafts import (
    ONE_DEVICE,
    SIMPLE,
    Draft,
    Setting,
    all_cores_device,
    one_device_drafts,
    remeasured,
)
from planner.schedule.from_plan import draft_from_plan
from planner.schedule.planners import PLANNERS, find_planner
from planner.schedule.split_search import MOVES, whole_graph_ways
from planner.schedule.workload import Workloads
from planner.split.propagate import AxisCache
from planner.tried import outcomes

# What ``auto`` has in the race: the simple choices, what often comes near, and our own search.
RACE: Final = ("one-device", "all-cores", "data-parallel", "heft", "pipeline", "fd-dps", "auto")


def make_plan(request: Request) -> Outcome:
    """Load, measure, split, schedule, choose.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    find_planner(request.planner)
    if request.effort not in MOVES:
        raise UsageError(
            f"there is no effort '{request.effort}'", where="--effort", expected=f"one of {', '.join(MOVES)}"
        )
    batch = request.load.batch
    try:
        sound = batch is None or batch >= 1
    except TypeError:  # a Python caller's text
        sound = False
    if not sound:
        raise UsageError(f"the batch size {batch!r}", where="--batch", expected="1 or more")
    model = load_model(request.model, request.load)
    table, notes = profile_model(request, model)
    begin = time.perf_counter()
    setting = make_setting(request, model, table)
    header = plan_header(request, setting)
    drafts, candidates = _race(request, setting, header)
    drafts = [remeasured(draft, setting.costs) for draft in drafts]
    running_s = 0.0
    if request.measure:
        start = time.perf_counter()
        table, drafts, failed = _run_finalists(request, setting, header, table, drafts)
        setting = replace(setting, costs=replace(setting.costs, profile=table))
        candidates.extend(failed)
        notes += tuple(f"{each.planner}: {each.infeasible}" for each in failed)
        if failed and not request.load.feeds:
            notes += ("plans were run on random inputs; give others with --inputs if those are at fault",)
        running_s = time.perf_counter() - start
    if request.start is not None and request.start.model.digest != model.digest:
        notes += ("the plan to start from is for another model or other shapes: what fits of it is kept",)
    plan, more = choose(request, setting, header, drafts, candidates)
    return Outcome(plan, table, (*model.notes, *notes, *more), time.perf_counter() - begin - running_s)


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """What one planner makes of a model.

    Attributes:
        planner: its name.
        plan: its plan; None if it has none that fits.
        infeasible: why not.
        planning_s: seconds it took, without profiling.
        bound_ns: what no plan of any split takes less than.
        one_device_ns: step of the fastest device that holds the model; None if there is none.
    """

    planner: str
    plan: Plan | None
    infeasible: str
    planning_s: float
    bound_ns: int
    one_device_ns: int | None


def compare_planners(request: Request, names: Sequence[str]) -> tuple[list[Compared], tuple[str, ...]]:
    """The plan of each planner by the same costs and simulator; nothing is run.

    Args:
        request: what to plan; its planner does not matter.
        names: planners.

    Returns:
        One entry a planner, and notes, one line each.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    for name in names:
        find_planner(name)
    model = load_model(request.model, request.load)
    table, notes = profile_model(request, model)
    found: list[tuple[str, Plan | None, str, float]] = []
    for position, name in enumerate(names):
        request.progress(f"planner {name}", position, len(names))
        begin = time.perf_counter()
        plan, why = _plan_by(replace(request, planner=name), make_setting(request, model, table))
        found.append((name, plan, why, time.perf_counter() - begin))
    request.progress("compared", len(names), len(names))
    setting = make_setting(request, model, table)
    one, _ = _plan_by(replace(request, planner="one-device"), setting)
    steps = [plan.predictions.step_ns for _, plan, _, _ in found if plan is not None]
    bound = step_bound_ns(setting, steps)
    alone = None if one is None else one.predictions.step_ns
    return [Compared(*row, bound, alone) for row in found], (*model.notes, *notes)


def _plan_by(request: Request, setting: Setting) -> tuple[Plan | None, str]:
    """The plan of the request's planner alone, or why it has none."""
    header = plan_header(request, setting)
    names = RACE if request.planner == "auto" else (request.planner,)
    drafts, candidates = _drafts(request, setting, header, names)
    if not drafts:
        return None, candidates[0].infeasible
    try:
        plan, _ = choose(request, setting, header, [remeasured(d, setting.costs) for d in drafts], candidates)
    except InfeasibleError as problem:
        return None, str(problem)
    return plan, ""


def _run_finalists(
    request: Request, setting: Setting, header: Header, table: ProfileTable, drafts: list[Draft]
) -> tuple[ProfileTable, list[Draft], list[Candidate]]:
    """Run what is about to win until everything that could win has been run; what cannot run is out of the race."""
    failed: dict[str, str] = {}
    large: list[Draft] = []
    feeds = request.load.feeds or {}
    timed = not any(device.shared for device in setting.cluster.devices)
    racing = [d for d in drafts if timed and request.planner in ("auto", d.planner)]
    others = [d for d in drafts if d not in racing]
    while chosen := finalists(racing, table):
        # One device runs along where it is in no race: speed-ups are over it, and others are timed by it.
        chosen += [d for d in others if d.planner == ONE_DEVICE and d.planner not in failed and d not in large]
        request.progress(f"running the plans of {', '.join(draft.planner for draft in chosen)}", 0, 1)
        with ExitStack() as stack:
            entrants: list[tuple[Draft, PlannedSession]] = []
            for draft in chosen:
                plan, _ = build_plan(draft, setting.model, header)
                if memory_problem(plan):
                    # Not run; that it does not fit is said later, with what would.
                    large.append(draft)
                    continue
                try:
                    session = PlannedSession(plan, model_path=request.model, allow_outside=True)
                    entrants.append((draft, stack.enter_context(session)))
                except (ExecutionError, InputError) as error:
                    failed[draft.planner] = str(error)
            found, broken = run_finalists(entrants, feeds, setting.dispatch_ns, table)
        failed.update(broken)
        tried = [draft for draft in chosen if draft not in large]
        racing = [draft for draft in racing if draft.planner not in failed and draft not in large]
        table = ProfileTable({**table.entries, **found.entries, **outcomes(tried, failed, table)})
        request.keep(table)
        costs = replace(setting.costs, profile=table)
        racing = [remeasured(draft, costs) for draft in racing]
        others = [remeasured(draft, costs) for draft in others if draft.planner not in failed and draft not in large]
    candidates = [Candidate(planner=name, infeasible=f"{CANNOT_RUN}{why}") for name, why in failed.items()]
    return table, [*racing, *others, *large], candidates


def profile_model(request: Request, model: LoadedModel) -> tuple[ProfileTable, tuple[str, ...]]:
    """Measure what the profile lacks for a model, if measuring is asked for.

    Raises:
        InputError: if the request's feeds are not the model's inputs.
    """
    check_feeds(model, request.load.feeds or {})
    if not request.measure:
        return request.profile, ()
    setting = make_setting(request, model, request.profile)
    on_cpu = all(device.type == "cpu" for device in request.cluster.devices)
    all_cores = all_cores_device(request.cluster) if on_cpu else None
    ways = whole_graph_ways(setting) if len(request.cluster.devices) > 1 else {}
    jobs = jobs_for(request.cluster, all_cores, ways, setting.shares())
    return measure(
        model,
        request.cluster,
        jobs,
        request.profile,
        feeds=dict(request.load.feeds or {}),
        progress=request.progress,
        keep=request.keep,
    )


def check_feeds(model: LoadedModel, feeds: Mapping[str, Array]) -> None:
    """Whether arrays are inputs of the model, of the right types; shapes are checked when it is loaded.

    Raises:
        InputError: if not; names the input.
    """
    known = (*model.original_inputs, *model.overridable)
    for name, array in feeds.items():
        if name not in known:
            raise InputError(f"the model has no input '{name}'", expected=f"one of {', '.join(known) or 'none'}")
        wanted = model.graph.tensors[name].dtype if name in model.graph.inputs else dtype_of(array)
        if dtype_of(array) != wanted:
            raise InputError(
                f"element type {dtype_of(array)}",
                where=f"input '{name}'",
                expected=wanted,
                next_step=f"convert it, e.g. array.astype('{wanted}')",
            )


def make_setting(request: Request, model: LoadedModel, table: ProfileTable) -> Setting:
    """What the planners of one run share: costs calibrated by the profile, split axes, cluster with measured links."""
    cluster = _with_measured_links(request.cluster, table)
    plain = CostTable(table, load_sheets())
    request.wishes.check(model.graph.ops, [device.name for device in cluster.devices])
    workloads = Workloads(model, cluster, plain)
    members = workloads.build(()).groups.members
    groups = [[model.graph.context(op) for op in ops] for ops in members]
    devices = [*cluster.devices]
    if all(device.type == "cpu" for device in devices):
        devices.append(all_cores_device(cluster))
    costs = plain.calibrated(groups, devices)
    dispatch = max(costs.dispatch_ns(device).ns for device in cluster.devices)
    return Setting(
        model,
        cluster,
        costs,
        Workloads(model, cluster, costs, request.wishes),
        AxisCache(model.graph),
        request.load.batch_axes,
        dispatch,
        request.effort,
        request.seed,
    )


def _with_measured_links(cluster: Cluster, table: ProfileTable) -> Cluster:
    """Links with measured latency and bandwidth where the profile has them."""
    by_name = {device.name: device for device in cluster.devices}
    links = []
    for link in cluster.links:
        src, dst = by_name[link.src], by_name[link.dst]
        found = table.find(src.kind, src.type, link_key(dst.kind))
        links.append(replace(link, latency_ns=found.ns, bytes_per_s=found.bytes_per_s) if found else link)
    return Cluster(cluster.devices, tuple(links))


def _race(request: Request, setting: Setting, header: Header) -> tuple[list[Draft], list[Candidate]]:
    """Every planner's draft; with one planner asked for, the simple choices still run, for comparison."""
    names = RACE if request.planner == "auto" else tuple(dict.fromkeys((*SIMPLE, request.planner)))
    return _drafts(request, setting, header, names)


def _drafts(
    request: Request, setting: Setting, header: Header, names: Sequence[str]
) -> tuple[list[Draft], list[Candidate]]:
    """A draft of each planner that has any, and why the others have none."""
    drafts: list[Draft] = []
    candidates: list[Candidate] = []
    for position, name in enumerate(names):
        request.progress(f"planner {name}", position, len(names))
        try:
            draft = PLANNERS[name].on_model(setting)
        except InfeasibleError as problem:
            candidates.append(Candidate(planner=name, infeasible=str(problem)))
            continue
        drafts.append(replace(_roomier(draft, setting, header) if name == "one-device" else draft, planner=name))
    if request.start is not None:
        with suppress(InfeasibleError):
            drafts.append(draft_from_plan(setting, request.start))
    request.progress("planned", len(names), len(names))
    return drafts, candidates


def _roomier(draft: Draft, setting: Setting, header: Header) -> Draft:
    """The model on another device, if the fastest one cannot hold it and another can."""
    if len({(device.kind, device.memory_bytes) for device in setting.cluster.devices}) < 2:
        return draft
    fitting = (
        other for other in one_device_drafts(setting) if not memory_problem(build_plan(other, setting.model, header)[0])
    )
    return next(fitting, draft)
