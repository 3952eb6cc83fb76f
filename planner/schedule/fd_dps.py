"""FD-DPS: splits along the dynamic critical path, scheduled by changing priority.

Source: Zeng et al., "FD-DPS", Mathematics 2022, 10(24), 4788: its abstract, and public code of its group; the full text
was not to be had. Theirs: operators are split along tensor dimensions to widen the space of model parallelism; the
critical path is regenerated as priorities change; its operators are scheduled by priority. From FastT (Yi et al.,
Middleware 2020): a split is kept only if the predicted finish falls. Ours: splits are made for whole runs of operators
whose axes match; they are judged by simulating the launcher's own segments; the search starts from the best of several
ways to split the whole graph.

Symbols: a *move* is a set of splits for a run of operators; the *path* is the critical path of the simulated step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from planner.errors import InfeasibleError
from planner.graph.op_graph import Op
from planner.schedule.cut import link_costs
from planner.schedule.drafts import Draft, Setting, dcp_schedule, finish
from planner.schedule.lists import schedule_fixed
from planner.schedule.memory import device_need
from planner.simulate.critical import critical_path
from planner.split.propagate import batch_layouts, spread
from planner.split.types import SplitAxis, SplitSpec

# Tried moves along the critical path: counted work, never time.
MOVES: Final = {"quick": 2, "normal": 8, "thorough": 48}

# Axes that start a run where no input arrives in pieces, per way of splitting the whole graph.
_WAYS: Final = (
    ("spatial", ("spatial0",)),
    ("channels", ("heads", "out_channel", "columns")),
)


@dataclass(slots=True)
class _Search:
    setting: Setting
    best: Draft | None = None
    tried: int = 0

    def consider(self, splits: Sequence[SplitSpec]) -> bool:
        """Schedule a set of splits, shards by number and by dynamic critical path; keep the better if it wins."""
        won = False
        for draft in _drafts(self.setting, splits):
            if not draft.cut.times.complete:
                continue
            if self.best is None or self._rank(draft) < self._rank(self.best):
                self.best = draft
                won = True
        return won

    def _rank(self, draft: Draft) -> tuple[int, int]:
        """What does not fit comes after all that does; then the step counts."""
        return overflow_bytes(self.setting, draft), draft.step_ns


def overflow_bytes(setting: Setting, draft: Draft) -> int:
    """By how much a draft's tasks exceed the devices' memory: weights, and the largest working set."""
    device = [0] * draft.workload.tasks.num_tasks
    for segment in draft.cut.segments:
        for task in segment.tasks:
            device[task] = segment.device
    need = device_need(draft.workload.tasks, device)
    return sum(max(0, used - limit) for used, limit in zip(need, setting.memory_limit, strict=False))


def fd_dps_draft(setting: Setting) -> Draft:
    """Search splits and schedule.

    Raises:
        InfeasibleError: if nothing could be scheduled at all.
    """
    search = _Search(setting)
    search.consider(())
    if len(setting.cluster.devices) > 1:
        for splits in whole_graph_ways(setting).values():
            search.consider(splits)
        _refine(search)
    if search.best is None:
        raise InfeasibleError("no schedule of the graph, split or not, fits the devices' memory")
    return search.best


def _drafts(setting: Setting, splits: Sequence[SplitSpec]) -> Iterator[Draft]:
    workload = setting.workloads.build(splits)
    if splits:
        placement = workload.lanes(setting.shares())
        yield finish(setting, "fd-dps", workload, schedule_fixed(workload.tasks, setting.comm, placement))
    with suppress(InfeasibleError):
        yield finish(setting, "fd-dps", workload, dcp_schedule(setting, workload))


def whole_graph_ways(setting: Setting) -> dict[str, list[SplitSpec]]:
    """Ways to split the whole graph, by name: its batch, its rows, its channels and heads."""
    shares = setting.shares()
    ways: dict[str, list[SplitSpec]] = {}
    layouts = batch_layouts(setting.model.graph, shares, setting.batch_axes)
    if layouts and (splits := spread(setting.axes, layouts, shares=shares)):
        ways["batch"] = splits
    for name, axes in _WAYS:
        splits = spread(setting.axes, {}, starts=_starter(axes), shares=shares)
        if splits:
            ways[name] = splits
    return ways


def _starter(names: Sequence[str]) -> Callable[[Op, tuple[SplitAxis, ...]], SplitAxis | None]:
    """Starts a run along the first of these axes that an operator has."""

    def choose(op: Op, axes: tuple[SplitAxis, ...]) -> SplitAxis | None:
        return next((axis for name in names for axis in axes if axis.name == name), None)

    return choose


def _refine(search: _Search) -> None:
    """Moves along the critical path: split, or leave whole, the run around its costliest operators."""
    budget = MOVES[search.setting.effort]
    seen: set[tuple[SplitSpec, ...]] = set()
    improved = True
    while improved and search.best is not None and search.tried < budget:
        improved = False
        for splits in _moves(search.setting, search.best):
            key = tuple(splits)
            if key in seen:
                continue
            seen.add(key)
            search.tried += 1
            if search.consider(splits):
                improved = True
                break
            if search.tried >= budget:
                break


def _moves(setting: Setting, best: Draft) -> Iterator[list[SplitSpec]]:
    current = {spec.op: spec for spec in best.workload.splits}
    order = {op.name: position for position, op in enumerate(setting.model.graph.ops)}
    shares = setting.shares()
    for op in _critical_ops(best, setting):
        for axis in setting.axes.axes(op):
            if current.get(op.name) is not None and current[op.name].axis == axis.name:
                continue
            run = _run(setting, op, axis, shares)
            if run:
                changed = {**current, **{spec.op: spec for spec in run}}
                yield sorted(changed.values(), key=lambda spec: order[spec.op])
        if op.name in current:
            yield sorted((spec for name, spec in current.items() if name != op.name), key=lambda spec: order[spec.op])


def _run(setting: Setting, op: Op, axis: SplitAxis, shares: Sequence[int]) -> list[SplitSpec]:
    """The splits that start with one operator's axis and follow downstream as far as axes match."""

    def only(candidate: Op, _: tuple[SplitAxis, ...]) -> SplitAxis | None:
        return axis if candidate.name == op.name else None

    return spread(setting.axes, {}, starts=only, shares=shares)


def _critical_ops(draft: Draft, setting: Setting) -> list[Op]:
    """Operators of the unsplit graph on the simulated critical path, costliest first."""
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
    return [by_name[name] for name in ranked[:64]]


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
