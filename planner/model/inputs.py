"""Shapes of the graph inputs: from the file, from the options, from the feeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx

from planner.errors import ModelError
from planner.graph.op_graph import TensorInfo
from planner.model.convert import RawGraph
from planner.model.options import LoadOptions
from planner.model.protos import info_from_type, type_from_info

Types = dict[str, onnx.TypeProto]


def input_types(raw: RawGraph, fed: tuple[str, ...], needed: Collection[str], options: LoadOptions) -> Types:
    """Types with every dimension known, for the inputs that something reads.

    Raises:
        ModelError: if a dimension stays unknown, or a shape that was given does not fit.
    """
    declared = {**raw.input_types, **{name: raw.overridable[name] for name in fed}}
    _check_names(declared, raw, options)
    return {name: _with_shape(name, proto, options) for name, proto in declared.items() if name in needed}


def with_implied_batch(raw: RawGraph, options: LoadOptions) -> LoadOptions:
    """Options with the batch size that a given shape implies: it differs from the file's in the batch axis only."""
    if options.batch is not None:
        return options
    for name, proto in raw.input_types.items():
        info, given = info_from_type(name, proto), given_shape(name, options)
        axis = options.batch_axes.get(name, 0)
        if given is None or info.shape is None or not 0 <= axis < len(given) == len(info.shape):
            continue
        moved = [i for i, size in enumerate(info.shape) if size is not None and size != given[i]]
        if moved == [axis]:
            return replace(options, batch=given[axis])
    return options


def reference_types(raw: RawGraph, types: Mapping[str, onnx.TypeProto], options: LoadOptions) -> Types | None:
    """The types at the batch size that is baked into the file.

    Returns:
        None if no batch size is baked in, or it is the one asked for.

    Raises:
        ModelError: if inputs disagree about the batch size.
    """
    if options.batch is None:
        return None
    baked: dict[str, int] = {}
    for name in types:
        size = _batch_dim(info_from_type(name, raw.input_types.get(name, types[name])), options)
        if size not in (None, -1, options.batch):
            baked[name] = size or 0
    if not baked:
        return None
    sizes = sorted(dict.fromkeys(baked.values()))
    if len(sizes) > 1:
        listed = ", ".join(f"'{name}' has {size}" for name, size in baked.items())
        raise ModelError(
            f"the inputs have different batch sizes: {listed}",
            expected="one batch size",
            next_step="name the batch dimension with --batch-axis NAME=AXIS, or NAME=-1 for an input without one",
        )
    return {name: _at_batch(name, proto, raw, sizes[0], options) for name, proto in types.items()}


def _at_batch(name: str, proto: onnx.TypeProto, raw: RawGraph, size: int, options: LoadOptions) -> onnx.TypeProto:
    declared = _batch_dim(info_from_type(name, raw.input_types.get(name, proto)), options)
    if declared in (-1, options.batch):
        return proto
    info = info_from_type(name, proto)
    axis = options.batch_axes.get(name, 0)
    return type_from_info(replace(info, shape=_set(info.shape or (), axis, size)))


def _batch_dim(info: TensorInfo, options: LoadOptions) -> int | None:
    """Size of the batch dimension; None if it is symbolic, -1 if the input has none."""
    axis = options.batch_axes.get(info.name, 0)
    if info.kind != "tensor" or info.shape is None or not 0 <= axis < len(info.shape):
        return -1
    return info.shape[axis]


def _set(shape: tuple[int | None, ...], axis: int, size: int) -> tuple[int | None, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _check_names(declared: Mapping[str, onnx.TypeProto], raw: RawGraph, options: LoadOptions) -> None:
    for name in (*options.input_shapes, *options.batch_axes):
        if name not in declared and name not in raw.overridable:
            raise ModelError(
                f"the model has no input '{name}'",
                expected=f"one of {', '.join(sorted(declared)) or 'none'}",
                next_step="correct the name in the option",
            )


def _with_shape(name: str, proto: onnx.TypeProto, options: LoadOptions) -> onnx.TypeProto:
    info = info_from_type(name, proto)
    if info.kind != "tensor":
        return proto
    given = given_shape(name, options)
    if given is not None and options.feeds is not None and name in options.feeds:
        _check_agree(name, given, options.feeds[name].shape)
    shape: tuple[int | None, ...] | None = given if given is not None else info.shape
    if options.batch is not None and _batch_dim(info, options) != -1:
        axis = options.batch_axes.get(name, 0)
        shape = _set(info.shape or (), axis, options.batch) if given is None else given
        info = replace(info, shape=_set(info.shape or (), axis, options.batch))
    if given is not None and info.shape is not None:
        _check_fit(name, given, info.shape)
    if shape is None or None in shape:
        sizes = "of unknown rank" if shape is None else "x".join("?" if size is None else str(size) for size in shape)
        raise ModelError(
            f"input '{name}' has an unknown size: {sizes}",
            expected="a size for every dimension",
            next_step=f"give --input-shape {name}=..., or --batch N if only the batch is open",
        )
    return type_from_info(replace(info, shape=shape))


def given_shape(name: str, options: LoadOptions) -> tuple[int, ...] | None:
    """The whole shape of an input, if the caller gave it."""
    if name in options.input_shapes:
        return tuple(options.input_shapes[name])
    if options.feeds is not None and name in options.feeds:
        return tuple(int(size) for size in options.feeds[name].shape)
    return None


def _check_agree(name: str, given: tuple[int, ...], fed: tuple[int, ...]) -> None:
    if given != tuple(fed):
        shapes = ["x".join(map(str, shape)) or "a scalar" for shape in (given, fed)]
        raise ModelError(
            f"--input-shape says {shapes[0]} for input '{name}', and the file of inputs has {shapes[1]}",
            expected="the same shape",
            next_step="leave --input-shape out",
        )


def _check_fit(name: str, shape: tuple[int, ...], declared: tuple[int | None, ...]) -> None:
    if len(shape) == len(declared) and all(want in (None, got) for got, want in zip(shape, declared, strict=True)):
        return
    raise ModelError(
        f"the shape {'x'.join(map(str, shape)) or 'of rank 0'} does not fit input '{name}'",
        expected="x".join("?" if size is None else str(size) for size in declared) or "rank 0",
        next_step=f"correct --input-shape {name}=... or the file of inputs",
    )
