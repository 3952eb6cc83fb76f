"""Plans are those that are kept, byte for byte, whatever the hash seed and the model's folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.plan.check import violations
from planner.plan.files import read_plan
from tests.golden import GOLDEN, golden_path, plan_text

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("model", "cluster"), GOLDEN)
def test_the_plan_is_the_one_kept(model: str, cluster: str) -> None:
    kept = golden_path(model, cluster).read_text(encoding="utf-8")
    assert plan_text(model, cluster) == kept, "if the change is meant: python -m tests.golden"


@pytest.mark.parametrize(("model", "cluster"), GOLDEN)
def test_kept_plans_are_sound(model: str, cluster: str) -> None:
    assert violations(read_plan(golden_path(model, cluster))) == []


def test_the_models_folder_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with spaces" / "ünïcode"
    folder.mkdir(parents=True)
    assert plan_text("cnn", "2-v100-2-t4", folder) == plan_text("cnn", "2-v100-2-t4")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_hash_seed_does_not_matter(seed: str) -> None:
    program = "import sys; from tests.golden import plan_text; sys.stdout.write(plan_text('residual', '2-nodes'))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    kept = golden_path("residual", "2-nodes").read_bytes()
    assert hashlib.sha256(run.stdout).hexdigest() == hashlib.sha256(kept).hexdigest()
