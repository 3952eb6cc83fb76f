"""From an ONNX file to a :class:`LoadedModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir

from planner.errors import ModelError
from planner.graph.op_graph import OpGraph, TensorInfo
from planner.model.batch import BatchRepair
from planner.model.convert import RawGraph, convert, normalize_domain
from planner.model.digest import graph_digest
from planner.model.inputs import input_types, reference_types, with_implied_batch
from planner.model.observe import notes, observe
from planner.model.options import LoadOptions
from planner.model.read import read_model
from planner.model.simplify import Flow, Source, live, run_pass
from planner.model.types import LoadedModel

# The largest number of bytes that a plan can hold.
_LARGEST_BYTES: Final = 2**53


def load_model(path: str | Path, options: LoadOptions | None = None) -> LoadedModel:
    """Reads, simplifies and infers the shapes of a model. Reads no weight over a few KB.

    Args:
        path: an ONNX file.
        options: shapes, batch size, feeds.

    Raises:
        ModelError: if the file is no usable model, or a shape that must be known is not.
    """
    path = Path(path)
    options = options or LoadOptions()
    model = read_model(path, allow_outside=options.allow_outside)
    raw = convert(model)
    if not raw.outputs:
        raise ModelError(
            "the model has no outputs", where=str(path), expected="at least one", next_step="export the model again"
        )
    options = with_implied_batch(raw, options)
    fed = tuple(name for name in raw.overridable if options.feeds is not None and name in options.feeds)
    source = _source(raw, fed, _opsets(model), options)
    reference = reference_types(raw, source.input_types, options)
    flow = run_pass(source) if reference is None else _rebatch(raw, source, reference, options)
    graph = _graph(raw, flow, fed)
    weights = {name: flow.weights[name] for name in sorted(graph.weights)}
    if options.recorded_run is not None:
        graph = observe(graph, weights, source.opsets, int(model.ir_version), options)
    return LoadedModel(
        path,
        graph,
        weights,
        source.opsets,
        int(model.ir_version),
        (),
        tuple(raw.input_types),
        tuple(raw.overridable),
        graph_digest(graph, source.opsets),
        notes(graph, flow.failed),
    )


def _source(raw: RawGraph, fed: tuple[str, ...], opsets: Mapping[str, int], options: LoadOptions) -> Source:
    ops = tuple(live(raw.ops, raw.outputs))
    needed = frozenset(name for op in ops for name in op.reads) | frozenset(raw.outputs)
    return Source(
        ops,
        {name: weight for name, weight in raw.weights.items() if name in needed and name not in fed},
        input_types(raw, fed, needed, options),
        raw.outputs,
        raw.hints,
        raw.captured,
        opsets,
        strict=bool(options.input_shapes) or options.batch is not None,
    )


def _rebatch(raw: RawGraph, source: Source, reference: Mapping[str, onnx.TypeProto], options: LoadOptions) -> Flow:
    """A pass at a batch size other than the one in the file."""
    before = run_pass(replace(source, input_types=reference))
    moved = next(name for name in reference if reference[name] != source.input_types[name])
    axis = options.batch_axes.get(moved, 0)
    old = reference[moved].tensor_type.shape.dim[axis].dim_value
    repair = BatchRepair(before, old, options.batch or 0, raw.names)
    flow = run_pass(source, repair)
    repair.check(flow, source.outputs)
    return flow


def _graph(raw: RawGraph, flow: Flow, fed: tuple[str, ...]) -> OpGraph:
    ops = tuple(live(flow.ops, raw.outputs))
    used = dict.fromkeys(name for op in ops for name in op.reads)
    used.update(dict.fromkeys(raw.outputs))
    for name in raw.outputs:
        if name not in flow.infos:
            raise ModelError("nothing makes it", where=f"output '{name}'", next_step="check the file with onnx.checker")
    tensors: dict[str, TensorInfo] = {name: flow.infos[name] for name in used}
    tensors.update({name: flow.infos[name] for op in ops for name in op.writes})
    _check_values(tensors, (*(name for name in raw.input_types if name in used), *raw.outputs))
    weights = frozenset(name for name in used if name in flow.weights)
    return OpGraph(
        ops,
        tensors,
        tuple(name for name in (*raw.input_types, *fed) if name in used),
        raw.outputs,
        weights,
        {name: flow.constants[name] for name in sorted(weights) if name in flow.constants},
    )


def _check_values(tensors: Mapping[str, TensorInfo], outside: Sequence[str]) -> None:
    """Refuse what nothing can hold, and what cannot go in or out of a segment."""
    for info in tensors.values():
        if info.nbytes > _LARGEST_BYTES:
            raise ModelError(
                f"{info.nbytes} bytes are more than any machine has",
                where=f"tensor '{info.name}'",
                expected=f"at most {_LARGEST_BYTES}",
                next_step="check the shapes and the batch size",
            )
    for name in outside:
        if tensors[name].kind != "tensor":
            raise ModelError(
                f"its kind is {tensors[name].kind}",
                where=f"'{name}'",
                expected="tensors as inputs and outputs of the model",
                next_step="cut the model behind or before it",
            )


def _opsets(model: ir.Model) -> dict[str, int]:
    return {normalize_domain(domain): version for domain, version in model.opset_imports.items()}
