"""What to plan, and what comes out: the arguments and the result of the whole flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from planner.cluster.types import Cluster
from planner.cost.profile import ProfileTable
from planner.model.options import LoadOptions
from planner.plan.schema import Plan
from planner.schedule.wishes import Wishes


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What to plan.

    Attributes:
        model: the ONNX file.
        cluster: devices and links.
        profile: measured costs to start from.
        measure: whether to measure what the profile lacks (else it is estimated).
        load: shapes, batch, feeds.
        planner: a name of ``schedule.planners``; ``auto`` for the best of all.
        effort: ``quick``, ``normal`` or ``thorough``.
        seed: of what ``thorough`` effort draws at random.
        start: an earlier plan to start from, which is kept unless another is faster by a margin.
        wishes: operators pinned to devices or kept together.
        command: for the plan's header, without paths.
        hash_file: whether the plan should have the model file's hash, for ``fddps validate`` to compare.
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
    start: Plan | None = None
    wishes: Wishes = field(default_factory=Wishes)
    command: str = "plan"
    hash_file: bool = False
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
