"""One ONNX model a segment, from a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import ModelError, PlanError
from planner.graph.op_graph import Array, Op, OpGraph, TensorInfo
from planner.model.load import load_model
from planner.model.observe import stand_in
from planner.model.options import LoadOptions
from planner.model.serialize import build_model
from planner.model.types import LoadedModel
from planner.partition.coverage import coverage_violations, digest_violations
from planner.partition.free import FreeIndex
from planner.partition.split_graph import SplitGraph, build_split_graph
from planner.partition.types import PartitionedModel, SegmentModel
from planner.plan.schema import InputSpec, Plan
from planner.split.types import SplitSpec


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """A segment before it is a model: its id, device and tasks in order."""

    id: str
    device: str
    tasks: tuple[str, ...]


def load_plan_model(plan: Plan, model_path: Path, *, allow_outside: bool = False) -> LoadedModel:
    """Load a plan's model with the input shapes it was planned for.

    Args:
        plan: the plan.
        model_path: the ONNX file.
        allow_outside: whether external data may lie outside the model's folder.

    Raises:
        ModelError: as ``load_model`` does.
        PlanError: if the model does not take the plan's inputs.
    """
    options = LoadOptions(
        batch=plan.model.batch,
        batch_axes=plan.model.batch_axes,
        # Stand-ins of the right shape: they also say which initializers the caller feeds.
        feeds={name: _stand_in(name, spec) for name, spec in plan.inputs.items()},
        allow_outside=allow_outside,
    )
    try:
        return load_model(model_path, options)
    except ModelError as problem:
        if problem.where:
            raise
        # About an input, not the file: the plan's shapes were right when it was made.
        raise PlanError(
            f"the model has changed since the plan was made: {problem.what}",
            where=str(model_path),
            next_step="make the plan again with `fddps plan`",
        ) from None


def _stand_in(name: str, spec: InputSpec) -> Array:
    try:
        return stand_in(TensorInfo(name, spec.dtype, spec.shape))
    except (KeyError, TypeError, ValueError, MemoryError):
        raise PlanError(
            f"no array here is of type '{spec.dtype}' and shape {'x'.join(map(str, spec.shape)) or '()'}",
            where=f"inputs.{name}",
            expected="the type and shape of the model's input",
            next_step="correct the plan, or plan again",
        ) from None


def plan_splits(plan: Plan) -> tuple[SplitSpec, ...]:
    """The plan's splits as the rules know them."""
    return tuple(SplitSpec(split.op, split.axis, split.sizes) for split in plan.splits)


def partition_plan(
    plan: Plan, plan_dir: Path, *, model_path: Path | None = None, allow_outside: bool = False
) -> PartitionedModel:
    """Turn a plan into one model a segment.

    Args:
        plan: a plan whose own rules hold (``plan.check``).
        plan_dir: folder that the plan's model path is relative to.
        model_path: a model elsewhere, in place of the plan's.
        allow_outside: whether external data may lie outside the model's folder.

    Raises:
        PlanError: if the plan does not fit the model.
        ModelError: if the model cannot be loaded.
    """
    path = model_path or plan_dir / plan.model.path
    model = load_plan_model(plan, path, allow_outside=allow_outside)
    # Before anything else: that splits do not fit says less than that the model is another one.
    changed = digest_violations(plan, model)
    if changed:
        raise PlanError(changed[0], where="plan")
    split = build_split_graph(model, plan_splits(plan))
    found = coverage_violations(plan, model, split)
    if found:
        more = f" (and {len(found) - 1} more, see `fddps validate`)" if len(found) > 1 else ""
        raise PlanError(found[0] + more, where="plan")
    specs = [
        SegmentSpec(segment.id, queue.device, segment.tasks) for queue in plan.devices for segment in queue.segments
    ]
    return partition(model, split, specs)


def partition(model: LoadedModel, split: SplitGraph, specs: Sequence[SegmentSpec]) -> PartitionedModel:
    """Turn segments of a split graph into models.

    Args:
        model: what the split graph was made from.
        split: the split graph.
        specs: segments, those of one device in execution order.

    Raises:
        PlanError: if a value that cannot leave its segment is read elsewhere, or the segments wait for each other.
    """
    graph = split.graph
    free = FreeIndex(graph)
    ops = {op.name: op for op in graph.ops}
    home = {name: spec.id for spec in specs for task in spec.tasks for name in ops[task].writes}
    leaving = _leaving(graph, specs, ops, home, free)
    models = {spec.id: _segment(model, split, spec, [ops[t] for t in spec.tasks], free, leaving) for spec in specs}
    order = _segment_order(specs, models, home)
    produced = set(home)
    return PartitionedModel(
        graph,
        tuple(models[name] for name in order),
        tuple(graph.tensors[name] for name in graph.inputs),
        tuple(graph.tensors[name] for name in graph.outputs),
        {name: name for name in graph.outputs if name not in produced and name not in split.weights},
        {name: split.weights[name] for name in graph.outputs if name in split.weights},
        tuple(name for name in model.original_inputs if name not in graph.inputs),
    )


def _leaving(
    graph: OpGraph, specs: Sequence[SegmentSpec], ops: Mapping[str, Op], home: Mapping[str, str], free: FreeIndex
) -> dict[str, tuple[str, ...]]:
    """Segment id -> values that others read or the caller gets, in the order they are made."""
    wanted = set(graph.outputs)
    for spec in specs:
        for op in free.with_needed(ops[task] for task in spec.tasks):
            wanted.update(name for name in op.reads if home.get(name, spec.id) != spec.id)
    return {
        spec.id: tuple(name for task in spec.tasks for name in ops[task].writes if name in wanted) for spec in specs
    }


def _segment(
    model: LoadedModel,
    split: SplitGraph,
    spec: SegmentSpec,
    tasks: Sequence[Op],
    free: FreeIndex,
    leaving: Mapping[str, tuple[str, ...]],
) -> SegmentModel:
    graph = split.graph
    ops = free.with_needed(tasks)
    made = {name for op in ops for name in op.writes}
    reads = tuple(dict.fromkeys(name for op in ops for name in op.reads))
    inputs = tuple(name for name in reads if name not in made and name not in split.weights)
    outputs = leaving[spec.id]
    for name in (*inputs, *outputs):
        if graph.tensors[name].kind != "tensor":
            raise PlanError(
                f"value '{name}' of kind {graph.tensors[name].kind} crosses segments",
                where=f"segment {spec.id}",
                expected="only tensors to cross segments",
                next_step="make the plan again with `fddps plan`",
            )
    data, large = build_model(
        ops,
        tensors=graph.tensors,
        inputs=inputs,
        outputs=outputs,
        weights={name: split.weights[name] for name in reads if name in split.weights},
        opsets=model.opsets,
        ir_version=model.ir_version,
        functions=model.functions,
    )
    return SegmentModel(
        spec.id,
        spec.device,
        tuple(graph.tensors[name] for name in inputs),
        tuple(graph.tensors[name] for name in outputs),
        data,
        large,
    )


def _segment_order(
    specs: Sequence[SegmentSpec], models: Mapping[str, SegmentModel], home: Mapping[str, str]
) -> list[str]:
    """An order in which one thread could run the segments: data edges and each device's own order."""
    before: dict[str, list[str]] = {spec.id: [] for spec in specs}
    last_on: dict[str, str] = {}
    for spec in specs:
        if spec.device in last_on:
            before[spec.id].append(last_on[spec.device])
        last_on[spec.device] = spec.id
        before[spec.id].extend(home[info.name] for info in models[spec.id].inputs if info.name in home)
    waiting = {name: len(set(names)) for name, names in before.items()}
    after: dict[str, list[str]] = {spec.id: [] for spec in specs}
    for name, names in before.items():
        for other in dict.fromkeys(names):
            after[other].append(name)
    ready = [spec.id for spec in specs if waiting[spec.id] == 0]
    order: list[str] = []
    while ready:
        name = ready.pop(0)
        order.append(name)
        for other in after[name]:
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    if len(order) < len(specs):
        stuck = [name for name in waiting if waiting[name] > 0]
        raise PlanError(
            f"segments wait for each other: {', '.join(stuck[:6])}",
            where="plan",
            expected="an order of segments without a deadlock",
            next_step="make the plan again with `fddps plan`",
        )
    return order
