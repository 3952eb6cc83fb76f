"""Normalisations: only what the statistics do not run over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.split.harness import check_split, floats
from tests.split.strategies import shapes


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 6), (3, 4, 5), (2, 3, 4, 5), (2, 3, 2, 2, 3)])
def test_batch_normalization(opset: int, shape: tuple[int, ...]) -> None:
    vectors = [floats(shape[1:2], k) for k in range(3)]
    inputs = [floats(shape, 7), *vectors, np.abs(floats(shape[1:2], 4)) + 0.1]
    must = ["batch", "channel", *(f"spatial{i}" for i in range(len(shape) - 2))]
    check_split("BatchNormalization", inputs, {"epsilon": 0.01}, opset=opset, exactly=must, weights=(1, 2, 3, 4))


def test_training_batch_normalization_stays_whole() -> None:
    inputs = [floats((4, 3, 5, 5)), *(floats((3,), k) for k in range(3)), np.abs(floats((3,), 4)) + 0.1]
    check_split("BatchNormalization", inputs, {"training_mode": 1}, opset=15, outputs=3, exactly=())


def test_instance_normalization() -> None:
    inputs = [floats((2, 6, 5, 3)), floats((6,), 1), floats((6,), 2)]
    check_split("InstanceNormalization", inputs, exactly=("batch", "channel"), weights=(1, 2))


@pytest.mark.parametrize(("opset", "scales"), [(18, 3), (21, 6)])
def test_group_normalization(opset: int, scales: int) -> None:
    inputs = [floats((2, 6, 5, 3)), floats((scales,), 1), floats((scales,), 2)]
    must = ("batch", "channel")
    check_split("GroupNormalization", inputs, {"num_groups": 3}, opset=opset, exactly=must, weights=(1, 2))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    check_split("LRN", [floats((2, 5, 3, 4))], {"size": size, "alpha": 0.5}, exactly=("batch", "spatial0", "spatial1"))


@pytest.mark.parametrize(("axes", "must"), [(None, ("dim1",)), ([0, 2, 3], ("dim1",)), ([2, -1], ("dim0", "dim1"))])
def test_mean_variance_normalization(axes: list[int] | None, must: tuple[str, ...]) -> None:
    check_split("MeanVarianceNormalization", [floats((2, 3, 4, 5))], {"axes": axes}, opset=13, exactly=must)


@settings(max_examples=25)
@given(data=st.data())
def test_layer_normalization(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    first = (-1 if axis is None else axis) % len(shape)
    inputs = [floats(shape), floats(shape[first:], 1)]
    kind = data.draw(st.sampled_from(["LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"]))
    outputs = 1
    if kind == "LayerNormalization":
        inputs += [floats(shape[first:], 2)] * data.draw(st.integers(0, 1))
        outputs = data.draw(st.sampled_from([1, 3]))
    opset = {"LayerNormalization": 17, "RMSNormalization": 23, "SimplifiedLayerNormalization": 17}[kind]
    must = ["batch", "dim1", "dim2"][:first]
    weights = tuple(range(1, len(inputs)))
    check_split(kind, inputs, {"axis": axis}, opset=opset, outputs=outputs, exactly=must, weights=weights)


@settings(max_examples=20)
@given(data=st.data())
def test_skip_layer_normalization(data: st.DataObject) -> None:
    simplified = data.draw(st.booleans())
    x = floats((3, 4, 6))
    skip = floats(data.draw(st.sampled_from([(3, 4, 6), (1, 4, 6), (4, 6)])), 1)
    vectors = [floats((6,), k) for k in range(2, 3 + data.draw(st.integers(0, 1 if simplified else 2)))]
    inputs: list[Any] = [x, skip, *vectors]
    kind = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    present = (True, False, False, True) if data.draw(st.booleans()) else (True,)
    check_split(
        kind,
        inputs,
        {"epsilon": 1e-3},
        domain="com.microsoft",
        opset=1,
        outputs=present,
        exactly=("batch", "dim1"),
        weights=tuple(range(2, len(inputs))),
    )
