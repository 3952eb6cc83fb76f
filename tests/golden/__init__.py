"""Plans as they are today, by data sheets alone: a change of any decision shows as a diff.

``python -m tests.golden`` writes them again; look at the diff before committing it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from planner.pipeline import make_plan
from planner.plan.files import dump_plan
from planner.request import Request
from tests.schedule.settings import CLUSTERS, model_path

FOLDER: Final = Path(__file__).resolve().parent
# Plans that differ in kind: one device is best, data parallel, uneven shards, two nodes, CPU sockets.
GOLDEN: Final = (
    ("mlp", "4-v100"),
    ("cnn", "4-v100"),
    ("cnn", "2-v100-2-t4"),
    ("residual", "2-nodes"),
    ("transformer", "4-v100"),
    ("nasnet", "2-sockets"),
)


def golden_path(model: str, cluster: str) -> Path:
    """Where a plan is kept."""
    return FOLDER / f"{model}-on-{cluster}.yaml"


def plan_text(model: str, cluster: str, folder: Path | None = None) -> str:
    """The plan as made now, with the model in a folder of its own choice."""
    with tempfile.TemporaryDirectory() as somewhere:
        path = (folder or Path(somewhere)) / f"{model}.onnx"
        shutil.copy(model_path(model), path)
        request = Request(
            path, CLUSTERS[cluster](), measure=False, effort="quick", command="plan --golden", plan_dir=path.parent
        )
        return dump_plan(make_plan(request).plan)
