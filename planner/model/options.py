"""What a caller says about a model before it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.graph.op_graph import Array
from planner.model.types import Weight

RecordedRun = Callable[[bytes, Mapping[str, Weight], Mapping[str, Array], Sequence[str]], Mapping[str, tuple[int, ...]]]
"""``run(model, weights, feeds, names)`` -> sizes of the outputs ``names``.

``model`` and ``weights`` are what :func:`planner.model.serialize.build_model` returns. Implemented above this layer,
because it needs ONNX Runtime. Values it cannot measure are left out of the answer.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LoadOptions:
    """Options of :func:`planner.model.load.load_model`.

    Attributes:
        input_shapes: whole shapes of inputs by name.
        batch: batch size; also changes one that the exporter baked into the file.
        batch_axes: dimension of an input that is the batch, where it is not 0; -1 for an input without one.
        feeds: arrays by input name: they give shapes, and make initializers that are also inputs fed ones.
        recorded_run: measures the sizes that inference cannot know.
        allow_outside: whether external data may lie outside the model's folder.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    batch: int | None = None
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    feeds: Mapping[str, Array] | None = None
    recorded_run: RecordedRun | None = None
    allow_outside: bool = False
