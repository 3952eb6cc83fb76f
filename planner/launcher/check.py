"""Checks a planned session against the unsplit model, on outputs or on every value that crosses segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from planner.errors import ExecutionError, UsageError
from planner.graph.op_graph import Array, Op, OpGraph
from planner.launcher.planned_session import PlannedSession
from planner.launcher.unsplit import UnsplitSession, rebuilt
from planner.launcher.verify import NEAR_ONE, Comparison, IndexOf, compare_outputs
from planner.model.types import LoadedModel
from planner.partition.free import RANDOM_OPS, draws_inside
from planner.partition.segments import load_plan_model
from planner.runtime.values import unwrap

_POINTERS: Final = {"TopK": 1, "ArgMax": 0, "ArgMin": 0}


class Checker:
    """The unsplit model beside a planned session.

    It runs from the model file itself, so that it knows nothing of what fddps does to a model. Where the file will not
    do (another batch size than the one in it, inner values) the model is built again from what was loaded.

    Args:
        session: with a plan.
        deep: compare every value that crosses segments and has the same name in the unsplit model.

    Raises:
        UsageError: if the session has no plan.
        ExecutionError: if ONNX Runtime refuses the unsplit model, or the plan's first device is not there.
    """

    def __init__(self, session: PlannedSession, *, deep: bool = False) -> None:
        if session.plan is None or session.model_path is None:
            raise UsageError("nothing to compare with", expected="a session opened from a plan")
        self._session = session
        self._plan = session.plan
        self._path = session.model_path
        self._device = session.reference_device()
        self._deep = deep
        self._loaded: LoadedModel | None = None
        self.warnings: tuple[str, ...] = ()
        self._outputs = [info.name for info in session.model.outputs]
        drawn = drawn_values(session.model.graph)
        if drawn:
            self._leave_out(drawn)
        quantising = ("QuantizeLinear", "DynamicQuantizeLinear")
        self._quantised = any(
            op.op_type in quantising or op.op_type.startswith("QLinear") for op in session.model.graph.ops
        )
        self.unsplit = self._reference(session.model_path)
        self._inner: UnsplitSession | None = None

    def compare(self, feeds: Mapping[str, Array]) -> Comparison:
        """Run both on one input and compare.

        Raises:
            ExecutionError: if one of them fails.
        """
        expected = self.unsplit.run(feeds, self._outputs)
        got = self._session.run(self._outputs, feeds)
        result = compare_outputs(self._outputs, got, expected, quantised=self._quantised)
        if not result.verified:
            result = self._again(feeds, got, expected, result)
        return result.merged(self._compare_inner(feeds)) if self._deep else result

    def _leave_out(self, drawn: Mapping[str, str]) -> None:
        """Random values differ from run to run, in the unsplit model as well."""
        skipped = list(dict.fromkeys(name for name in self._outputs if name in drawn))
        self._outputs = [name for name in self._outputs if name not in drawn]
        if not self._outputs:
            raise UsageError(
                "every output depends on random numbers, which differ in each run",
                where=f"operator '{drawn[skipped[0]]}'",
                next_step="run the plan without a verification",
            )
        if skipped:
            names = ", ".join(f"'{name}'" for name in skipped)
            self.warnings = (f"not compared, because they depend on random numbers: {names}",)

    def _reference(self, path: Path) -> UnsplitSession:
        """The model file, unless it is for other shapes than the plan or ONNX Runtime refuses it as it is."""
        why = "the file itself is for another batch size"
        try:
            session = UnsplitSession(path, self._device)
            if session.accepts({name: spec.shape for name, spec in self._plan.inputs.items()}):
                return session
            del session
        except ExecutionError as problem:
            why = f"ONNX Runtime refuses the file itself ({problem.what})"
        self.warnings += (f"compared with the model as fddps loads it: {why}",)
        return UnsplitSession(rebuilt(self._model()), self._device)

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            self._loaded = load_plan_model(self._plan, self._path, allow_outside=self._session.allow_outside)
        return self._loaded

    def _again(
        self, feeds: Mapping[str, Array], got: Sequence[Any], expected: Sequence[Any], result: Comparison
    ) -> Comparison:
        """Compare again, knowing what makes the outputs, and which are positions in which values."""
        graph = self._model().graph
        pointers, sigmoids = pointing_outputs(graph), sigmoid_values(graph)
        if not pointers:
            if sigmoids.isdisjoint(self._outputs):
                return result
            again = compare_outputs(self._outputs, got, expected, quantised=self._quantised, sigmoids=sigmoids)
            if again.verified:
                names = ", ".join(f"'{name}'" for name in self._outputs if name in sigmoids)
                said = f"{names}: equal only within ONNX Runtime's own rounding of a Sigmoid ({NEAR_ONE:.1e})"
                self.warnings = tuple(dict.fromkeys((*self.warnings, said)))
            return again
        sources = list(dict.fromkeys(source for source, _, _ in pointers.values()))
        made = [source for source in sources if source not in feeds]
        inner = UnsplitSession(rebuilt(self._model(), made), self._device)
        values = {**feeds, **dict(zip(made, inner.run(feeds, made), strict=True))}
        indices = {name: IndexOf(values[source], axis, keepdims) for name, (source, axis, keepdims) in pointers.items()}
        return compare_outputs(
            self._outputs, got, expected, quantised=self._quantised, indices=indices, sigmoids=sigmoids
        )

    def _compare_inner(self, feeds: Mapping[str, Array]) -> Comparison:
        graph = self._model().graph
        drawn = drawn_values(graph)
        made = {
            name for op in graph.ops for name in op.writes if graph.tensors[name].kind == "tensor" and name not in drawn
        }
        crossing = [info.name for segment in self._session.model.segments for info in segment.outputs]
        names = [name for name in dict.fromkeys(crossing) if name in made]
        if self._inner is None:
            self._inner = UnsplitSession(rebuilt(self._model(), names), self._device)
        values = self._session.step(feeds, traced=True).values
        got = [unwrap(values[name]) for name in names]
        expected = self._inner.run(feeds, names)
        return compare_outputs(names, got, expected, quantised=self._quantised, sigmoids=sigmoid_values(graph))


def sigmoid_values(graph: OpGraph) -> frozenset[str]:
    """Values that a Sigmoid makes: ONNX Runtime computes it around one half, so small ones have few digits."""
    return frozenset(name for op in graph.ops if (op.domain, op.op_type) == ("", "Sigmoid") for name in op.writes)


def drawn_values(graph: OpGraph) -> dict[str, str]:
    """Values that depend on random numbers: name -> the operator that draws them."""
    drawn: dict[str, str] = {}
    for op in graph.ops:
        source = op.name if _draws(op, graph) else next((drawn[name] for name in op.reads if name in drawn), None)
        if source is not None:
            drawn.update(dict.fromkeys(op.writes, source))
    return drawn


def _draws(op: Op, graph: OpGraph) -> bool:
    if any(attribute.type == "opaque" and draws_inside(attribute.value) for attribute in op.attributes.values()):
        return True
    if op.domain != "" or op.op_type not in RANDOM_OPS:
        return False
    if op.op_type != "Dropout":
        return True
    # Only in training mode, which is off unless an input turns it on.
    mode = op.inputs[2] if len(op.inputs) > 2 else ""
    return bool(mode) and (mode not in graph.constants or bool(graph.constants[mode].any()))


def pointing_outputs(graph: OpGraph) -> dict[str, tuple[str, int, bool]]:
    """Graph outputs that are positions: name -> (tensor that they point into, axis, whether the axis is kept).

    Where two values are equal, or nearly so, which of the two positions is given depends on rounding.
    """
    found: dict[str, tuple[str, int, bool]] = {}
    for op in graph.ops:
        place = _POINTERS.get(op.op_type) if op.domain == "" else None
        if place is None or place >= len(op.outputs) or op.outputs[place] not in graph.outputs:
            continue
        source = op.inputs[0]
        if source not in graph.weights:
            axis = op.attr("axis", -1 if op.op_type == "TopK" else 0)
            found[op.outputs[place]] = (source, int(axis), op.op_type == "TopK" or bool(op.attr("keepdims", 1)))
    return found
