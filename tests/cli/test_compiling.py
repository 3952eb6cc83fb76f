"""What a user sees while kernels are compiled; nothing is compiled here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.graph import jit
from planner.simulate import simulator
from tests.cli.support import data, run


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Has the simulator say twice that it compiles, with the cache in the folder of the list."""
    folders: list[str | None] = []
    real = simulator.simulate

    def simulate(*args: Any, **kwargs: Any) -> Any:
        for _ in range(2):
            jit.about_to_compile(folders[0])
        return real(*args, **kwargs)

    monkeypatch.setattr(simulator, "simulate", simulate)
    return folders


def _kernels(folder: Path) -> Path:
    path = folder / jit.cache_name() / "schedule_1234"
    path.mkdir(parents=True)
    return path


def test_the_first_compilation_is_announced_once(folder: Path, compiles: list[str | None]) -> None:
    compiles.append(str(_kernels(folder)))
    result = run("show", "plan.yaml", "--json")
    assert result.stderr.splitlines() == ["note: compiling kernels, once: about a minute"]
    assert data(result)["planner"] == "heft"
    assert run("show", "plan.yaml", "--quiet").stderr == ""


def test_where_kernels_of_another_file_are_cached_nothing_is_said(folder: Path, compiles: list[str | None]) -> None:
    compiles.append(str(_kernels(folder)))
    other = folder / jit.cache_name() / "graph_5678"
    other.mkdir()
    (other / "paths.nbi").touch()
    assert run("show", "plan.yaml").stderr == ""


def test_where_nothing_can_be_cached_that_is_said(folder: Path, compiles: list[str | None]) -> None:
    compiles.append(None)
    assert "NUMBA_CACHE_DIR" in run("show", "plan.yaml").stderr
