"""Runs an operator whole and in shards, and compares.

``check_split`` is the one semantics test for all split rules: every axis that a rule offers is cut into random uneven
shards, each shard runs in ONNX Runtime as a model of its own on exactly the regions that the rule names, and what
comes out is put together by the rule's own description.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from planner.graph.op_graph import Array, Attribute, Op, OpContext, TensorInfo
from planner.split.table import shard_op, split_axes
from planner.split.types import Absent, AxisUse, InputPart, Literal, Partial, Region, Shard, SplitAxis, Whole

Mutate = Callable[[Shard], Shard]

_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Case:
    """One operator with values for its inputs; ``outputs``: which outputs are present."""

    ctx: OpContext
    values: tuple[Array | None, ...]
    expected: tuple[Array | None, ...]


def attributes_of(values: Mapping[str, Any] | None) -> dict[str, Attribute]:
    """Attributes from plain Python values; None is left out."""
    made = {}
    for name, value in (values or {}).items():
        if value is None:
            continue
        if isinstance(value, np.ndarray):
            made[name] = Attribute("tensor", value)
        elif isinstance(value, (list, tuple)):
            kind = {int: "ints", float: "floats", str: "strings"}[type(value[0])] if value else "ints"
            made[name] = Attribute(kind, tuple(value))
        else:
            made[name] = Attribute({bool: "int", int: "int", float: "float", str: "string"}[type(value)], value)
    return made


def run_op(
    op: Op, values: Sequence[Array | None], present: Sequence[bool], constants: Collection[int]
) -> list[Array | None]:
    """Run one operator as a model of its own, without optimisation, on one thread."""
    inputs = ["" if v is None else f"i{k}" for k, v in enumerate(values)]
    outputs = [f"o{k}" if there else "" for k, there in enumerate(present)]
    node = helper.make_node(op.op_type, inputs, outputs, name="op", domain=op.domain)
    for name, attribute in op.attributes.items():
        value = numpy_helper.from_array(attribute.value) if attribute.type == "tensor" else attribute.value
        kind = {"int": 2, "ints": 7, "float": 1, "floats": 6, "string": 3, "strings": 8, "tensor": 4}[attribute.type]
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    fed = [k for k, v in enumerate(values) if v is not None and k not in constants]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(values[k].dtype), values[k].shape)  # type: ignore[union-attr]
            for k in fed
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [
            numpy_helper.from_array(np.asarray(v, order="C"), f"i{k}")
            for k, v in enumerate(values)
            if v is not None and k in constants
        ],
    )
    opsets = [helper.make_opsetid(op.domain, op.version)]
    if op.domain:
        opsets.append(helper.make_opsetid("", 18))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = iter(session.run(None, {f"i{k}": np.asarray(values[k], order="C") for k in fed}))
    return [next(results) if name else None for name in outputs]


def make_case(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
    domain: str = "",
    outputs: int | Sequence[bool] = 1,
    constants: Collection[int] = (),
    weights: Collection[int] = (),
) -> Case:
    """Run the operator whole and describe it; see :func:`check_split` for the arguments."""
    present = (True,) * outputs if isinstance(outputs, int) else tuple(outputs)
    op = Op(
        "op",
        domain,
        op_type,
        opset,
        tuple("" if v is None else f"i{k}" for k, v in enumerate(inputs)),
        tuple(f"o{k}" if there else "" for k, there in enumerate(present)),
        attributes_of(attributes),
    )
    return _case(op, tuple(inputs), present, frozenset(constants), frozenset(weights))


def _case(
    op: Op,
    values: tuple[Array | None, ...],
    present: Sequence[bool],
    constants: frozenset[int],
    weights: frozenset[int],
) -> Case:
    results = run_op(op, values, present, constants | weights)
    ctx = OpContext(
        op,
        tuple(None if v is None else TensorInfo(f"i{k}", str(v.dtype), v.shape) for k, v in enumerate(values)),
        tuple(None if v is None else TensorInfo(f"o{k}", str(v.dtype), v.shape) for k, v in enumerate(results)),
        tuple(v if k in constants else None for k, v in enumerate(values)),
        tuple(k in constants or k in weights for k in range(len(values))),
    )
    return Case(ctx, values, tuple(results))


def check_split(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
    domain: str = "",
    outputs: int | Sequence[bool] = 1,
    constants: Collection[int] = (),
    weights: Collection[int] = (),
    expect: Collection[str] = (),
    exactly: Collection[str] | None = None,
    seed: int = 0,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    twice: bool = True,
) -> tuple[str, ...]:
    """Check every axis that the table offers for one operator.

    Args:
        op_type: operator type.
        inputs: values, None for an absent one.
        attributes: plain Python values; None is left out.
        opset: version of ``domain``.
        domain: ``""`` or ``com.microsoft``.
        outputs: number of outputs, or which are present.
        constants: inputs that are small constants, their values known to the rule.
        weights: inputs that are weights, their values unknown to the rule.
        expect: axes that must be offered, if they have two or more units.
        exactly: all the axes that must be offered, and no other.
        seed: of the shard sizes.
        rtol: relative tolerance of floating-point outputs.
        atol: absolute tolerance as a part of the largest magnitude.
        twice: also split a shard of one axis, taken at random, along every axis again.

    Returns:
        Names of the axes offered.
    """
    case = make_case(
        op_type,
        inputs,
        attributes,
        opset=opset,
        domain=domain,
        outputs=outputs,
        constants=constants,
        weights=weights,
    )
    rng = np.random.default_rng(seed)
    axes = split_axes(case.ctx)
    names = tuple(axis.name for axis in axes)
    assert len(set(names)) == len(names), f"axis names repeat: {names}"
    missing = [name for name in expect if name not in names]
    assert not missing, f"{op_type} must be splittable along {missing}, offers {names}"
    if exactly is not None:
        assert sorted(names) == sorted(exactly), f"{op_type} offers {names}, expected {tuple(exactly)}"
    again = int(rng.integers(len(axes))) if axes and twice else -1
    for number, axis in enumerate(axes):
        ranges = random_ranges(axis.extent, rng)
        check_axis(case, axis, ranges, rtol=rtol, atol=atol)
        if number == again:
            shard = shard_case(case, shard_op(case.ctx, axis.name, *ranges[-1]))
            for second in split_axes(shard.ctx):
                check_axis(shard, second, random_ranges(second.extent, rng), rtol=rtol, atol=atol)
    return names


def random_ranges(extent: int, rng: np.random.Generator, most: int = 3) -> tuple[tuple[int, int], ...]:
    """``extent`` units cut into two or more uneven shards."""
    count = int(rng.integers(2, min(most, extent) + 1))
    cuts = sorted(rng.choice(np.arange(1, extent), size=count - 1, replace=False).tolist())
    return tuple(zip([0, *cuts], [*cuts, extent], strict=True))


def check_axis(
    case: Case,
    axis: SplitAxis,
    ranges: Sequence[tuple[int, int]],
    *,
    mutate: Sequence[Mutate] = (),
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Run all shards of one axis and compare with the unsplit operator.

    Raises:
        AssertionError: if a region is wrong or the outputs differ.
    """
    shards = [shard_op(case.ctx, axis.name, start, stop) for start, stop in ranges]
    for shard, (start, stop) in zip(shards, ranges, strict=True):
        _check_regions(case, axis, shard, start, stop)
    if mutate:
        shards = [change(shard) for change, shard in zip(mutate, shards, strict=True)]
    made = recombine(case, shards)
    for expected, got in zip(case.expected, made, strict=True):
        if expected is not None:
            assert_close(got, expected, rtol, atol, f"{case.ctx.op.op_type} along {axis.name} in {list(ranges)}")


def assert_close(got: Array | None, expected: Array, rtol: float, atol: float, where: str) -> None:
    """Floating-point values within tolerance, all others equal."""
    assert got is not None, f"{where}: output missing"
    assert got.dtype == expected.dtype, where
    if np.issubdtype(expected.dtype, np.floating):
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max()) if finite.size else 1.0
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol * scale, err_msg=where)
    else:
        np.testing.assert_array_equal(got, expected, err_msg=where)


def recombine(case: Case, shards: Sequence[Shard]) -> list[Array | None]:
    """Run shards and put their outputs together as they say.

    Raises:
        AssertionError: if outputs are not covered exactly once.
    """
    made: list[Array | None] = [None if e is None else np.zeros_like(e) for e in case.expected]
    covered = [None if e is None else np.zeros(e.shape, np.int64) for e in case.expected]
    for number, shard in enumerate(shards):
        results = run_shard(case, shard)
        for k, (part, result) in enumerate(zip(shard.outputs, results, strict=True)):
            whole, count = made[k], covered[k]
            if whole is None or count is None or result is None:
                assert isinstance(part, Absent) == (result is None)
                continue
            if isinstance(part, Region):
                at = _slices(whole.ndim, part.axis, part.ranges[0])
                assert result.shape == whole[at].shape, f"shard makes {result.shape}, region is {whole[at].shape}"
                whole[at] = result
                count[at] += 1
            elif isinstance(part, Partial):
                assert result.shape == whole.shape, f"partial value is {result.shape}, output {whole.shape}"
                made[k] = result if number == 0 else _COMBINE[part.combine](whole, result)
                count[...] = 1
            else:
                assert result.shape == whole.shape and (
                    number == 0 or np.array_equal(whole, result, equal_nan=result.dtype.kind == "f")
                )
                made[k] = result
                count[...] = 1
    for count in covered:
        assert count is None or (count == 1).all(), "outputs are not covered exactly once"
    return made


def run_shard(case: Case, shard: Shard) -> list[Array | None]:
    """Outputs of one shard, None where absent."""
    op, values, present, constants = _shard_model(case, shard)
    return run_op(op, values, present, constants)


def shard_case(case: Case, shard: Shard) -> Case:
    """The shard as an operator of its own, to be split again."""
    op, values, present, _ = _shard_model(case, shard)
    known = frozenset(
        k for k, part in enumerate(shard.inputs) if isinstance(part, Literal) or case.ctx.constants[k] is not None
    )
    return _case(op, tuple(values), present, known, frozenset(k for k, w in enumerate(case.ctx.weights) if w))


def _shard_model(case: Case, shard: Shard) -> tuple[Op, list[Array | None], list[bool], frozenset[int]]:
    values = [_cut(value, part) for value, part in zip(case.values, shard.inputs, strict=False)]
    present = [not isinstance(part, Absent) for part in shard.outputs]
    op = replace(
        case.ctx.op,
        op_type=shard.op_type,
        domain=shard.domain,
        attributes=dict(shard.attributes),
        inputs=tuple("" if v is None else f"i{k}" for k, v in enumerate(values)),
        outputs=tuple(f"o{k}" if there else "" for k, there in enumerate(present)),
    )
    literal = {k for k, part in enumerate(shard.inputs) if isinstance(part, Literal)}
    return op, values, present, frozenset(literal | {k for k, w in enumerate(case.ctx.weights) if w})


def _cut(value: Array | None, part: InputPart) -> Array | None:
    if isinstance(part, Absent):
        return None
    if isinstance(part, Literal):
        return part.value
    assert value is not None, "a shard reads an absent input"
    if isinstance(part, Whole):
        return value
    return np.concatenate([value[_slices(value.ndim, part.axis, r)] for r in part.ranges], axis=part.axis)


def _slices(rank: int, axis: int, bounds: tuple[int, int]) -> tuple[slice, ...]:
    return tuple(slice(*bounds) if k == axis else slice(None) for k in range(rank))


def _check_regions(case: Case, axis: SplitAxis, shard: Shard, start: int, stop: int) -> None:
    assert len(shard.outputs) == len(case.ctx.outputs)
    for info, use, part in _parts(case, axis, shard):
        if isinstance(part, Region):
            assert info is not None and info.shape is not None and use is not None, "a region without use"
            assert part.axis == use.axis and part.axis < len(info.shape)
            for first, last in part.ranges:
                size = info.shape[part.axis]
                assert size is not None and 0 <= first < last <= size, f"{part} is outside {info.shape}"
            if use.exact:
                first, last = int(start * use.scale), int(stop * use.scale)
                assert part.ranges == ((first, last),), f"{part} is not at {use}"
        else:
            assert use is None, f"{part} although the axis shows at {use}"
        if isinstance(part, Absent) and axis.combine == "concat":
            assert info is None, "an input is dropped"
    for k, part in enumerate(shard.outputs):
        if isinstance(part, Region):
            assert axis.outputs[k] is not None and axis.outputs[k].exact and len(part.ranges) == 1  # type: ignore[union-attr]
        if isinstance(part, Partial):
            assert part.combine == axis.combine


def _parts(case: Case, axis: SplitAxis, shard: Shard) -> Iterator[tuple[TensorInfo | None, AxisUse | None, Any]]:
    assert len(axis.inputs) == len(case.ctx.inputs) and len(axis.outputs) == len(case.ctx.outputs)
    yield from zip(case.ctx.inputs, axis.inputs, shard.inputs, strict=False)
    yield from zip(case.ctx.outputs, axis.outputs, shard.outputs, strict=True)


def floats(shape: Sequence[int], seed: int = 0, dtype: str = "float32") -> Array:
    """Random values, normally distributed."""
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype)


def ints(shape: Sequence[int], low: int, high: int, seed: int = 0, dtype: str = "int64") -> Array:
    """Random integers in ``[low, high)``."""
    return np.random.default_rng(seed).integers(low, high, tuple(shape)).astype(dtype)
