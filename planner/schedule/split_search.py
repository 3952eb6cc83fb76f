"""Searching splits: start from ways to split the whole graph, then split runs of operators along the critical path.

From FastT (Yi et al., Middleware 2020): a split is kept only if the predicted finish falls. Ours: splits are made for
whole runs of operators whose axes match; they are judged by simulating the launcher's own segments.

Symbols: a *move* is a set of splits for a run of operators; the *path* is the critical path of the simulated step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from planner.graph.op_graph import Op
from planner.schedule.critical_ops import critical_ops
from planner.schedule.drafts import Draft, Setting, batch_splits
from planner.schedule.memory import device_need
from planner.split.propagate import spread
from planner.split.types import SplitAxis, SplitSpec
from planner.units import format_time

# Tried moves along the critical path: counted work, never time.
MOVES: Final = {"quick": 2, "normal": 8, "thorough": 48}

# Axes that start a run where no input arrives in pieces, per way of splitting the whole graph.
_WAYS: Final = (
    ("spatial", ("spatial0",)),
    ("channels", ("heads", "out_channel", "columns")),
)

Maker = Callable[[Setting, Sequence[SplitSpec]], Iterator[Draft]]
"""Schedules a set of splits, in one or more ways."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What a set of splits that won has saved.

    Attributes:
        saved_ns: of the simulated step.
        text: what came, in words.
        came: (operator, axis) of the splits that came.
        whole: operators that were left whole, if none came.
    """

    saved_ns: int
    text: str
    came: frozenset[tuple[str, str]]
    whole: frozenset[str]

    def lasts(self, splits: Sequence[SplitSpec]) -> bool:
        """Whether a plan with these splits has all of it."""
        return self.came <= {(spec.op, spec.axis) for spec in splits} and self.whole.isdisjoint(s.op for s in splits)


@dataclass(slots=True)
class SplitSearch:
    """The best draft so far.

    Attributes:
        setting: what is planned.
        make: how a set of splits is scheduled.
        ways: sets of splits to begin with, beside none.
        rivals: drafts that others made, to go on from if they are better.
        best: None before anything was scheduled.
        tried: moves so far.
        gains: what each set of splits that won has saved.
    """

    setting: Setting
    make: Maker
    ways: Callable[[Setting], Iterable[Sequence[SplitSpec]]] = lambda setting: whole_graph_ways(setting).values()
    rivals: Callable[[Setting], Iterable[Draft]] = lambda setting: ()
    best: Draft | None = None
    tried: int = 0
    gains: list[Gain] = field(default_factory=list)

    def run(self) -> None:
        """The unsplit graph, the ways to split it whole, then moves."""
        self.consider(())
        if len(self.setting.cluster.devices) > 1:
            for splits in self.ways(self.setting):
                self.consider(splits)
            for draft in self.rivals(self.setting):
                self.offer(draft)
            self._refine()
        if self.best is not None:
            # Rivals and later moves may have undone what won once: only what the plan still has is named.
            lasting = [gain for gain in self.gains if gain.lasts(self.best.workload.splits)]
            if lasting:
                most = max(lasting, key=lambda gain: gain.saved_ns)
                text = f"the split that gained most, {format_time(most.saved_ns)}: {most.text}"
                self.best = replace(self.best, gain=text)

    def consider(self, splits: Sequence[SplitSpec]) -> bool:
        """Schedule a set of splits; keep the best if it wins."""
        before = self.best
        for draft in self.make(self.setting, splits):
            self.offer(draft)
        if self.best is before or self.best is None:
            return False
        if before is not None and splits:
            saved = before.step_ns - self.best.step_ns
            self.gains.append(_gain(saved, before.workload.splits, self.best.workload.splits))
        return True

    def offer(self, draft: Draft) -> bool:
        """Keep a draft if it is better than the best so far."""
        better = draft.cut.times.complete and (self.best is None or self.rank(draft) < self.rank(self.best))
        if better:
            self.best = draft
        return better

    def rank(self, draft: Draft) -> tuple[int, int]:
        """What does not fit comes after all that does; then the step counts."""
        return overflow_bytes(self.setting, draft), draft.step_ns

    def _refine(self) -> None:
        """Moves along the critical path: split, or leave whole, the run around its costliest operators."""
        budget = MOVES[self.setting.effort]
        seen: set[tuple[SplitSpec, ...]] = set()
        improved = True
        while improved and self.best is not None and self.tried < budget:
            improved = False
            for splits in _moves(self.setting, self.best):
                key = tuple(splits)
                if key in seen:
                    continue
                seen.add(key)
                self.tried += 1
                if self.consider(splits):
                    improved = True
                    break
                if self.tried >= budget:
                    break


def _gain(saved_ns: int, before: Sequence[SplitSpec], after: Sequence[SplitSpec]) -> Gain:
    """Which splits came, or went if none came."""
    old, axes = set(before), {spec.op: spec.axis for spec in after}
    new = [spec for spec in after if spec not in old]
    if not new:
        whole = frozenset(spec.op for spec in before if spec.op not in axes)
        return Gain(saved_ns, f"{len(whole)} operators left whole", frozenset(), whole)
    names = ", ".join(dict.fromkeys(spec.axis for spec in new[:16]))
    more = f" and {len(new) - 1} more" if len(new) > 1 else ""
    came = frozenset((spec.op, spec.axis) for spec in new)
    return Gain(saved_ns, f"{new[0].op}{more} by {names}", came, frozenset())


def overflow_bytes(setting: Setting, draft: Draft) -> int:
    """By how much a draft's tasks exceed the devices' memory: weights, and the largest working set."""
    device = [0] * draft.workload.tasks.num_tasks
    for segment in draft.cut.segments:
        for task in segment.tasks:
            device[task] = segment.device
    need = device_need(draft.workload.tasks, device)
    return sum(max(0, used - limit) for used, limit in zip(need, setting.memory_limit, strict=False))


def whole_graph_ways(setting: Setting) -> dict[str, list[SplitSpec]]:
    """Ways to split the whole graph, by name: its batch, its rows, its channels and heads."""
    shares = setting.shares()
    ways: dict[str, list[SplitSpec]] = {}
    if splits := batch_splits(setting):
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


def _moves(setting: Setting, best: Draft) -> Iterator[list[SplitSpec]]:
    current = {spec.op: spec for spec in best.workload.splits}
    order = {op.name: position for position, op in enumerate(setting.model.graph.ops)}
    shares = setting.shares()
    for op in critical_ops(best, setting):
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
