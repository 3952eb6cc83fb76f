"""What costs nothing: operators that compute on constants only.

They are not tasks. Each segment that reads one of their values gets a copy of them, and ONNX Runtime folds them
when the session is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from planner.graph.op_graph import Op, OpGraph

RANDOM_OPS: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)


def draws_inside(attribute: Any) -> bool:
    """Whether a body of control flow, as the loader carries it along, draws random numbers.

    Args:
        attribute: the loader's own object of an opaque attribute.
    """
    if attribute.type.name not in ("GRAPH", "GRAPHS"):
        return False
    bodies = attribute.value if attribute.type.name == "GRAPHS" else (attribute.value,)
    return any(
        (node.domain in ("", "ai.onnx") and node.op_type in RANDOM_OPS - {"Dropout"})
        or any(draws_inside(inner) for inner in node.attributes.values())
        for body in bodies
        for node in body
    )


def free_ops(graph: OpGraph) -> frozenset[str]:
    """Names of the operators that read nothing but weights and other free operators' values.

    Random operators and control flow are never free, nor is an operator that makes a graph output or
    anything but a tensor.
    """
    known = set(graph.weights)
    outputs = set(graph.outputs)
    free: list[str] = []
    for op in graph.ops:
        if op.op_type in RANDOM_OPS or any(a.type == "opaque" for a in op.attributes.values()):
            continue
        if not all(name in known for name in op.reads):
            continue
        if any(name in outputs or graph.tensors[name].kind != "tensor" for name in op.writes):
            continue
        known.update(op.writes)
        free.append(op.name)
    return frozenset(free)


def task_ops(graph: OpGraph) -> tuple[Op, ...]:
    """The operators that are tasks, in the graph's order."""
    free = free_ops(graph)
    return tuple(op for op in graph.ops if op.name not in free)


class FreeIndex:
    """Free operators of a graph by what they make, for adding the needed ones to a segment."""

    def __init__(self, graph: OpGraph) -> None:
        self.free = free_ops(graph)
        self._position = {op.name: number for number, op in enumerate(graph.ops)}
        self._maker = {name: op for op in graph.ops if op.name in self.free for name in op.writes}

    def with_needed(self, ops: Iterable[Op]) -> tuple[Op, ...]:
        """The operators and all free ones that they need, free ones first, in the graph's order."""
        chosen = tuple(ops)
        needed: dict[str, Op] = {}
        stack = [name for op in chosen for name in op.reads]
        while stack:
            maker = self._maker.get(stack.pop())
            if maker is not None and maker.name not in needed:
                needed[maker.name] = maker
                stack.extend(maker.reads)
        return (*sorted(needed.values(), key=lambda op: self._position[op.name]), *chosen)
