"""The whole flow on one page: model and cluster in, the best plan out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from planner.cluster.sheets import load_sheets
from planner.cluster.types import Cluster
from planner.cost.estimate import CostTable
from planner.cost.profile import ProfileTable, link_key
from planner.errors import ExecutionError, InfeasibleError, InputError, UsageError
from planner.finalists import finalists, missing_segments, run_finalist
from planner.graph.op_graph import Array
from planner.model.load import load_model
from planner.model.options import LoadOptions
from planner.model.simplify import SIMPLIFICATION_VERSION
from planner.model.types import LoadedModel
from planner.plan.schema import Candidate, CostProvenance, LowerBounds, ModelRef, Plan
from planner.profiling.measure import jobs_for, measure
from planner.runtime.values import dtype_of, ort_version
from planner.schedule.build import Header, build_plan, with_candidates
from planner.schedule.drafts import (
    Draft,
    Setting,
    all_cores_device,
    all_cores_draft,
    data_parallel_draft,
    dcp_draft,
    heft_draft,
    one_device_draft,
    remeasured,
)
from planner.schedule.fd_dps import fd_dps_draft, whole_graph_ways
from planner.schedule.workload import Workloads
from planner.split.propagate import AxisCache
from planner.units import format_size
from planner.version import __version__

PLANNERS: Final[Mapping[str, Callable[[Setting], Draft]]] = {
    "one-device": one_device_draft,
    "all-cores": all_cores_draft,
    "data-parallel": data_parallel_draft,
    "heft": heft_draft,
    "dcp": dcp_draft,
    "fd-dps": fd_dps_draft,
}
SIMPLE: Final = ("one-device", "all-cores", "data-parallel")
# A plan of many pieces must be predicted better than a simple choice by this much, in thousandths, to be preferred:
# predictions of whole sessions are measured, those of pieces are put together.
MARGIN_PERMILLE: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What to plan.

    Attributes:
        model: the ONNX file.
        cluster: devices and links.
        profile: measured costs to start from.
        measure: whether to measure what the profile lacks (else it is estimated).
        load: shapes, batch, feeds.
        planner: one of ``PLANNERS``, or ``auto`` for the best of all.
        effort: ``quick``, ``normal`` or ``thorough``.
        seed: for planners that draw at random.
        command: for the plan's header, without paths.
        plan_dir: folder that the plan will lie in; the model's path is written relative to it.
        profile_names: name -> digest of profiles used, for provenance.
        progress: called with a text, steps done and all steps.
        keep: called with a profile that has grown.
    """

    model: Path
    cluster: Cluster
    profile: ProfileTable = field(default_factory=ProfileTable)
    measure: bool = True
    load: LoadOptions = field(default_factory=LoadOptions)
    planner: str = "auto"
    effort: str = "normal"
    seed: int = 0
    command: str = "plan"
    plan_dir: Path = field(default_factory=Path)
    profile_names: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = lambda text, done, total: None
    keep: Callable[[ProfileTable], None] = lambda table: None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A plan and what it took to make it.

    Attributes:
        plan: the plan.
        profile: costs used, with what was measured on the way.
        notes: what the user should know, one line each.
        planning_s: time after profiling.
    """

    plan: Plan
    profile: ProfileTable
    notes: tuple[str, ...]
    planning_s: float


def make_plan(request: Request) -> Outcome:
    """Load, measure, split, schedule, choose.

    Raises:
        FddpsError: with what is wrong and what to do.
    """
    if request.planner != "auto" and request.planner not in PLANNERS:
        raise UsageError(
            f"there is no planner '{request.planner}'", where="--planner", expected=f"auto, {', '.join(PLANNERS)}"
        )
    model = load_model(request.model, request.load)
    table, notes = profile_model(request, model)
    begin = time.perf_counter()
    setting = make_setting(request, model, table)
    drafts, candidates = _race(request, setting)
    drafts = [remeasured(draft, setting.costs) for draft in drafts]
    running_s = 0.0
    if request.measure:
        start = time.perf_counter()
        table, drafts, failed = _run_finalists(request, setting, table, drafts)
        notes = (*notes, *failed)
        running_s = time.perf_counter() - start
    plan, more = _choose(request, setting, drafts, candidates, notes)
    return Outcome(plan, table, (*model.notes, *notes, *more), time.perf_counter() - begin - running_s)


def _run_finalists(
    request: Request, setting: Setting, table: ProfileTable, drafts: list[Draft]
) -> tuple[ProfileTable, list[Draft], tuple[str, ...]]:
    """Run what is about to win until everything that could win has been run; what cannot run is out of the race."""
    shared = any(device.shared for device in setting.cluster.devices)
    notes: list[str] = []
    while not shared:
        chosen = next((d for d in finalists(drafts) if missing_segments(d, table)), None)
        if chosen is None:
            break
        request.progress(f"running the plan of {chosen.planner}", 0, 1)
        plan, _ = build_plan(chosen, setting.model, _header(request, setting, ()))
        try:
            found = run_finalist(
                chosen, plan, request.model, request.load.feeds or {}, ort_version(), setting.dispatch_ns
            )
        except (ExecutionError, InputError) as problem:
            notes.append(f"{chosen.planner}: its plan could not be run and is left out ({problem})")
            drafts = [draft for draft in drafts if draft is not chosen]
            continue
        table = ProfileTable({**found.entries, **table.entries})
        request.keep(table)
        drafts = [remeasured(draft, replace(setting.costs, profile=table)) for draft in drafts]
    return table, drafts, tuple(notes)


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
    jobs = jobs_for(request.cluster, all_cores, ways)
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
    cluster = _with_measured_links(request.cluster, table)
    plain = CostTable(table, load_sheets())
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
        Workloads(model, cluster, costs),
        AxisCache(model.graph),
        request.load.batch_axes,
        dispatch,
        request.effort,
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


def _race(request: Request, setting: Setting) -> tuple[list[Draft], list[Candidate]]:
    """Every planner's draft; with one planner asked for, the simple choices still run, for comparison."""
    names = list(PLANNERS) if request.planner == "auto" else list(dict.fromkeys((*SIMPLE, request.planner)))
    drafts: list[Draft] = []
    candidates: list[Candidate] = []
    for position, name in enumerate(names):
        request.progress(f"planner {name}", position, len(names))
        try:
            draft = PLANNERS[name](setting)
        except InfeasibleError as problem:
            candidates.append(Candidate(planner=name, infeasible=str(problem)))
            continue
        drafts.append(replace(draft, planner=name))
    request.progress("planned", len(names), len(names))
    return drafts, candidates


def _choose(
    request: Request, setting: Setting, drafts: list[Draft], candidates: list[Candidate], notes: tuple[str, ...]
) -> tuple[Plan, tuple[str, ...]]:
    header = _header(request, setting, notes)
    plans: list[Plan] = []
    too_large: list[Plan] = []
    for draft in drafts:
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
    best = wanted[0]
    for plan in wanted[1:]:
        margin = 0 if plan.planner in SIMPLE else MARGIN_PERMILLE
        if plan.predictions.step_ns * 1000 < best.predictions.step_ns * (1000 - margin):
            best = plan
    one = next((plan.predictions.step_ns for plan in plans if plan.planner == "one-device"), None)
    order = {name: position for position, name in enumerate(PLANNERS)}
    candidates.sort(key=lambda c: order[c.planner])
    bounds = _bounds(setting, next(d for d in drafts if d.planner == best.planner), best, candidates)
    return with_candidates(best, _why(best, candidates), candidates, one, bounds), _plan_notes(best)


def _header(request: Request, setting: Setting, notes: tuple[str, ...]) -> Header:
    reference = ModelRef(
        path=_relative(request.model, request.plan_dir),
        digest=setting.model.digest,
        simplification=SIMPLIFICATION_VERSION,
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


def _relative(model: Path, folder: Path) -> str:
    import os

    return Path(os.path.relpath(model.resolve(), folder.resolve())).as_posix()


def memory_problem(plan: Plan) -> str:
    """Why a plan does not fit its devices' memory; empty if it does."""
    limits = {device.name: device.memory_bytes for device in plan.cluster.devices}
    over = [p for p in plan.predictions.devices if p.peak_bytes > limits[p.device]]
    return ", ".join(f"{p.device} needs {format_size(p.peak_bytes)} of {format_size(limits[p.device])}" for p in over)


def _nothing_fits(planner: str, candidates: list[Candidate], too_large: list[Plan]) -> InfeasibleError:
    """What the devices lack, and what would be enough: for the plan with the least need, and for one device."""
    wanted = [plan for plan in too_large if planner in ("auto", plan.planner)]
    if not wanted:
        reasons = "; ".join(f"{c.planner}: {c.infeasible}" for c in candidates if planner in ("auto", c.planner))
        return InfeasibleError(f"no plan fits the devices: {reasons}", next_step="choose other devices or planners")
    needs = {plan.planner: max(p.peak_bytes for p in plan.predictions.devices) for plan in wanted}
    best = min(wanted, key=lambda plan: needs[plan.planner])
    sizes = {name: sheet.memory_bytes for name, sheet in load_sheets().items() if sheet.type == "cuda"}
    kinds = [name for name in sizes if sizes[name] >= needs[best.planner]]
    enough = f"devices with at least {format_size(needs[best.planner])} each for this plan"
    if "one-device" in needs and best.planner != "one-device":
        enough += f", or one with {format_size(needs['one-device'])} for the whole model"
    if kinds and any(device.type == "cuda" for device in best.cluster.devices):
        enough += f" (large enough: {', '.join(sorted(kinds, key=lambda name: (sizes[name], name))[:4])})"
    return InfeasibleError(
        f"no plan fits the devices' memory: the least, {best.planner}, does not: {memory_problem(best)}",
        expected=enough,
        next_step="use such devices, more devices, or a smaller --batch",
    )


def _bounds(setting: Setting, draft: Draft, plan: Plan, candidates: list[Candidate]) -> LowerBounds:
    from planner.schedule.bounds import lower_bound_ns

    split = min(lower_bound_ns(draft.workload.tasks), plan.predictions.step_ns)
    # Splitting may cost less than the plan's own tasks do: the least that any split seen costs, and never more than
    # what a candidate was predicted to take.
    least = setting.workloads.least.values()
    work = -(-sum(cost.all_ns for cost in least) // len(setting.cluster.devices))
    longest = max((cost.one_ns for cost in least), default=0)
    steps = [candidate.step_ns for candidate in candidates if candidate.step_ns is not None]
    return LowerBounds(split_ns=split, any_ns=min(split, max(work, longest), *steps))


def _why(best: Plan, candidates: list[Candidate]) -> str:
    ranked = sorted((c.step_ns, c.planner) for c in candidates if c.step_ns is not None)
    others = [f"{name} {ns / 1e6:.3f} ms" for ns, name in ranked if name != best.planner]
    text = f"{best.planner} is predicted to take {best.predictions.step_ns / 1e6:.3f} ms a step"
    return f"{text}; the others: {', '.join(others)}" if others else text


def _plan_notes(plan: Plan) -> tuple[str, ...]:
    idle = [queue.device for queue in plan.devices if not queue.segments]
    spanning = any(device.members for device in plan.cluster.devices)
    return (f"idle devices: {', '.join(idle)}",) if idle and not spanning else ()
