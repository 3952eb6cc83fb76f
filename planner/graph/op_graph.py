"""The ONNX graph as fddps works on it: names, shapes and attributes, no protobuf and no weights.

``model/`` makes an :class:`OpGraph` from a file, ``split/`` reads its operators, ``partition/``
rewrites it (a split graph is again an ``OpGraph``) and turns pieces of it back into ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy.typing as npt

from planner.units import tensor_nbytes

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Type and shape of one value.

    Attributes:
        name: value name, unique in its graph.
        dtype: numpy-style element type (``float32``, ``bfloat16``, ``string``, ...).
        shape: one size a dimension; None for a dimension that depends on data; None if even the rank does.
        kind: ``tensor``, or ``sequence``, ``optional``, ``sparse``, ``map``: these never cross segments.
        observed: sizes seen in a recorded run where inference gave none (one a dimension, same rank as
            the run's value); used for costs only, never for a split.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    kind: str = "tensor"
    observed: tuple[int, ...] | None = None

    @property
    def static(self) -> bool:
        """Whether every dimension is known for certain."""
        return self.kind == "tensor" and self.shape is not None and None not in self.shape

    @property
    def dims(self) -> tuple[int, ...]:
        """Sizes for cost estimates: known, else observed, else 1."""
        if self.shape is None:
            return self.observed or ()
        seen = self.observed if self.observed and len(self.observed) == len(self.shape) else None
        return tuple(size if size is not None else (seen[i] if seen else 1) for i, size in enumerate(self.shape))

    @property
    def num_elements(self) -> int:
        """Elements by :attr:`dims`."""
        count = 1
        for size in self.dims:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes by :attr:`dims`."""
        return tensor_nbytes(self.dtype, self.num_elements)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an operator.

    Attributes:
        type: ``int``, ``float``, ``string``, ``ints``, ``floats``, ``strings``, ``tensor``, or ``opaque`` for
            what fddps only carries along (graphs, types, sparse tensors).
        value: int, float, str, tuple of these, numpy array, or (opaque) the loader's own object.
        digest: of an opaque value's content.
    """

    type: str
    value: Any
    digest: str = ""

    @staticmethod
    def ints(values: tuple[int, ...] | list[int]) -> Attribute:
        """An ``ints`` attribute."""
        return Attribute("ints", tuple(int(v) for v in values))

    @staticmethod
    def int(value: int) -> Attribute:
        """An ``int`` attribute."""
        return Attribute("int", value)


_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = {}


@dataclass(frozen=True, slots=True)
class Op:
    """One operator.

    Attributes:
        name: unique in its graph.
        domain: ``""`` for ONNX itself (``ai.onnx`` is normalised to it).
        op_type: e.g. ``Conv``.
        version: opset version of the domain that the model imports.
        inputs: value names, ``""`` for an absent optional one.
        outputs: value names, ``""`` for an unused optional one.
        attributes: by name.
        captures: values of the enclosing graph that bodies of control flow read, in first-use order.
    """

    name: str
    domain: str
    op_type: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: _NO_ATTRIBUTES)
    captures: tuple[str, ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        """Value of an attribute, or ``default``."""
        found = self.attributes.get(name)
        return default if found is None else found.value

    @property
    def reads(self) -> tuple[str, ...]:
        """All values the operator needs: present inputs, then captures; no duplicates."""
        return tuple(dict.fromkeys(name for name in (*self.inputs, *self.captures) if name))

    @property
    def writes(self) -> tuple[str, ...]:
        """Present outputs."""
        return tuple(name for name in self.outputs if name)


@dataclass(frozen=True, slots=True)
class OpContext:
    """An operator with what is known of its inputs and outputs: all that a split rule or a cost may look at.

    Attributes:
        op: the operator.
        inputs: one entry an input; None where absent.
        outputs: one entry an output; None where unused.
        constants: value of an input where it is a small known constant (a Reshape's shape, Slice's starts), else None.
        weights: whether an input is a weight (constant of any size): sliced offline, at no run-time cost.
        captured: what its bodies read from outside.
    """

    op: Op
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo | None, ...]
    constants: tuple[Array | None, ...]
    weights: tuple[bool, ...]
    captured: tuple[TensorInfo, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OpGraph:
    """A graph of operators in a topological order.

    Attributes:
        ops: operators; each reads only what is an input, a weight, or made by an earlier one.
        tensors: type and shape of every value, weights included.
        inputs: value names the caller feeds.
        outputs: value names the caller gets.
        weights: names of constant values (initializers, whatever their size).
        constants: small known values (weights of at most a few KB) by name.
    """

    ops: tuple[Op, ...]
    tensors: Mapping[str, TensorInfo]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: frozenset[str]
    constants: Mapping[str, Array]

    def context(self, op: Op) -> OpContext:
        """The operator with the types, shapes and constants of its inputs and outputs."""
        return OpContext(
            op,
            tuple(self.tensors[n] if n else None for n in op.inputs),
            tuple(self.tensors[n] if n else None for n in op.outputs),
            tuple(self.constants.get(n) if n else None for n in op.inputs),
            tuple(n in self.weights for n in op.inputs),
            tuple(self.tensors[n] for n in op.captures if n in self.tensors),
        )

    def producers(self) -> dict[str, Op]:
        """Value name -> the operator that makes it."""
        return {name: op for op in self.ops for name in op.writes}

    def consumers(self) -> dict[str, list[Op]]:
        """Value name -> operators that read it (captures included), in order."""
        readers: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in op.reads:
                readers.setdefault(name, []).append(op)
        return readers
