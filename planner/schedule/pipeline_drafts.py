"""Pipelines on models: stages on the devices, micro-batches that follow each other through them.

GPipe (Huang et al., NeurIPS 2019) cuts the batch into micro-batches and runs them through stages one behind the other;
the stages are those of ``pipeline.py``. Tried are one micro-batch, as many as devices, and twice as many; an operator
that cannot be split along the batch waits for all of them. The shortest simulated step is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.errors import InfeasibleError
from planner.schedule.drafts import Draft, Setting, batch_splits, finish
from planner.schedule.lists import schedule_fixed
from planner.schedule.pipeline import stages
from planner.schedule.workload import Workload


def pipeline_draft(setting: Setting) -> Draft:
    """The best pipeline.

    Raises:
        InfeasibleError: if none can run.
    """
    drafts = [draft for draft in _drafts(setting) if draft.cut.times.complete]
    if not drafts:
        raise InfeasibleError("no pipeline of this model can run")
    return min(drafts, key=lambda draft: draft.step_ns)


def _drafts(setting: Setting) -> Iterator[Draft]:
    devices = len(setting.cluster.devices)
    whole = setting.workloads.build(())
    for count in range(1, devices + 1):
        if devices > 4 and count not in (1, 2, devices // 2, devices):
            continue
        stage = stages(whole.tasks, setting.comm, count)
        for micro in (1, devices, 2 * devices):
            splits = batch_splits(setting, [1] * micro) if micro > 1 else []
            if micro > 1 and not splits:
                continue
            workload = setting.workloads.build(splits)
            placement = _placement(whole, workload, stage)
            yield finish(setting, "pipeline", workload, schedule_fixed(workload.tasks, setting.comm, placement))


def _placement(whole: Workload, workload: Workload, stage: np.ndarray) -> list[int]:
    """Device of each task: the stage of the operator it is a shard of; glue goes with its readers, or its makers."""
    by_name = {op.name: int(stage[task]) for task, ops in enumerate(whole.groups.members) for op in ops}
    found: list[int] = []
    for members in workload.groups.members:
        known = [
            by_name[name]
            for op in members
            if (name := workload.split.origin[op.name][0] if op.name in workload.split.origin else op.name) in by_name
        ]
        found.append(known[0] if known else -1)
    edges = list(zip(workload.tasks.edge_src.tolist(), workload.tasks.edge_dst.tolist(), strict=True))
    for src, dst in reversed(edges):
        if found[src] < 0 <= found[dst]:
            found[src] = found[dst]
    for src, dst in edges:
        if found[dst] < 0 <= found[src]:
            found[dst] = found[src]
    return [max(device, 0) for device in found]
