"""The light models of the onnx package: as shipped against their expected outputs, and with weights of our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from planner.launcher.planned_session import PlannedSession
from tests.models import LIGHT_MODELS, light_path
from tests.real.support import Real, applied, planned, split_plans, telling

QUICK = ("squeezenet", "shufflenet")
ALL = [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in LIGHT_MODELS]


@pytest.mark.parametrize("name", ALL)
def test_as_shipped(name: str, tmp_path: Path) -> None:
    path = light_path(name)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.with_name(f"light_{name}_output_0.pb").read_bytes())
    expected = numpy_helper.to_array(tensor)
    plan = planned(Real(path, {}, {}), tmp_path, cpus="2", planner="fd-dps")
    with PlannedSession(plan, model_path=path) as session:
        (info,) = session.get_inputs()
        # As shipped, the outputs are the same for every input.
        (got,) = session.run(None, {info.name: np.ones(info.shape, np.float32)})
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("devices", ["cpus 2", "cpus 3", "gpus 4"])
def test_planned(name: str, devices: str, light_model: Callable[[str], Path], tmp_path: Path) -> None:
    real = Real(light_model(name), {}, {})
    kind, _, count = devices.partition(" ")
    plan = planned(real, tmp_path, **{kind: count})
    result = applied(plan, real, on_cpu=kind == "gpus")
    assert result.verified, result.comparison
    assert telling(plan, real) > 100


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("num_devices", [2, 3])
def test_whole_graph_splits(name: str, num_devices: int, light_model: Callable[[str], Path]) -> None:
    real = Real(light_model(name), {}, {})
    plans = split_plans(real, num_devices)
    assert {"spatial", "channels"} <= set(plans)
    for way, plan in plans.items():
        assert applied(plan, real).verified, way
