"""Ctrl-C and SIGTERM, in real processes: what was measured is kept, nothing goes on running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.cost.profile import read_profile
from tests.models.small import nasnet_cell_like, save

ROOT = Path(__file__).resolve().parents[2]
PATHS = (ROOT,)
_PATIENCE_S = 60.0


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "TMPDIR": str(folder / "temporary")}
    (folder / "temporary").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "planner.cli.main", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A group of its own: whatever it starts can be counted, and stopped if the test fails.
        start_new_session=True,
    )


def _interrupted(
    process: subprocess.Popen[str], ready: Callable[[], bool], number: signal.Signals = signal.SIGINT
) -> str:
    """A signal once ready; the standard error of a process that must end with 128 + number, its group empty."""
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not ready():
            assert process.poll() is None, f"it ended by itself: {process.communicate()}"
            assert time.monotonic() < deadline, "it never got so far"
            time.sleep(0.01)
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=_PATIENCE_S)
    finally:
        group_left = _group_lives(process.pid)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 128 + number, (process.returncode, errors)
    assert not group_left
    assert "Traceback" not in errors
    return errors


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGINT, "fddps: interrupted"), (signal.SIGTERM, "fddps: terminated")]
)
@pytest.mark.parametrize(("library", "arguments"), [("click", []), ("onnx_ir", ["plan", "m.onnx", "--cpus", "1"])])
def test_while_it_is_imported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    says: str,
    library: str,
    arguments: list[str],
) -> None:
    slow = "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(60)\n"
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / f"{library}.py").write_text(slow)
    monkeypatch.setattr(f"{__name__}.PATHS", (tmp_path / "slow", ROOT))
    process = _start(tmp_path, *arguments)
    errors = _interrupted(process, (tmp_path / "importing").exists, number)
    assert errors.strip().splitlines() == [says]


def test_nothing_heavy_is_imported_before_signals_are_handled() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport planner.cli.entry\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"click", "inspect", "typing", "pathlib", "planner.cli.main"} & set(done.stdout.split()), done.stdout


@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGINT, "fddps: interrupted"), (signal.SIGTERM, "fddps: terminated")]
)
def test_while_profiling_what_was_measured_is_kept(tmp_path: Path, number: signal.Signals, says: str) -> None:
    save(nasnet_cell_like(cells=3, size=64, channels=64, batch=4), tmp_path)
    process = _start(tmp_path, "profile", "model.onnx", "--cpus", "2x1", "-o", "p.yaml")

    def something_kept() -> bool:
        path = tmp_path / "p.yaml"
        return path.exists() and "key: " in path.read_text()

    errors = _interrupted(process, something_kept, number)
    assert errors.strip().splitlines()[-1] == says
    kept = read_profile(tmp_path / "p.yaml")
    assert len(kept.entries) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "p.yaml", "temporary"]
    assert _ours_left(tmp_path) == []


def test_while_applying_nothing_goes_on(tmp_path: Path) -> None:
    save(nasnet_cell_like(cells=1, size=48, channels=32, batch=2), tmp_path)
    options = ("--cpus", "2x1", "--profile", "cpu-generic", "--planner", "heft")
    done = _start(tmp_path, "plan", "model.onnx", *options)
    _, errors = done.communicate(timeout=_PATIENCE_S)
    assert done.returncode == 0, errors
    process = _start(tmp_path, "apply", "plan.yaml", "--repeat", "1000000")

    def workers_run() -> bool:
        tasks = Path(f"/proc/{process.pid}/task")
        return tasks.is_dir() and len(list(tasks.iterdir())) >= 3 and _used_s(process.pid) > 2

    errors = _interrupted(process, workers_run)
    assert errors.strip().splitlines()[-1] == "fddps: interrupted"
    assert _ours_left(tmp_path) == []


def _ours_left(folder: Path) -> list[str]:
    """Temporary files, but for the empty marker that ONNX Runtime itself leaves."""
    return sorted(path.name for path in (folder / "temporary").iterdir() if path.name != ".ses")


def _used_s(pid: int) -> float:
    """Processor time used so far: imports take less than what the test waits for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom planner.cli.main import main\n"
        "try:\n    main(['--help'], prog_name='fddps')\nexcept SystemExit:\n    pass\n"
        "heavy = ('numba', 'onnx', 'onnxruntime', 'onnx_ir', 'pydantic', 'numpy', 'rich')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Commands:" in done.stdout


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    """As in ``fddps ... | head -1``."""
    process = _start(tmp_path, "devices", "--cpus", "64")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.wait(timeout=_PATIENCE_S)
    assert "Traceback" not in errors
