from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.graph import jit
from planner.graph.jit import kernel
from planner.schedule.timeline import earliest_slot, new_timelines, occupy


def test_importing_the_schedulers_does_not_import_numba() -> None:
    code = (
        "import sys, planner.schedule.planners, planner.schedule.windows, planner.schedule.bounds;"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_kernel_without_a_place_for_its_cache_still_works() -> None:
    # numba finds no file for this function, as it finds no folder that can be written on a read-only machine.
    scope: dict[str, Any] = {"__name__": "nowhere"}
    exec(compile("def double(x):\n    return 2 * x\n", "<no file>", "exec"), scope)
    assert kernel(scope["double"])(21) == 42


def test_slots_in_a_timeline() -> None:
    lines = new_timelines(1, 10)
    for start, duration in ((0, 10), (15, 5), (30, 10)):
        assert earliest_slot(lines, 0, start, duration) == start
        occupy(lines, 0, start, duration)
    # ready, duration -> start: a gap of 5 at 10, one of 10 at 20, and the end at 40.
    expected = {(0, 5): 10, (0, 6): 20, (12, 3): 12, (12, 4): 20, (21, 10): 40, (0, 11): 40, (17, 0): 20, (10, 0): 10}
    for (ready, duration), start in expected.items():
        assert earliest_slot(lines, 0, ready, duration) == start
    assert earliest_slot(lines, 0, 99, 1) == 99


def test_a_random_timeline_never_overlaps_and_leaves_no_earlier_slot() -> None:
    rng = np.random.default_rng(3)
    lines = new_timelines(1, 300)
    busy: list[tuple[int, int]] = []
    for _ in range(300):
        ready, duration = int(rng.integers(0, 400)), int(rng.integers(0, 6))
        start = earliest_slot(lines, 0, ready, duration)
        free = (t for t in range(ready, start + 1) if all(t + duration <= a or b <= t for a, b in busy))
        assert next(free) == start
        occupy(lines, 0, start, duration)
        busy.append((start, start + duration))


def test_compiled_kernels_of_other_sources_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_PACKAGE", tmp_path)
    file = tmp_path / "schedule" / "callee.py"
    file.parent.mkdir()
    names = set()
    for text in ("x = 1", "x = 2", "x = 1"):
        file.write_text(text)
        names.add(jit.cache_name.__wrapped__())
    assert len(names) == 2


def test_every_folder_with_kernels_is_known() -> None:
    package = Path(jit.__file__).parent.parent
    found = {path.parent.name for path in package.rglob("*.py") if "\n@kernel\n" in path.read_text(encoding="utf-8")}
    assert found == set(jit._WITH_KERNELS)
