"""Running a loaded model, and making small ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from planner.graph.op_graph import Array
from planner.model import LoadedModel, build_model

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases"


def rebuild_and_run(loaded: LoadedModel, feeds: Mapping[str, Array], embed_limit_bytes: int = 65536) -> dict[str, Any]:
    """The whole graph as one model again, run by ONNX Runtime."""
    graph = loaded.graph
    data, external = build_model(
        graph.ops,
        tensors=graph.tensors,
        inputs=graph.inputs,
        outputs=graph.outputs,
        weights=loaded.weights,
        opsets=loaded.opsets,
        ir_version=loaded.ir_version,
        functions=loaded.functions,
        embed_limit_bytes=embed_limit_bytes,
    )
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    values = [ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(w.load())) for w in external.values()]
    if external:
        options.add_external_initializers(list(external), values)
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found = session.run(list(graph.outputs), {name: feeds[name] for name in graph.inputs})
    return dict(zip(graph.outputs, found, strict=True))


def run_file(path: Path, feeds: Mapping[str, Array]) -> dict[str, Any]:
    """The file itself, run by ONNX Runtime."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def value(name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A typed value."""
    return helper.make_tensor_value_info(name, dtype, shape)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
) -> Path:
    """A model file."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def assert_close(found: Any, expected: Array, name: str) -> None:
    """Equal type, shape, and content within the tolerance that the cases name."""
    array = np.asarray(found)
    assert array.shape == expected.shape, name
    if expected.dtype.kind in "US":
        assert (array.astype(str) == expected).all(), name
        return
    assert array.dtype == expected.dtype, name
    step = {"float16": 2e-3, "int8": 1, "uint8": 1}.get(expected.dtype.name, 1e-4)
    if expected.dtype.kind in "iu" and expected.dtype.itemsize > 1:
        step = 0
    np.testing.assert_allclose(
        array.astype(np.float64), expected.astype(np.float64), atol=step, rtol=min(step, 1e-3), err_msg=name
    )
