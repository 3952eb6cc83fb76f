"""Every hard case and every light model: loaded, written back, and run, it gives what it gave before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from planner.graph.op_graph import Array, OpGraph
from planner.model import LoadOptions, Weight, load_model
from tests.model.support import CASES, assert_close, rebuild_and_run

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = sorted(path.stem for path in CASES.glob("*.onnx")) if CASES.is_dir() else []


def read_npz(path: Path) -> dict[str, Array]:
    """Arrays of a file; text as object arrays, which is what ONNX Runtime takes."""
    with np.load(path) as archive:
        return {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in archive.items()}


def test_the_hard_cases_are_there() -> None:
    if not NAMES:
        pytest.skip("the folder ../shared/cases is not beside this checkout")
    assert len(NAMES) == 63


@pytest.mark.parametrize("name", NAMES)
def test_hard_case_gives_the_same_outputs(name: str) -> None:
    feeds = read_npz(CASES / f"{name}.npz")
    loaded = load_model(CASES / f"{name}.onnx", LoadOptions(feeds=feeds))
    assert_promises(loaded.graph, loaded.weights)
    found = rebuild_and_run(loaded, feeds)
    with np.load(CASES / f"{name}.expected.npz") as expected:
        assert set(expected) == set(found)
        for key in expected:
            info = loaded.graph.tensors[key]
            assert not info.static or info.dims == expected[key].shape, key
            assert_close(found[key], expected[key], key)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "wide_5000"])
def test_hard_case_with_every_weight_outside(name: str) -> None:
    feeds = read_npz(CASES / f"{name}.npz")
    loaded = load_model(CASES / f"{name}.onnx", LoadOptions(feeds=feeds))
    # 256 bytes: shapes and scalars stay inside, as ONNX Runtime's own inference needs them.
    found = rebuild_and_run(loaded, feeds, embed_limit_bytes=256)
    with np.load(CASES / f"{name}.expected.npz") as expected:
        for key in expected:
            assert_close(found[key], expected[key], key)


def assert_promises(graph: OpGraph, weights: Mapping[str, Weight]) -> None:
    """What :class:`OpGraph` promises to the layers above."""
    made = {*graph.inputs, *graph.weights}
    for op in graph.ops:
        assert all(read in made for read in op.reads), op.name
        made.update(op.writes)
    assert set(graph.outputs) <= made
    assert len({op.name for op in graph.ops}) == len(graph.ops)
    assert set(weights) == graph.weights
    assert all(graph.tensors[name].name == name for name in made)


@pytest.mark.parametrize(
    "name",
    [
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    ],
)
def test_light_model_gives_its_expected_output(name: str) -> None:
    loaded = load_model(LIGHT / f"light_{name}.onnx")
    graph = loaded.graph
    assert len(graph.inputs) == 1
    assert all(info.static for info in graph.tensors.values())
    x = np.random.default_rng(0).random(graph.tensors[graph.inputs[0]].dims, dtype=np.float32)
    expected = numpy_helper.to_array(onnx.load_tensor(LIGHT / f"light_{name}_output_0.pb"))
    found = rebuild_and_run(loaded, {graph.inputs[0]: x})
    np.testing.assert_allclose(found[graph.outputs[0]], expected, rtol=1e-4, atol=1e-6)


def test_weights_made_by_operators_become_weights() -> None:
    loaded = load_model(LIGHT / "light_vgg19.onnx")
    assert not any(op.op_type in ("ConstantOfShape", "Constant") for op in loaded.graph.ops)
    assert sum(w.info.nbytes for w in loaded.weights.values()) > 500_000_000
    assert all(w.fill is not None for w in loaded.weights.values() if w.info.nbytes > 65536)
