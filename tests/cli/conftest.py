"""A small model with a plan of many segments: made once, copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import CPUS, listing, run
from tests.models.small import nasnet_cell_like, save, tiny_mlp


@pytest.fixture(autouse=True)
def _no_user_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own measurements."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model.onnx``, its ``plan.yaml`` and ``mlp.onnx``; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    # Large enough for HEFT to spread its branches over two devices.
    save(nasnet_cell_like(cells=1, size=48, channels=32, batch=2), folder)
    save(tiny_mlp("N"), folder, "mlp.onnx")
    done = run("plan", folder / "model.onnx", *CPUS, "--planner", "heft", "-o", folder / "plan.yaml")
    assert done.exit_code == 0, done.stderr
    assert (folder / "plan.yaml").read_text().count("- id:") + (folder / "plan.yaml").read_text().count("{id:") > 3
    return folder


@pytest.fixture
def folder(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, which is also the current one."""
    for path in made.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nothing_left_behind(folder: Path) -> Iterator[None]:
    """No such test makes a file by a command, not even a temporary one."""
    yield
    assert [name for name in listing(folder) if "tmp" in name or name in ("out.yaml", "out.npz", "out")] == []
