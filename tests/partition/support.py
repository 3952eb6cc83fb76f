"""Small models, split at random and run whole: what the tests of partitioning share."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from planner.graph.op_graph import OpGraph
from planner.model.load import load_model
from planner.model.serialize import build_model
from planner.model.types import LoadedModel
from planner.partition.split_graph import SplitGraph
from tests.models import random_inputs, run_model, save
from tests.models.small import SMALL_MODELS, GraphBuilder

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softplus")


def random_mix(seed: int) -> onnx.ModelProto:
    """Elementwise, reduction, layout and product operators in a random DAG; every value is 4x6x8 between steps."""
    draw = random.Random(seed)
    g = GraphBuilder(seed)
    values = ["x", g.node("Tanh", ["x"])]
    for _ in range(draw.randint(3, 7)):
        values.append(_step(g, draw, draw.choice(values[-4:]), draw.choice(values)))
    g.named("Add", [values[-1], values[-2]], "y")
    g.named("ReduceMean", [values[-1], g.constant([draw.randrange(3)])], "z", keepdims=1)
    return g.model({"x": (4, 6, 8)}, {"y": (4, 6, 8), "z": ("a", "b", "c")})


def _step(g: GraphBuilder, draw: random.Random, a: str, b: str) -> str:
    axis = draw.randrange(3)
    kind = draw.choice(("unary", "binary", "softmax", "reduce", "matmul", "transpose", "split", "norm", "reshape"))
    if kind == "unary":
        return g.node(draw.choice(UNARY), [a])
    if kind == "binary":
        return g.node(draw.choice(("Add", "Sub", "Mul")), [a, b])
    if kind == "softmax":
        return g.node("Softmax", [a], axis=axis)
    if kind == "reduce":
        reduced = g.node(draw.choice(("ReduceMax", "ReduceSum", "ReduceMean")), [a, g.constant([axis])], keepdims=1)
        return g.node("Sub", [b, reduced])
    if kind == "matmul":
        return g.linear(g.relu(g.linear(a, (8, 12))), (12, 8))
    if kind == "transpose":
        turned = g.node("Transpose", [a], perm=[2, 0, 1])
        return g.node("Transpose", [g.node("Exp", [g.node("Tanh", [turned])])], perm=[1, 2, 0])
    if kind == "split":
        half = (4, 6, 8)[axis] // 2
        first = g.node("Split", [a, g.constant([half, half])], outputs=2, axis=axis)
        return g.node("Concat", [f"{first}_1", first], axis=axis)
    if kind == "norm":
        return g.node("LayerNormalization", [a, g.vector(8, 1.0), g.vector(8)], axis=-1)
    flat = g.node("Reshape", [a, g.constant([4, 48])])
    return g.node("Reshape", [g.relu(flat), g.constant([4, 6, 8])])


def proto_of(name: str) -> onnx.ModelProto:
    """A small model by name, or ``mix-<seed>``."""
    return random_mix(int(name.removeprefix("mix-"))) if name.startswith("mix-") else SMALL_MODELS[name]()


@cache
def loaded(name: str) -> tuple[LoadedModel, dict[str, Any], tuple[Any, ...]]:
    """A small model, feeds for it, and what the unsplit file answers."""
    proto = proto_of(name)
    folder = Path(tempfile.mkdtemp(prefix="fddps-test-"))
    feeds = random_inputs(proto, 7)
    return load_model(save(proto, folder)), feeds, tuple(run_model(proto, feeds))


def run_split(model: LoadedModel, split: SplitGraph, feeds: Mapping[str, Any]) -> list[Any]:
    """The whole split graph as one model."""
    graph = split.graph
    data, large = build_model(
        graph.ops,
        tensors=graph.tensors,
        inputs=graph.inputs,
        outputs=graph.outputs,
        weights=split.weights,
        opsets=model.opsets,
        ir_version=model.ir_version,
        functions=model.functions,
        embed_limit_bytes=1 << 30,
    )
    assert not large
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def graph_problems(graph: OpGraph) -> list[str]:
    """Values made twice, names used twice, values read before they are made, shapes that are missing."""
    found = []
    names = [op.name for op in graph.ops]
    if len(set(names)) < len(names):
        found.append("two operators have one name")
    known = set(graph.inputs) | set(graph.weights)
    for op in graph.ops:
        found.extend(f"{op.name} reads {name} too early" for name in op.reads if name not in known)
        for name in op.writes:
            if name in known:
                found.append(f"{name} is made twice")
            if name not in graph.tensors:
                found.append(f"{name} has no type")
            known.add(name)
    found.extend(f"output {name} is not made" for name in graph.outputs if name not in known)
    return found


def count_types(graph: OpGraph) -> dict[str, int]:
    """How many operators there are of each type."""
    counts: dict[str, int] = {}
    for op in graph.ops:
        counts[op.op_type] = counts.get(op.op_type, 0) + 1
    return counts


def apart(got: Any, expected: Any) -> float:
    """Largest difference over what is allowed: 1e-5 of the largest magnitude plus 1e-4 of the value."""
    expected = np.asarray(expected, np.float64)
    allowed = 1e-5 * np.abs(expected).max(initial=0.0) + 1e-4 * np.abs(expected) + 1e-9
    return float((np.abs(np.asarray(got, np.float64) - expected) / allowed).max(initial=0.0))
