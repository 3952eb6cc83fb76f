"""How far two outputs are apart, in units of what verification tolerates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from tests.models.interpreter import Array


def run_model(
    model: onnx.ModelProto | Path | str, feeds: Mapping[str, Array], *, optimised: bool = True
) -> list[Array]:
    """All outputs of a model on one CPU core."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def tolerances_apart(got: Array, expected: Array) -> float:
    """Largest difference divided by the tolerance: 1e-4 of the largest magnitude plus 1e-3 of the value."""
    expected = expected.astype(np.float64)
    allowed = 1e-4 * np.abs(expected).max(initial=0.0) + 1e-3 * np.abs(expected)
    return float((np.abs(got.astype(np.float64) - expected) / np.maximum(allowed, 1e-300)).max(initial=0.0))
