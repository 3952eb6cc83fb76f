"""Names of fused groups in a profile: the same work has the same key in every model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from planner.cost.flops import is_view
from planner.graph.op_graph import Attribute, OpContext, TensorInfo

_MAX_KEY = 240
# Attributes that change no kernel's work.
_DEFAULTS = {"auto_pad": "NOTSET", "group": 1, "transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0, "ceil_mode": 0}
_IGNORED = frozenset(("training_mode", "momentum", "spatial", "storage_order", "consumed_inputs"))


def group_key(ops: Sequence[OpContext]) -> str:
    """Stable text key of operators that are executed as one fused group.

    Every operator that is no view gives its domain, type, attributes, and the types and shapes of the inputs that
    come from outside the group; the first one also its outputs, since a small constant may decide them (Slice,
    Pad). Names of nodes and values, opset versions and the content of weights play no part. Long keys end in a
    hash.

    Args:
        ops: in topological order, at least one.
    """
    working = [op for op in ops if not is_view(op)] or list(ops[:1])
    made = {name for op in ops for name in op.op.writes}
    first, *followers = working
    outputs = ",".join(_tensor(info, False) for info in first.outputs)
    text = "+".join([f"{_op_text(first, made)}->{outputs}", *(_op_text(op, made) for op in followers)])
    if len(text) <= _MAX_KEY:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    return f"{text[: _MAX_KEY - 32]}~{digest}"


def _op_text(op: OpContext, made: set[str]) -> str:
    node = op.op
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    attributes = ";".join(
        f"{key}={_attribute(node.attributes[key])}"
        for key in sorted(node.attributes)
        if key not in _IGNORED and not _is_default(key, node.attributes[key].value)
    )
    inputs = ",".join(
        "_" if info is not None and info.name in made else _tensor(info, is_weight)
        for info, is_weight in zip(op.inputs, op.weights, strict=True)
    )
    return f"{name}({inputs}){attributes and '{' + attributes + '}'}{_around_bodies(op)}"


def _around_bodies(op: OpContext) -> str:
    """What the work of an operator with bodies depends on beside its inputs' shapes; empty for others."""
    if not any(attribute.type == "opaque" for attribute in op.op.attributes.values()):
        return ""
    # How often a loop runs, and which branch is taken, where that is known.
    known = ",".join(str(c.item()) for c in op.constants if c is not None and c.size == 1)
    captured = ",".join(_tensor(info, False) for info in op.captured)
    return f"[{known}|{captured}]"


def _is_default(name: str, value: object) -> bool:
    """Whether an attribute may as well be left out, as some exporters do."""
    if name in ("strides", "dilations"):
        return isinstance(value, tuple) and all(item == 1 for item in value)
    if name in ("pads", "output_padding"):
        return isinstance(value, tuple) and not any(value)
    return name in _DEFAULTS and bool(value == _DEFAULTS[name])


def _attribute(attribute: Attribute) -> str:
    value = attribute.value
    if attribute.type == "opaque":
        return f"opaque:{attribute.digest}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        return "x".join(str(v) for v in value)
    return str(value)


def _tensor(info: TensorInfo | None, weight: bool) -> str:
    if info is None:
        return "-"
    return f"{'w' if weight else ''}{info.dtype}:{'x'.join(str(size) for size in info.dims)}"


def segment_digest(keys: Sequence[str]) -> str:
    """Identifies what a segment computes: its tasks' group keys, in order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:32]
