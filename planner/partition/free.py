"""What costs nothing: operators that compute on constants only.

They are not tasks. Each segment that reads one of their values gets a copy of them, and ONNX Runtime folds them
when the session is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planner.graph.op_graph import Op, OpGraph

RANDOM_OPS: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
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


def with_free_ops(graph: OpGraph, ops: Iterable[Op], free: frozenset[str]) -> tuple[Op, ...]:
    """The operators and all free ones that they need, free ones first, in the graph's order."""
    chosen = tuple(ops)
    producers = {name: op for op in graph.ops if op.name in free for name in op.writes}
    needed: set[str] = set()
    stack = [name for op in chosen for name in op.reads]
    while stack:
        op_or_none = producers.get(stack.pop())
        if op_or_none is not None and op_or_none.name not in needed:
            needed.add(op_or_none.name)
            stack.extend(op_or_none.reads)
    return (*(op for op in graph.ops if op.name in needed), *chosen)
