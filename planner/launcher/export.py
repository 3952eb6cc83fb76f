"""A plan as files that anyone can launch: one ONNX model a segment, and a manifest that says how they fit together."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from planner.errors import OutputError
from planner.graph.op_graph import TensorInfo
from planner.model.export import constants_model, save_with_weights
from planner.partition.segments import partition_plan
from planner.partition.types import PartitionedModel, SegmentModel
from planner.plan.check import require_runnable
from planner.plan.files import plan_model_path, read_plan
from planner.plan.schema import Plan
from planner.runtime.values import ort_type

EXPORT_SCHEMA: Final = "fddps/export/v1"
MANIFEST: Final = "manifest.json"
_HOW_TO_RUN: Final = (
    "Every file in `segments` is a complete ONNX model. Keep a table of values by name, and put the graph's `inputs` "
    "in.",
    "Run the segments in the order listed: feed each the values that its `inputs` name, and put its `outputs` in the "
    "table. The graph's `outputs` are then all in the table.",
    "To use several devices, run the segments of one device in this order on that device, and start each as soon as "
    "all its inputs are there; segments of different devices may run at the same time. `transfers` lists which values "
    "move between devices: each is sent once to a device.",
    "`ignored_inputs` are inputs of the original model that no operator reads: leave them out.",
)


def export_plan(
    plan_path: Path,
    folder: Path,
    *,
    model_path: Path | None = None,
    allow_outside: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Write a plan's segments and their manifest into a folder; all of it or nothing.

    Args:
        plan_path: the plan.
        folder: where to; made if it is not there.
        model_path: the model, if it is not where the plan says.
        allow_outside: whether the model may lie outside the plan's folder, and weights outside the model's.
        force: replace an earlier export.

    Returns:
        The manifest.

    Raises:
        PlanError, ModelError: if the plan or its model cannot be read, or do not fit each other.
        OutputError: if the folder is not empty, or cannot be written.
    """
    plan = read_plan(plan_path)
    require_runnable(plan, str(plan_path))
    _check_folder(folder, force)
    path = model_path or plan_model_path(plan, plan_path, allow_outside=allow_outside)
    model = partition_plan(plan, plan_path.parent, model_path=path, allow_outside=allow_outside)
    beside = folder.absolute().with_name(f".{folder.absolute().name[:100]}.{os.getpid()}.tmp")
    try:
        try:
            beside.mkdir()
            manifest = _write(plan, model, path, beside)
            _move(beside, folder.absolute())
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as problem:
        raise OutputError(
            f"cannot be written: {problem.strerror or problem}",
            where=str(folder),
            expected="a new folder in one that you may write to",
            next_step="name another one with -o",
        ) from None
    return manifest


def _check_folder(folder: Path, force: bool) -> None:
    # os.path, not Path: a name that is too long is reported when it is written to.
    if not os.path.exists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        return
    if not os.path.isdir(folder):
        raise OutputError("is a file", where=str(folder), expected="a new folder")
    if not force:
        raise OutputError(
            "is not empty", where=str(folder), expected="a new folder", next_step="replace an earlier export by --force"
        )
    # A wrong -o must not cost a folder of other things: web pages have a manifest.json too.
    if not _is_export(folder):
        raise OutputError("is not an earlier export", where=str(folder), expected=f"a folder with {MANIFEST} of fddps")


def _is_export(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return str(manifest["schema"]).startswith("fddps/export/")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _move(beside: Path, folder: Path) -> None:
    """Put the finished folder in its place; an earlier one goes only when the new one is there."""
    if not folder.exists():
        os.replace(beside, folder)
        return
    old = beside.with_name(f"{beside.name}.old")
    try:
        os.replace(folder, old)
        os.replace(beside, folder)
    finally:
        # Also where Ctrl-C came between the two, or while the old one is removed.
        if not folder.exists() and old.exists():
            os.replace(old, folder)
        shutil.rmtree(old, ignore_errors=True)


def _write(plan: Plan, model: PartitionedModel, model_path: Path, folder: Path) -> dict[str, Any]:
    segments = [_segment(segment, number, folder) for number, segment in enumerate(model.segments)]
    if model.constants:
        segments.insert(0, _constants(plan, model, folder))
    manifest = {
        "schema": EXPORT_SCHEMA,
        "how_to_run": list(_HOW_TO_RUN),
        "tool": {"name": plan.tool.name, "version": plan.tool.version},
        "model": {"name": model_path.name, "digest": plan.model.digest},
        "planner": plan.planner,
        "predicted_step_ns": plan.predictions.step_ns,
        "inputs": _described(model.inputs),
        "outputs": _described(model.outputs),
        "ignored_inputs": list(model.ignored),
        "devices": [device.model_dump(mode="json") for device in plan.cluster.devices],
        "segments": segments,
        "transfers": [transfer.model_dump(mode="json") for transfer in plan.transfers],
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8", errors="surrogatepass", newline="\n")
    return manifest


def _segment(segment: SegmentModel, number: int, folder: Path) -> dict[str, Any]:
    # Ids are not file names: a plan may be anyone's.
    name = f"{number:03d}-{re.sub(r'[^a-z0-9]+', '-', segment.device.lower()).strip('-') or 'device'}.onnx"
    data = save_with_weights(segment.model, segment.weights, folder / name)
    return {
        "id": segment.id,
        "device": segment.device,
        "file": name,
        "data_files": list(data),
        "inputs": _described(segment.inputs),
        "outputs": _described(segment.outputs),
    }


def _constants(plan: Plan, model: PartitionedModel, folder: Path) -> dict[str, Any]:
    """Outputs that are weights, as a segment of their own, so that a launcher needs no special case."""
    data, weights = constants_model(model.constants)
    infos = tuple(weight.info for weight in model.constants.values())
    device = plan.cluster.devices[0].name
    return _segment(SegmentModel("constants", device, (), infos, data, weights), len(model.segments), folder)


def _described(infos: Iterable[TensorInfo]) -> list[dict[str, Any]]:
    """Name, type and shape; null for a size that depends on data."""
    return [
        {
            "name": info.name,
            "type": ort_type(info.dtype, info.kind),
            "shape": None if info.shape is None else list(info.shape),
        }
        for info in infos
    ]
