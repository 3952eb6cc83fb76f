"""The unsplit model in one ONNX Runtime session: what a planned session is compared with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from planner.errors import ExecutionError
from planner.graph.op_graph import Array
from planner.model.serialize import build_model
from planner.model.types import LoadedModel, Weight
from planner.runtime.devices import LocalDevice
from planner.runtime.session import check_provider, cpu_options, execution_error, providers, stub_folder, use_stubs
from planner.runtime.values import ORT_ERRORS, element_type, numpy_dtype, unwrap, wrap

Source = str | Path | tuple[bytes, Mapping[str, Weight]]


class UnsplitSession:
    """One session on one device, with its calling thread pinned while it runs and the options of a segment's session.

    Args:
        source: the model file, so that it is independent of all that fddps does to a model; or a serialised model with
            its large weights (:func:`rebuilt`), where the file itself will not do.
        device: where to run it.

    Raises:
        ExecutionError: if ONNX Runtime refuses the model.
    """

    def __init__(self, source: Source, device: LocalDevice) -> None:
        self.device = device
        options = cpu_options(device.cores or (0,), spin=not device.shared)
        try:
            with stub_folder() as stubs:
                model: str | bytes
                if isinstance(source, tuple):
                    model, weights = source
                    values = {name: wrap(weight.load()) for name, weight in weights.items()}
                    use_stubs(options, stubs)
                    options.add_external_initializers(list(values), list(values.values()))
                else:
                    model = os.fspath(source)
                self._session = ort.InferenceSession(model, options, providers=providers(device), enable_fallback=0)
        except ORT_ERRORS as problem:
            raise execution_error(problem, "(the unsplit model)", device, "could not be created") from None
        check_provider(self._session, device, "the unsplit model")
        self._inputs = {arg.name: arg for arg in self._session.get_inputs()}
        # Initializers that are inputs as well: a plan may have been made for other values of them.
        self._overridable = tuple(arg.name for arg in self._session.get_overridable_initializers())
        # A model may list an output twice.
        self.outputs = tuple(dict.fromkeys(arg.name for arg in self._session.get_outputs()))
        values_ = [*self._inputs.values(), *self._session.get_outputs()]
        self._bindable = all(arg.type.startswith("tensor(") and arg.type != "tensor(string)" for arg in values_)

    def accepts(self, shapes: Mapping[str, Sequence[int | None]]) -> bool:
        """Whether its inputs may have these shapes: no size that is fixed in the model is another one here."""
        return all(
            len(arg.shape) == len(shapes[name])
            and all(not isinstance(own, int) or own == size for own, size in zip(arg.shape, shapes[name], strict=True))
            for name, arg in self._inputs.items()
            if name in shapes
        )

    def step(self, feeds: Mapping[str, Array]) -> list[Any]:
        """Run once and return what ONNX Runtime gives, one value an output, without copies.

        Inputs of the file that no operator reads are not part of a plan: they are fed with zeros here.

        Raises:
            ExecutionError: if the run fails.
        """
        complete = {name: feeds[name] if name in feeds else _zeros(arg) for name, arg in self._inputs.items()}
        complete.update({name: feeds[name] for name in self._overridable if name in feeds})
        try:
            with _pinned(self.device.cores[:1]):
                if not self._bindable:
                    return list(
                        self._session.run(list(self.outputs), {n: _plain(value) for n, value in complete.items()})
                    )
                return self._bound(complete)
        except ORT_ERRORS as problem:
            raise execution_error(problem, "(the unsplit model)", self.device, "failed") from None

    def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Any]:
        """Run once; numpy arrays of the outputs ``names``, in that order, or of all.

        Raises:
            ExecutionError: if the run fails, or there is no such output.
        """
        made = dict(zip(self.outputs, self.step(feeds), strict=True))
        for name in names or ():
            if name not in made:
                raise ExecutionError(f"the unsplit model has no output '{name}'", expected="the plan's model")
        return [unwrap(made[name]) for name in (self.outputs if names is None else names)]

    def _bound(self, feeds: Mapping[str, Array]) -> list[Any]:
        owners = {name: wrap(value) for name, value in feeds.items()}
        binding = self._session.io_binding()
        for name, owner in owners.items():
            binding.bind_ortvalue_input(name, owner)
        for name in self.outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        return list(binding.get_outputs())


def rebuilt(model: LoadedModel, extra_outputs: Iterable[str] = ()) -> tuple[bytes, dict[str, Weight]]:
    """A loaded model, unsplit, as something to run: for another batch size than the file's, or for inner values.

    Args:
        model: as it was planned.
        extra_outputs: inner values to make outputs, after the model's own.
    """
    graph = model.graph
    return build_model(
        graph.ops,
        tensors=graph.tensors,
        inputs=graph.inputs,
        outputs=tuple(dict.fromkeys((*graph.outputs, *extra_outputs))),
        weights=model.weights,
        opsets=model.opsets,
        ir_version=model.ir_version,
        functions=model.functions,
    )


@contextmanager
def _pinned(cores: tuple[int, ...]) -> Iterator[None]:
    """The calling thread on these cores for a while; anywhere if there are none."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _plain(value: Array) -> Array:
    return value.astype(object) if value.dtype.kind in "UT" else value


def _zeros(arg: Any) -> Array:
    shape = [size if isinstance(size, int) else 1 for size in arg.shape]
    dtype = element_type(arg.type)
    return np.full(shape, "", dtype=object) if dtype == "string" else np.zeros(shape, numpy_dtype(dtype))
