"""One run of a whole model for the sizes that depend on data: ``model.options.RecordedRun``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnxruntime as ort

from planner.graph.op_graph import Array
from planner.model.types import Weight
from planner.runtime.session import cpu_options, stub_folder, use_stubs
from planner.runtime.values import FOREIGN_TYPES, ORT_ERRORS, dtype_of, wrap

_REASON_CHARS = 160


class RecordedRunner:
    """Runs a model once on the CPU, on one thread, so that every machine sees the same sizes.

    Args:
        note: told in one line what could not be measured; sizes then stay unknown.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def __call__(
        self, model: bytes, weights: Mapping[str, Weight], feeds: Mapping[str, Array], names: Sequence[str]
    ) -> Mapping[str, tuple[int, ...]]:
        """Sizes of the outputs ``names``; those that are no tensors, or of a run that fails, are left out."""
        try:
            values = self._run(model, weights, feeds, names)
        except ORT_ERRORS as problem:
            reason = " ".join(str(problem).split())[:_REASON_CHARS]
            self._note(
                f"{len(names)} values have sizes that depend on data, and a run to see them failed: they count as 1 "
                f"({reason}); give valid inputs with --inputs"
            )
            return {}
        return {name: tuple(value.shape()) for name, value in zip(names, values, strict=True) if value.is_tensor()}

    def _run(
        self, model: bytes, weights: Mapping[str, Weight], feeds: Mapping[str, Array], names: Sequence[str]
    ) -> list[ort.OrtValue]:
        options = cpu_options((0,), spin=False)
        held = {name: wrap(weight.load()) for name, weight in weights.items()}
        with stub_folder() as stubs:
            use_stubs(options, stubs)
            options.add_external_initializers(list(held), list(held.values()))
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        values = {name: _value(array) for name, array in feeds.items()}
        return list(session.run_with_ort_values(list(names), values))


def _value(array: Array) -> ort.OrtValue:
    if dtype_of(array) == "string":
        return ort.OrtValue.ortvalue_from_numpy(array.astype(object))
    return wrap(array) if dtype_of(array) in FOREIGN_TYPES else ort.OrtValue.ortvalue_from_numpy(array)
