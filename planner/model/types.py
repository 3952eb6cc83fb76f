"""A loaded model: the operator graph, and its weights behind handles that read nothing until asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.graph.op_graph import Array, OpGraph, TensorInfo


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file a tensor's elements lie, one after the other as ONNX has them.

    Attributes:
        path: the file.
        offset: of the first byte.
    """

    path: Path
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A constant of the model.

    Attributes:
        info: type and shape, always static.
        load: reads it; a memory-mapped view for external data, so that slices read only what they cover.
            Types that numpy lacks come as ml_dtypes arrays, 4-bit ones unpacked, strings as object arrays of str.
        fill: the one value of all elements, for weights made by ConstantOfShape: they need no file and no memory.
        key: identifies the content for sharing (same key, same bytes).
        place: where it lies; None if it is not in a file, or not as it is needed.
    """

    info: TensorInfo
    load: Callable[[], Array]
    fill: Any = None
    key: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A simplified model with static shapes where they can be known.

    Attributes:
        path: the file it came from.
        graph: operators in topological order, after simplification; value names of the file are kept.
        weights: one handle for every name in ``graph.weights``.
        opsets: domain (``""`` for ONNX itself) to version.
        ir_version: of the file.
        functions: model-local functions that could not be inlined (serialised FunctionProto each).
        original_inputs: the file's graph inputs in order, fed or not (initializers listed as inputs left out).
        overridable: initializers that are also graph inputs: a caller may feed them instead; they are in
            ``graph.inputs`` only if the caller said so.
        digest: ``sha256:...`` over structure, attributes, shapes, small constants, names and sizes of weights.
        notes: what is planned as atomic and why, one line each.
    """

    path: Path
    graph: OpGraph
    weights: Mapping[str, Weight]
    opsets: Mapping[str, int]
    ir_version: int
    functions: tuple[bytes, ...]
    original_inputs: tuple[str, ...]
    overridable: tuple[str, ...]
    digest: str
    notes: tuple[str, ...]
