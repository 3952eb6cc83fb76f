"""Does a plan cover its model? Every task once, in an order that can run, for the model it was made for."""

from __future__ import annotations

from pathlib import Path

from planner.model.digest import file_sha256
from planner.model.types import LoadedModel
from planner.partition.free import task_ops
from planner.partition.split_graph import SplitGraph
from planner.plan.schema import Plan


def coverage_violations(plan: Plan, model: LoadedModel, split: SplitGraph) -> list[str]:
    """Rules that the plan breaks against the model: digest, inputs, coverage, order inside devices.

    Args:
        plan: the plan.
        model: the model it names, loaded with the plan's input shapes.
        split: the model's graph after the plan's splits.

    Returns:
        One line a violation, empty if there is none.
    """
    found = [*digest_violations(plan, model), *_input_violations(plan, model)]
    found.extend(_task_violations(plan, split))
    found.extend(_order_violations(plan, split))
    return found


def _task_violations(plan: Plan, split: SplitGraph) -> list[str]:
    """Tasks that are in no segment, in two, or not the model's."""
    found = []
    tasks = [op.name for op in task_ops(split.graph)]
    seen: dict[str, str] = {}
    known = set(tasks)
    for queue in plan.devices:
        for segment in queue.segments:
            for task in segment.tasks:
                where = f"devices[{queue.device}].segments[{segment.id}]"
                if task not in known:
                    found.append(f"{where}: task {task[:80]!r} is not in the model's split graph")
                elif task in seen:
                    found.append(f"{where}: task {task[:80]!r} is also in segment {seen[task]}")
                seen.setdefault(task, segment.id)
    found.extend(f"task {task[:80]!r} is in no segment" for task in tasks if task not in seen)
    return found


def digest_violations(plan: Plan, model: LoadedModel) -> list[str]:
    """Whether the plan is for another model, as one line or none."""
    if plan.model.digest == model.digest:
        return []
    return [
        f"model.digest: the model has changed since the plan was made (plan {plan.model.digest[:19]}, "
        f"model {model.digest[:19]}); make the plan again with `fddps plan`"
    ]


def file_violations(plan: Plan, path: Path) -> list[str]:
    """Whether the model's file is another one than the plan has the hash of, as one line or none."""
    recorded = plan.model.file_sha256
    if not recorded or (found := file_sha256(path)) == recorded:
        return []
    return [
        f"model.file_sha256: the file is not the one the plan was made from (plan {recorded[:12]}, file {found[:12]}): "
        "its weights may differ; make the plan again with `fddps plan --hash-file`"
    ]


def _input_violations(plan: Plan, model: LoadedModel) -> list[str]:
    """Inputs that the plan describes otherwise than the model; one that no operator reads does no harm."""
    found = []
    for name, spec in plan.inputs.items():
        if name in model.graph.inputs:
            dtype = model.graph.tensors[name].dtype
            if dtype != spec.dtype:
                found.append(f"inputs.{name[:80]}: the type is {spec.dtype[:80]!r}, and the model's is {dtype!r}")
        elif name not in model.original_inputs:
            found.append(f"inputs: the model has no input {name[:80]!r}")
    lacking = [name for name in model.graph.inputs if name not in plan.inputs]
    return [*found, *(f"inputs: the model's input {name[:80]!r} is missing" for name in lacking)]


def _order_violations(plan: Plan, split: SplitGraph) -> list[str]:
    """Tasks that stand before what they read on the same device."""
    position = {}
    for queue in plan.devices:
        for step, task in enumerate(task for segment in queue.segments for task in segment.tasks):
            position[task] = (queue.device, step)
    producers = split.graph.producers()
    found = []
    for op in split.graph.ops:
        here = position.get(op.name)
        for name in op.reads if here else ():
            producer = producers.get(name)
            there = position.get(producer.name) if producer else None
            if here and there and producer and there[0] == here[0] and there[1] > here[1]:
                found.append(
                    f"devices[{here[0]}]: task {op.name[:80]!r} stands before {producer.name[:80]!r}, which it reads"
                )
    return found
