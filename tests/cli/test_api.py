"""From Python: ``planner.plan`` and ``PlannedSession``, and runs that show sizes which depend on data."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import planner
from planner.cli.plan import command
from planner.errors import FddpsError, InputError
from planner.launcher import PlannedSession
from planner.parameters import _OPTION, _parameter
from planner.plan.files import write_plan
from planner.profiling.recorded import RecordedRunner
from tests.cli.support import V100, data, refused, run
from tests.models.small import save, tiny_mlp

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def _save(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, tuple[int, list[int]]], output: onnx.ValueInfoProto
) -> None:
    infos = [onnx.helper.make_tensor_value_info(name, *typed) for name, typed in inputs.items()]
    graph = onnx.helper.make_graph(nodes, "g", infos, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, "m.onnx")


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_planned_session_stands_in_for_an_inference_session() -> None:
    path = save(tiny_mlp(4), Path())
    write_plan(planner.plan(path, gpus="2", profile="v100-sxm2-16gb", planner="data-parallel"), "plan.yaml")
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    plain = ort.InferenceSession(str(path))
    with PlannedSession("plan.yaml", on_cpu=True) as session:
        (found,) = session.run(None, {"x": x})
        assert [i.name for i in session.get_inputs()] == [i.name for i in plain.get_inputs()]
        assert [(o.name, o.type) for o in session.get_outputs()] == [(o.name, o.type) for o in plain.get_outputs()]
    np.testing.assert_allclose(found, plain.run(None, {"x": x})[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of gpus, cpus and cluster; for example cpus=2, or gpus=4"),
        ({"cpus": 2, "gpus": 1}, "gpus and cpus together"),
        ({"cpus": 2, "profile": "v100-sxm2-16gb"}, "profile: 'v100-sxm2-16gb' is a GPU; use gpus, or cpu-generic"),
        ({"gpus": "1", "profile": "t4", "max_memory": {"x": 1}}, "max_memory: no device 'x'"),
        ({"gpus": "1", "profile": "t4", "pins": [("a", "x")]}, "pins: no device 'x'"),
        ({"gpus": "1", "profile": "t4", "effort": "heroic"}, "effort: there is no effort 'heroic'"),
        ({"gpus": "1", "profile": "--none"}, "profile: '--none' is neither"),
    ],
)
def test_errors_name_parameters(given: dict[str, Any], words: str) -> None:
    path = save(tiny_mlp(4), Path())
    with pytest.raises(FddpsError) as caught:
        planner.plan(path, **given)
    assert words in str(caught.value) and "--" not in str(caught.value).replace("--none", "")
    assert caught.value.__cause__ is not None and type(caught.value) is type(caught.value.__cause__)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pins": ["^c0=cuda:1"]}, "pins: ['^c0=cuda:1']; expected pairs such as"),
        ({"pins": {"^c0": "cuda:0"}}, "pins: {'^c0': 'cuda:0'}; expected pairs"),
        ({"keep_together": "a.*"}, "keep_together: 'a.*'; expected a list"),
        ({"max_memory": {"cuda:0": "4GiB"}}, "max_memory: {'cuda:0': '4GiB'}; expected bytes by device"),
        ({"memory_bytes": "8GiB"}, "memory_bytes: '8GiB'; expected a number of bytes"),
        ({"batch_axes": ["x=1"]}, "batch_axes: ['x=1']; expected axes by input"),
        ({"inputs": {"x": 1}}, "inputs: a int for 'x'; expected numpy arrays"),
        ({"input_shapes": {"x": "8x3"}}, "input_shapes: {'x': '8x3'}; expected shapes by input"),
    ],
)
def test_parameters_of_another_form_are_refused_in_one_line(given: dict[str, Any], words: str) -> None:
    path = save(tiny_mlp(4), Path())
    with pytest.raises(FddpsError) as caught:
        planner.plan(path, gpus=1, profile="t4", **given)
    assert words in str(caught.value)


def test_every_option_of_plan_has_its_parameter() -> None:
    """As far as it has any; others are what only the command line does."""
    options = {name for each in command.params for name in each.opts if name.startswith("--")}
    parameters = inspect.signature(planner.plan).parameters
    named = {_OPTION.sub(_parameter, name) for name in options}
    assert {name for name in named if not name.startswith("--")} == set(parameters) - {"model", "plan_dir"}


def test_a_callable_package_is_still_a_package() -> None:
    """In a fresh process, whatever is imported first."""
    for first in (
        "import planner",
        "from planner.plan.schema import Plan",
        "import planner.plan.files as planner_files",
    ):
        code = f"{first}\nimport planner\nassert callable(planner.plan)\nfrom planner.plan import schema\n"
        code += "import sys\nassert 'onnxruntime' not in sys.modules and 'onnx' not in sys.modules\n"
        subprocess.run([sys.executable, "-c", code], cwd=Path(planner.__file__).parent.parent, check=True)


def test_python_callers_get_the_same_errors() -> None:
    path = save(tiny_mlp(4), Path())
    with pytest.raises(FddpsError, match="exactly one"):
        planner.plan(path)
    with pytest.raises(InputError, match="'z'"):
        planner.plan(path, gpus=1, profile="t4", inputs={"z": np.zeros(1)})


def test_an_input_that_nothing_reads_may_be_fed() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    inputs = {"unused": (INT64, [3]), "x": (FLOAT, [4])}
    _save([node], inputs, onnx.helper.make_tensor_value_info("y", FLOAT, [4]))
    assert run("plan", "m.onnx", *V100).exit_code == 0
    np.savez("in.npz", x=np.ones(4, np.float32), unused=np.arange(3))
    result = run("apply", "plan.yaml", "--on", "cpu", "--inputs", "in.npz", "--verify", "--json")
    assert data(result)["verified"] is True
    np.savez("in.npz", unused=np.arange(3))
    refused(run("apply", "plan.yaml", "--on", "cpu", "--inputs", "in.npz"), "'x'")


def test_an_initializer_fed_while_planning_is_fed_to_both_models() -> None:
    """The unsplit model must see the caller's value too, or a right plan would look wrong."""
    node = onnx.helper.make_node("Mul", ["x", "k"], ["y"])
    inputs = {"x": (FLOAT, [4]), "k": (FLOAT, [4])}
    _save([node], inputs, onnx.helper.make_tensor_value_info("y", FLOAT, [4]))
    model = onnx.load("m.onnx")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "k"))
    onnx.save(model, "m.onnx")
    np.savez("in.npz", x=np.ones(4, np.float32), k=np.full(4, 7, np.float32))
    assert run("plan", "m.onnx", *V100, "--inputs", "in.npz").exit_code == 0
    result = run("apply", "plan.yaml", "--on", "cpu", "--inputs", "in.npz", "--outputs", "out.npz", "--verify")
    assert result.exit_code == 0, result.stderr
    assert list(np.load("out.npz")["y"]) == [7, 7, 7, 7]


def _nonzero() -> None:
    """``z`` has as many columns as ``x`` has values other than zero."""
    nodes = [onnx.helper.make_node("NonZero", ["x"], ["n"]), onnx.helper.make_node("Neg", ["n"], ["z"])]
    _save(nodes, {"x": (FLOAT, [8])}, onnx.helper.make_tensor_value_info("z", INT64, [1, None]))


def test_sizes_that_depend_on_data_are_seen_in_a_run() -> None:
    _nonzero()
    model = Path("m.onnx").read_bytes()
    said: list[str] = []
    feeds = {"x": np.array([0, 1, 2, 0, 0, 3, 0, 0], np.float32)}
    assert RecordedRunner(said.append)(model, {}, feeds, ["z"]) == {"z": (1, 3)}
    assert said == []


def test_a_run_that_fails_leaves_sizes_unknown_and_says_so() -> None:
    _nonzero()
    said: list[str] = []
    runner = RecordedRunner(said.append)
    assert runner(Path("m.onnx").read_bytes(), {}, {"x": np.zeros(3, np.float32)}, ["z"]) == {}
    assert len(said) == 1
    assert "--inputs" in said[0]


def test_a_plan_is_made_although_sizes_depend_on_data() -> None:
    _nonzero()
    np.savez("in.npz", x=np.array([0, 1, 2, 0, 0, 3, 0, 0], np.float32))
    assert run("plan", "m.onnx", *V100, "--inputs", "in.npz").exit_code == 0
    assert run("apply", "plan.yaml", "--on", "cpu", "--inputs", "in.npz", "--verify").exit_code == 0
