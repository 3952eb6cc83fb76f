"""What a plan's outputs are compared with: the model file itself, wherever it can run at the plan's shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner.launcher.check import Checker
from planner.launcher.planned_session import PlannedSession
from planner.plan.files import write_plan
from planner.runtime.feeds import random_feeds
from tests.models.small import save, tiny_mlp

HARDWARE = {"cpus": "2x1", "profile": "cpu-generic"}


@pytest.mark.parametrize(
    ("baked", "options", "file_is_run"),
    [
        ("N", {"batch": 3}, True),
        (3, {}, True),
        (3, {"batch": 3}, True),
        (2, {"batch": 3}, False),
        (2, {"input_shapes": {"x": (3, 16)}}, False),
    ],
    ids=["symbolic", "baked", "baked-and-said", "changed", "changed-by-shape"],
)
def test_the_reference_is_the_file_unless_it_is_for_another_batch(
    baked: int | str, options: dict[str, object], file_is_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_mlp(baked)
    name, width = model.graph.input[0].name, model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    if "input_shapes" in options:
        options = {"input_shapes": {name: (3, width)}}
    path = save(model, tmp_path)
    write_plan(
        planner.plan(path, **HARDWARE, planner="data-parallel", plan_dir=tmp_path, **options), tmp_path / "p.yaml"
    )
    built: list[str] = []
    real = planner.launcher.check.rebuilt
    monkeypatch.setattr(planner.launcher.check, "rebuilt", lambda *given: built.append("rebuilt") or real(*given))
    with PlannedSession(tmp_path / "p.yaml") as session:
        checker = Checker(session)
        assert checker.compare(random_feeds(session.inputs, 0)).verified
    assert built == ([] if file_is_run else ["rebuilt"])
    assert bool(checker.warnings) != file_is_run
