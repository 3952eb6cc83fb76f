"""Shapes of the graph inputs: from the file, from the options, from the feeds."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from planner.errors import ModelError
from planner.model.convert import RawGraph
from planner.model.options import LoadOptions
from planner.model.protos import info_from_type


def input_types(
    raw: RawGraph, fed: tuple[str, ...], needed: Collection[str], options: LoadOptions
) -> dict[str, onnx.TypeProto]:
    """Types with every dimension known, for the inputs that something reads.

    Raises:
        ModelError: if a dimension stays unknown, or a shape that was given does not fit.
    """
    declared = {**raw.input_types, **{name: raw.overridable[name] for name in fed}}
    _check_names(declared, raw, options)
    return {name: _with_shape(name, proto, options) for name, proto in declared.items() if name in needed}


def _check_names(declared: dict[str, onnx.TypeProto], raw: RawGraph, options: LoadOptions) -> None:
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
    shape = given_shape(name, options)
    if shape is None:
        shape = info.shape
        axis = options.batch_axes.get(name, 0)
        if shape is not None and options.batch is not None and 0 <= axis < len(shape) and shape[axis] is None:
            shape = (*shape[:axis], options.batch, *shape[axis + 1 :])
    elif info.shape is not None:
        _check_fit(name, shape, info.shape)
    if shape is None or None in shape:
        known = (
            "x".join("?" if size is None else str(size) for size in shape) if shape is not None else "of unknown rank"
        )
        raise ModelError(
            f"input '{name}' has an unknown size: {known}",
            expected="a size for every dimension",
            next_step=f"give --input-shape {name}=..., or --batch N if only the batch is open",
        )
    fixed = onnx.TypeProto()
    fixed.tensor_type.elem_type = proto.tensor_type.elem_type
    fixed.tensor_type.shape.SetInParent()
    for size in shape:
        fixed.tensor_type.shape.dim.add().dim_value = size or 0
    return fixed


def given_shape(name: str, options: LoadOptions) -> tuple[int, ...] | None:
    """The whole shape of an input, if the caller gave it."""
    if name in options.input_shapes:
        return tuple(options.input_shapes[name])
    if options.feeds is not None and name in options.feeds:
        return tuple(int(size) for size in options.feeds[name].shape)
    return None


def _check_fit(name: str, shape: tuple[int, ...], declared: tuple[int | None, ...]) -> None:
    if len(shape) == len(declared) and all(want in (None, got) for got, want in zip(shape, declared, strict=True)):
        return
    raise ModelError(
        f"the shape {'x'.join(map(str, shape)) or 'of rank 0'} does not fit input '{name}'",
        expected="x".join("?" if size is None else str(size) for size in declared) or "rank 0",
        next_step=f"correct --input-shape {name}=... or the file of inputs",
    )
