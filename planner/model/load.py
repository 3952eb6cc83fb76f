"""From an ONNX file to a :class:`LoadedModel`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from planner.errors import ModelError
from planner.graph.op_graph import OpGraph, TensorInfo
from planner.model.convert import RawGraph, convert, normalize_domain
from planner.model.digest import graph_digest
from planner.model.inputs import input_types
from planner.model.options import LoadOptions
from planner.model.protos import info_from_type
from planner.model.read import read_model
from planner.model.simplify import Flow, Source, live, run_pass
from planner.model.types import LoadedModel


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
    opsets = _opsets(model)
    fed = tuple(name for name in raw.overridable if options.feeds is not None and name in options.feeds)
    ops = tuple(live(raw.ops, raw.outputs))
    needed = {name for op in ops for name in op.reads} | set(raw.outputs)
    types = input_types(raw, fed, needed, options)
    weights = {name: weight for name, weight in raw.weights.items() if name in needed and name not in fed}
    strict = bool(options.input_shapes or options.batch is not None)
    source = Source(ops, weights, types, raw.outputs, raw.hints, raw.captured, opsets, strict)
    flow = run_pass(source)
    return _finish(path, model, raw, flow, source, fed)


def _opsets(model: ir.Model) -> dict[str, int]:
    return {normalize_domain(domain): version for domain, version in model.opset_imports.items()}


def _finish(
    path: Path, model: ir.Model, raw: RawGraph, flow: Flow, source: Source, fed: tuple[str, ...]
) -> LoadedModel:
    ops = tuple(live(flow.ops, raw.outputs))
    used = dict.fromkeys(name for op in ops for name in op.reads)
    used.update(dict.fromkeys(raw.outputs))
    tensors: dict[str, TensorInfo] = {name: flow.infos[name] for name in used}
    tensors.update({name: flow.infos[name] for op in ops for name in op.writes})
    weights = {name: flow.weights[name] for name in used if name in flow.weights}
    graph = OpGraph(
        ops,
        tensors,
        tuple(name for name in (*raw.input_types, *fed) if name in used),
        raw.outputs,
        frozenset(weights),
        {name: flow.constants[name] for name in weights if name in flow.constants},
    )
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
        (),
    )
