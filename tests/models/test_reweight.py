"""Reweighted models tell inputs apart by far more than is tolerated, and do not blow up rounding errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.models import LIGHT_MODELS, light_path, nasnet_cell_like, random_inputs, reweight, run_model, save, tiny_cnn
from tests.models.outputs import tolerances_apart

# Half a gigabyte of weights each.
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")


def assert_tells_inputs_apart(path: Path) -> None:
    model = onnx.load(path)
    first, second = random_inputs(model, 11), random_inputs(model, 12)
    expected = run_model(path, first)
    assert all(np.isfinite(y).all() for y in expected)
    assert all(tolerances_apart(a, b) > 100 for a, b in zip(expected, run_model(path, second), strict=True))
    plain = run_model(path, first, optimised=False)
    assert all(tolerances_apart(a, b) < 0.3 for a, b in zip(plain, expected, strict=True))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LARGE else name for name in LIGHT_MODELS]
)
def test_light_models(name: str, light_model: Callable[[str], Path]) -> None:
    assert_tells_inputs_apart(light_model(name))


def test_a_light_model_as_shipped_does_not_depend_on_its_input() -> None:
    """The reason for all this: if the package ever ships real weights, reweighting is no longer needed."""
    path = light_path("squeezenet")
    model = onnx.load(path)
    first, second = (run_model(path, random_inputs(model, seed))[0] for seed in (11, 12))
    assert tolerances_apart(first, second) < 1


def test_the_graph_stays_the_same(light_model: Callable[[str], Path]) -> None:
    before, after = onnx.load(light_path("shufflenet")), onnx.load(light_model("shufflenet"))
    kept = [n for n in before.graph.node if n.op_type != "ConstantOfShape"]
    assert [n.SerializeToString() for n in after.graph.node] == [n.SerializeToString() for n in kept]
    assert [o.name for o in after.graph.output] == [o.name for o in before.graph.output]
    onnx.checker.check_model(after, full_check=True)


def test_same_seed_same_weights_other_seed_other_weights(tmp_path: Path) -> None:
    source = light_path("squeezenet")
    paths = [tmp_path / f"{k}.onnx" for k in range(3)]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        reweight(source, path, seed)
    contents = [path.read_bytes() for path in paths]
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_badly_scaled_weights_are_rescaled(tmp_path: Path, scale: float) -> None:
    """Exported networks: every weight random, but vanishing or exploding."""
    model = nasnet_cell_like()
    for weight in model.graph.initializer:
        if len(weight.dims) == 4:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(scale), weight.name))
    path = save(model, tmp_path)
    reweight(path, path, seed=0)
    assert_tells_inputs_apart(path)
    assert 0.1 < np.abs(run_model(path, random_inputs(model, 5))[0]).max() < 20


def test_nodes_in_any_order(tmp_path: Path) -> None:
    model = tiny_cnn()
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    path = save(model, tmp_path)
    reweight(path, path, seed=0)
    after = onnx.load(path)
    assert [n.name for n in after.graph.node] == [n.name for n in reversed(nodes)]
    assert_tells_inputs_apart(path)


def test_a_weight_used_twice_is_fitted_once(tmp_path: Path) -> None:
    """As in an unrolled recurrent network: fitting it again at its second use would undo the first."""
    weight = numpy_helper.from_array(np.full((16, 16), 0.02, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64, 16]) for name in ("x", "y", "h")]
    graph = helper.make_graph(nodes, "tied", values[:1], values[1:], [weight])
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)
    reweight(path, path, seed=0)
    y, h = run_model(path, random_inputs(onnx.load(path), 3))
    assert 0.8 < h.std() < 1.25
    assert_tells_inputs_apart(path)
    assert y.std() != pytest.approx(1.0, abs=1e-3)


def test_one_valued_weights_that_an_exporter_merged_are_told_apart(tmp_path: Path) -> None:
    """A scale of ones that is also the variance: fitted as one tensor, the normalisation would be wrong."""
    model = tiny_cnn()
    norm = next(n for n in model.graph.node if n.op_type == "BatchNormalization")
    for position, value in ((1, 1.0), (2, 0.0)):
        index = [i.name for i in model.graph.initializer].index(norm.input[position])
        old = model.graph.initializer[index]
        old.CopyFrom(numpy_helper.from_array(np.full(list(old.dims), value, np.float32), old.name))
    norm.input[4], norm.input[3] = norm.input[1], norm.input[2]
    path = save(model, tmp_path)
    reweight(path, path, seed=0)
    after = next(n for n in onnx.load(path).graph.node if n.op_type == "BatchNormalization")
    assert len(set(after.input)) == 5
    assert_tells_inputs_apart(path)
