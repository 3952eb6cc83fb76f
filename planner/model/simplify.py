"""One forward pass that infers shapes and simplifies as it goes.

Weightless: no tensor over a few KB is read. Removed are operators that do nothing (Identity, Dropout outside of
training), shape arithmetic, constants made by operators, and what no output needs. Names of values that stay are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import onnx

from planner.errors import ModelError
from planner.graph.op_graph import Array, Op, TensorInfo
from planner.model.fold import fold
from planner.model.infer import ShapeConflict, infer_op
from planner.model.protos import UNKNOWN_DTYPE, array_dtype_name, info_from_type, type_from_info
from planner.model.types import Weight
from planner.model.weights import SMALL_BYTES, weight_from_array, weight_from_fill

# Part of the plan: raise it when the same file gives a different graph.
SIMPLIFICATION_VERSION: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What a pass starts from.

    Attributes:
        ops: operators in a topological order.
        weights: constants by name.
        input_types: types of the graph inputs, dimensions known.
        outputs: graph outputs.
        hints: types that the file states for inner values, used where inference knows nothing.
        captured: names that bodies read; they are not replaced.
        opsets: operator sets of the model.
        strict: whether shapes that contradict each other are an error (else the outputs stay unknown).
    """

    ops: tuple[Op, ...]
    weights: Mapping[str, Weight]
    input_types: Mapping[str, onnx.TypeProto]
    outputs: tuple[str, ...]
    hints: Mapping[str, onnx.TypeProto]
    captured: frozenset[str]
    opsets: Mapping[str, int]
    strict: bool


@dataclass(slots=True)
class Flow:
    """State of a pass, and its result.

    Attributes:
        types: type of every value so far.
        infos: the same as :class:`TensorInfo`.
        constants: small constants so far.
        weights: all constants so far.
        alias: removed value -> the value that stands for it.
        ops: operators that stay.
        failed: operators whose inference failed, with ONNX's message.
    """

    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    infos: dict[str, TensorInfo] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add_type(self, name: str, proto: onnx.TypeProto) -> None:
        """Records a value that is no constant."""
        self.infos[name] = info_from_type(name, proto)
        self.types[name] = _without_symbols(proto)

    def add_weight(self, name: str, weight: Weight) -> None:
        """Records a constant; reads it if it is small."""
        self.weights[name] = weight
        self.infos[name] = replace(weight.info, name=name)
        self.types[name] = type_from_info(weight.info)
        if weight.info.nbytes <= SMALL_BYTES:
            self.constants[name] = weight.load()


Repair = Callable[[Op, Flow], "list[Op]"]
"""Called before an operator is looked at: gives the operators that replace it (usually itself)."""


def run_pass(source: Source, repair: Repair | None = None) -> Flow:
    """Infers and simplifies.

    Raises:
        ModelError: if an operator reads a value that nobody makes, or (strict) shapes contradict each other.
    """
    flow = Flow()
    for name, proto in source.input_types.items():
        flow.add_type(name, proto)
    for name, weight in source.weights.items():
        flow.add_weight(name, weight)
    keep = frozenset(source.outputs) | source.captured
    read = frozenset(name for op in source.ops for name in op.reads) | frozenset(source.outputs)
    for original in source.ops:
        op = _renamed(original, flow)
        for step in repair(op, flow) if repair is not None else [op]:
            _visit(step, flow, source, keep, read)
    return flow


def _renamed(op: Op, flow: Flow) -> Op:
    for name in op.reads:
        if name not in flow.infos and name not in flow.alias:
            raise ModelError(
                f"it reads '{name}', which nothing makes",
                where=f"operator '{op.name}'",
                next_step="check the file with onnx.checker",
            )
    inputs = tuple(flow.alias.get(name, name) for name in op.inputs)
    return op if inputs == op.inputs else replace(op, inputs=inputs)


def _visit(op: Op, flow: Flow, source: Source, keep: frozenset[str], read: frozenset[str]) -> None:
    if _does_nothing(op, flow, read) and op.outputs[0] not in keep:
        flow.alias[op.outputs[0]] = op.inputs[0]
        return
    if not op.domain and len(op.writes) == 1 and _fold(op, flow):
        return
    flow.ops.append(op)
    try:
        found = infer_op(op, flow.types, flow.constants, source.opsets)
    except ShapeConflict as conflict:
        if source.strict:
            raise ModelError(
                f"the shapes it gets do not fit: {conflict}",
                where=f"operator '{op.name}' ({op.op_type})",
                expected="shapes that the model can work with",
                next_step="check --input-shape and --batch",
            ) from None
        flow.failed[op.name] = str(conflict)
        found = {}
    for name in op.writes:
        flow.add_type(name, found.get(name) or source.hints.get(name) or onnx.TypeProto())


def _does_nothing(op: Op, flow: Flow, read: frozenset[str]) -> bool:
    if op.domain or not op.inputs or not op.inputs[0] or not op.outputs[0]:
        return False
    if flow.infos[op.inputs[0]].kind != "tensor" or flow.infos[op.inputs[0]].dtype == UNKNOWN_DTYPE:
        return False
    if op.op_type == "Identity":
        return True
    if op.op_type != "Dropout" or any(name in read for name in op.writes[1:]):
        return False
    if op.version < 7:
        return bool(op.attr("is_test", 0))
    if len(op.inputs) > 2 and op.inputs[2]:
        mode = flow.constants.get(op.inputs[2])
        return mode is not None and not bool(mode.any())
    return True


def _fold(op: Op, flow: Flow) -> bool:
    """Replaces the operator by a constant where its value is known."""
    name = op.writes[0]
    first = flow.infos.get(op.inputs[0]) if op.inputs else None
    if op.op_type == "ConstantOfShape" and op.inputs[0] in flow.constants:
        value = op.attr("value", np.zeros(1, np.float32))
        shape = tuple(int(size) for size in flow.constants[op.inputs[0]].reshape(-1))
        dtype = array_dtype_name(value)
        flow.add_weight(name, weight_from_fill(value.reshape(-1)[0], dtype, shape, name))
        return True
    if op.op_type in ("Shape", "Size") and first is not None and first.static:
        dims = np.asarray(first.dims, np.int64)
        if op.op_type == "Size":
            folded: Array | None = np.asarray(dims.prod(dtype=np.int64))
        else:
            folded = dims[slice(op.attr("start", 0), op.attr("end"))]
    else:
        if any(known and known not in flow.constants for known in op.inputs) or op.captures:
            return False
        folded = fold(op, [flow.constants[n] if n else None for n in op.inputs], SMALL_BYTES)
    if folded is None:
        return False
    flow.add_weight(name, weight_from_array(folded, name))
    return True


def live(ops: list[Op] | tuple[Op, ...], outputs: tuple[str, ...]) -> list[Op]:
    """The operators that some output needs, in the same order."""
    needed = set(outputs)
    kept: list[Op] = []
    for op in reversed(ops):
        if any(name in needed for name in op.writes):
            needed.update(op.reads)
            kept.append(op)
    kept.reverse()
    return kept


def _without_symbols(proto: onnx.TypeProto) -> onnx.TypeProto:
    """Names of dimensions are dropped: two operators may use one name for different sizes."""
    clean = onnx.TypeProto()
    clean.CopyFrom(proto)
    if clean.WhichOneof("value") == "tensor_type":
        for dim in clean.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    return clean
