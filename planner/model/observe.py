"""What inference cannot know: sizes seen in a recorded run, and a note on every kind of operator planned as atomic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from planner.graph.op_graph import Array, OpGraph, TensorInfo
from planner.model.infer import has_schema
from planner.model.options import LoadOptions
from planner.model.protos import UNKNOWN_DTYPE, numpy_dtype
from planner.model.serialize import build_model
from planner.model.types import Weight

_CONTROL_FLOW: Final = ("If", "Loop", "Scan")


def observe(
    graph: OpGraph, weights: Mapping[str, Weight], opsets: Mapping[str, int], ir_version: int, options: LoadOptions
) -> OpGraph:
    """Runs the model once, through ``options.recorded_run``, for the sizes that depend on data.

    Dimensions stay unknown (they may differ with other data); the sizes go to ``TensorInfo.observed``. Inputs that the
    options do not feed get :func:`stand_in` values.
    """
    open_names = tuple(
        name
        for op in graph.ops
        for name in op.writes
        if graph.tensors[name].kind == "tensor" and not _known(graph, name)
    )
    if not open_names or options.recorded_run is None:
        return graph
    given = options.feeds or {}
    feeds = {name: given[name] if name in given else stand_in(graph.tensors[name]) for name in graph.inputs}
    model, external = build_model(
        graph.ops,
        tensors=graph.tensors,
        inputs=graph.inputs,
        outputs=tuple(dict.fromkeys((*graph.outputs, *open_names))),
        weights=weights,
        opsets=opsets,
        ir_version=ir_version,
    )
    seen = options.recorded_run(model, external, feeds, open_names)
    tensors = dict(graph.tensors)
    for name in open_names:
        if name in seen:
            tensors[name] = replace(tensors[name], observed=tuple(int(size) for size in seen[name]))
    return replace(graph, tensors=tensors)


def _known(graph: OpGraph, name: str) -> bool:
    return graph.tensors[name].static


def stand_in(info: TensorInfo) -> Array:
    """A value for an input that nobody feeds: floats in [0, 1), ones for flags, zeros for integers (in any range)."""
    dtype = numpy_dtype(info.dtype)
    if dtype.kind == "O":
        return np.full(info.dims, "", dtype=object)
    if dtype.kind == "b":
        return np.ones(info.dims, dtype)
    if dtype.kind in "iu":
        return np.zeros(info.dims, dtype)
    return np.random.Generator(np.random.Philox(key=0)).random(info.dims).astype(dtype)


def notes(graph: OpGraph, failed: Mapping[str, str]) -> tuple[str, ...]:
    """One line for every kind of operator planned as atomic, and for every shape that stays unknown."""
    kinds: dict[str, list[str]] = {}
    for op in graph.ops:
        if not op.domain and op.op_type in _CONTROL_FLOW:
            kinds.setdefault(f"{op.op_type}: control flow is planned as one operator", []).append(op.name)
        elif not has_schema(op) and op.domain not in ("com.microsoft", "com.microsoft.nchwc"):
            title = f"{op.domain or 'ai.onnx'}.{op.op_type}: an operator that fddps does not know is planned as it is"
            kinds.setdefault(title, []).append(op.name)
        elif any(graph.tensors[name].kind != "tensor" for name in (*op.reads, *op.writes)):
            kinds.setdefault(f"{op.op_type}: sequence and optional values stay on one device", []).append(op.name)
        if any(graph.tensors[n].dtype == UNKNOWN_DTYPE for n in op.writes):
            kinds.setdefault(f"{op.op_type}: the types of its outputs are unknown", []).append(op.name)
    lines = [f"{title} ({len(names)}: {names[0]}{', ...' if len(names) > 1 else ''})" for title, names in kinds.items()]
    lines.extend(f"operator '{name}': its shapes stay unknown, inference says: {why}" for name, why in failed.items())
    return tuple(lines)
