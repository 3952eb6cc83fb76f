from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.errors import ModelError
from planner.graph.op_graph import Array
from planner.model import LoadOptions, Weight, load_model
from tests.model.support import rebuild_and_run, run_file, save, value

RNG = np.random.default_rng(7)


def matmul_file(path: Path, *, first: int | str = "n") -> Path:
    weight = RNG.random((4, 3), dtype=np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return save(path, nodes, [value("x", [first, 4])], [value("y", [first, 3])], {"w": weight})


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "empty"), (b"hello, I am no model", "protobuf"), (b"\x08\x0a", "no graph")],
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=says) as error:
        load_model(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_truncated_file(tmp_path: Path) -> None:
    path = matmul_file(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelError):
        load_model(path, LoadOptions(batch=1))


def test_a_pipe_or_a_device_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ModelError, match="device or a pipe"):
            load_model(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load_model(tmp_path / "none.onnx")


@pytest.mark.parametrize(("field", "number", "says"), [("ir_version", 15, "IR version 15"), ("opset", 27, "opset 27")])
def test_a_file_newer_than_onnx_runtime(tmp_path: Path, field: str, number: int, says: str) -> None:
    path = matmul_file(tmp_path / "m.onnx", first=2)
    model = onnx.load(path)
    if field == "opset":
        model.opset_import[0].version = number
    else:
        model.ir_version = number
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=says):
        load_model(path)


def test_a_cycle_is_an_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("b", [2])])
    with pytest.raises(ModelError, match="cycle"):
        load_model(path)


def test_an_open_dimension_names_input_and_options(tmp_path: Path) -> None:
    path = matmul_file(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"'x' has an unknown size: \?x4.*--input-shape x=.*--batch"):
        load_model(path)


@pytest.mark.parametrize(
    "options",
    [
        LoadOptions(batch=5),
        LoadOptions(input_shapes={"x": (5, 4)}),
        LoadOptions(feeds={"x": np.zeros((5, 4), np.float32)}),
    ],
)
def test_three_ways_to_give_a_shape(tmp_path: Path, options: LoadOptions) -> None:
    loaded = load_model(matmul_file(tmp_path / "m.onnx"), options)
    assert loaded.graph.tensors["y"].shape == (5, 3)


@pytest.mark.parametrize("shapes", [{"x": (5, 3)}, {"x": (5,)}, {"z": (5, 4)}])
def test_a_shape_that_does_not_fit(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ModelError):
        load_model(matmul_file(tmp_path / "m.onnx"), LoadOptions(input_shapes=shapes))


def test_an_overridable_initializer_is_constant_until_fed(tmp_path: Path) -> None:
    weight = RNG.random((2,), dtype=np.float32)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2]), value("w", [2])], [value("y", [2])], {"w": weight})
    x, other = np.ones(2, np.float32), np.full(2, 5, np.float32)
    loaded = load_model(path)
    assert loaded.graph.inputs == ("x",) and loaded.overridable == ("w",) and loaded.original_inputs == ("x",)
    np.testing.assert_array_equal(rebuild_and_run(loaded, {"x": x})["y"], x + weight)
    fed = load_model(path, LoadOptions(feeds={"x": x, "w": other}))
    assert fed.graph.inputs == ("x", "w") and not fed.graph.weights
    np.testing.assert_array_equal(rebuild_and_run(fed, {"x": x, "w": other})["y"], x + other)


def external_file(folder: Path, location: str = "w.bin") -> Path:
    path = matmul_file(folder / "m.onnx", first=2)
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    (folder / "w.bin").write_bytes(b"\0" * 8 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "8"), ("length", "48")):
        tensor.external_data.add(key=key, value=text)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_weights_are_mapped_not_read(tmp_path: Path) -> None:
    path = external_file(tmp_path)
    loaded = load_model(path)
    array = loaded.weights["w"].load()
    base: object = array
    while type(base) is np.ndarray:
        base = base.base
    assert isinstance(base, np.memmap)
    x = RNG.random((2, 4), dtype=np.float32)
    np.testing.assert_array_equal(rebuild_and_run(loaded, {"x": x})["y"], run_file(path, {"x": x})["y"])


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_linked_external_weights(tmp_path: Path, link: object) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "model").mkdir()
    path = external_file(tmp_path / "model")
    (tmp_path / "model" / "w.bin").rename(tmp_path / "cache" / "blob")
    link(tmp_path / "cache" / "blob", tmp_path / "model" / "w.bin")  # type: ignore[operator]
    assert load_model(path).weights["w"].load().shape == (4, 3)


def test_missing_external_weights(tmp_path: Path) -> None:
    path = external_file(tmp_path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin.*'w'"):
        load_model(path)


def test_short_external_weights(tmp_path: Path) -> None:
    path = external_file(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 50)
    with pytest.raises(ModelError, match="ends before weight 'w'"):
        load_model(path)


@pytest.mark.parametrize("climb", [True, False])
def test_external_weights_outside_the_folder_need_permission(tmp_path: Path, climb: bool) -> None:
    (tmp_path / "in").mkdir()
    path = external_file(tmp_path / "in", "../w.bin" if climb else str(tmp_path / "w.bin"))
    (tmp_path / "in" / "w.bin").rename(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="outside"):
        load_model(path)
    assert load_model(path, LoadOptions(allow_outside=True)).weights["w"].load().shape == (4, 3)


def test_duplicate_and_missing_node_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["Relu_0"], name="twin"),
        helper.make_node("Relu", ["Relu_0"], ["b"], name="twin"),
        helper.make_node("Neg", ["b"], ["y"], name="alone"),
    ]
    loaded = load_model(save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("y", [2])]))
    names = [op.name for op in loaded.graph.ops]
    assert names[2] == "alone" and len(set(names)) == 3 and "Relu_0" not in names


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    loaded = load_model(save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("y", [2])]))
    assert [op.op_type for op in loaded.graph.ops] == ["Relu", "Neg"]


def test_an_unknown_domain_is_atomic_and_noted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Magic", ["x"], ["h"], domain="my.ops"), helper.make_node("Relu", ["h"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("y", [2])], domains={"my.ops": 1})
    loaded = load_model(path)
    assert loaded.graph.ops[0].domain == "my.ops"
    assert not loaded.graph.tensors["h"].static
    assert any("my.ops.Magic" in note for note in loaded.notes)


def test_captures_of_nested_bodies(tmp_path: Path) -> None:
    def branch(name: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [value(nodes[-1].output[0], [2])])

    deep = helper.make_node(
        "If",
        ["c"],
        ["deep"],
        then_branch=branch("t2", [helper.make_node("Add", ["far", "t1"], ["u"])]),
        else_branch=branch("e2", [helper.make_node("Neg", ["far"], ["v"])]),
    )
    outer = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("t", [helper.make_node("Relu", ["x"], ["t1"]), deep]),
        else_branch=branch("e", [helper.make_node("Identity", ["w"], ["e1"])]),
    )
    nodes = [helper.make_node("Abs", ["x"], ["far"]), outer]
    inputs = [value("x", [2]), value("c", [], TensorProto.BOOL)]
    path = save(tmp_path / "m.onnx", nodes, inputs, [value("y", [2])], {"w": np.ones(2, np.float32)})
    loaded = load_model(path)
    assert loaded.graph.ops[-1].captures == ("w", "x", "c", "far")
    feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(True)}
    np.testing.assert_array_equal(rebuild_and_run(loaded, feeds)["y"], run_file(path, feeds)["y"])


def test_a_large_weight_inside_a_body_becomes_a_weight_of_the_graph(tmp_path: Path) -> None:
    weight = RNG.random((200, 200), dtype=np.float32)
    then = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"])],
        "t",
        [],
        [value("t", [1, 200])],
        [numpy_helper.from_array(weight, "w")],
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "e", [], [value("e", [1, 200])])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = [value("x", [1, 200]), value("c", [], TensorProto.BOOL)]
    path = save(tmp_path / "m.onnx", nodes, inputs, [value("y", [1, 200])])
    loaded = load_model(path)
    assert loaded.graph.weights == {"w"} and "w" in loaded.graph.ops[0].captures
    feeds = {"x": RNG.random((1, 200), dtype=np.float32), "c": np.array(True)}
    np.testing.assert_allclose(rebuild_and_run(loaded, feeds)["y"], run_file(path, feeds)["y"], rtol=1e-5)


def test_sizes_that_depend_on_data_come_from_a_recorded_run(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["nz"]), helper.make_node("Transpose", ["nz"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [4])], [value("y", [None, 1], TensorProto.INT64)])
    asked: list[str] = []

    def run(
        model: bytes, weights: Mapping[str, Weight], feeds: Mapping[str, Array], names: Sequence[str]
    ) -> dict[str, tuple[int, ...]]:
        asked.extend(names)
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        return {n: v.shape for n, v in zip(names, session.run(list(names), dict(feeds)), strict=True)}

    feeds = {"x": np.array([0, 1, 0, 2], np.float32)}
    loaded = load_model(path, LoadOptions(feeds=feeds, recorded_run=run))
    assert asked == ["nz", "y"]
    assert loaded.graph.tensors["nz"].shape == (1, None)
    assert loaded.graph.tensors["nz"].dims == (1, 2)


def test_the_digest_is_that_of_the_graph(tmp_path: Path) -> None:
    def digest(scale: float, name: str, size: int, small: int) -> str:
        nodes = [
            helper.make_node("LeakyRelu", ["x"], ["a"], alpha=scale),
            helper.make_node("Add", ["a", "big"], [name]),
            helper.make_node("Gather", [name, "k"], ["y"], axis=1),
        ]
        weights: dict[str, Array] = {"big": np.full((2, size), 3, np.float32), "k": np.array([small], np.int64)}
        return load_model(
            save(tmp_path / "m.onnx", nodes, [value("x", [2, size])], [value("y", [2, 1])], weights)
        ).digest

    base = digest(0.1, "b", 2000, 1)
    assert base == digest(0.1, "b", 2000, 1)
    assert (
        len(
            {
                base,
                digest(0.2, "b", 2000, 1),
                digest(0.1, "c", 2000, 1),
                digest(0.1, "b", 2001, 1),
                digest(0.1, "b", 2000, 0),
            }
        )
        == 5
    )


def test_the_digest_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    weight = RNG.random((4, 3), dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Shape", ["h"], ["s"]),
        helper.make_node("Reshape", ["h", "s"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2, 4])], [value("z", [2, 3])], {"w": weight})
    code = f"from planner.model import load_model; print(load_model({str(path)!r}).digest)"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    ]
    assert found[0] == found[1] and found[0].startswith("sha256:")


def test_minus_one_is_an_open_dimension(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [-1, 3])], [value("y", None)]
    )
    assert load_model(path, LoadOptions(batch=2)).graph.tensors["y"].shape == (2, 3)


def test_branches_of_different_rank(tmp_path: Path) -> None:
    # With the input's sizes stated, ONNX Runtime rejects the branch that would squeeze a dimension of 2.
    then = helper.make_graph([helper.make_node("Squeeze", ["x", "one"], ["t"])], "t", [], [value("t", None)])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "e", [], [value("e", None)])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = [value("x", ["a", "b"]), value("c", [], TensorProto.BOOL)]
    path = save(tmp_path / "m.onnx", nodes, inputs, [value("y", None)], {"one": np.array([1])})
    feeds = {"x": np.ones((3, 2), np.float32), "c": np.array(False)}
    loaded = load_model(path, LoadOptions(feeds=feeds))
    assert rebuild_and_run(loaded, feeds)["y"].shape == run_file(path, feeds)["y"].shape == (3, 2)


SEQUENCE = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [4])


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "says"),
    [
        ([helper.make_node("Relu", ["x"], ["a"])], [value("x", [4])], [value("q", [4])], "output 'q': nothing makes"),
        ([helper.make_node("Relu", ["x"], [""])], [value("x", [4])], [value("y", [4])], "output 'y': nothing makes"),
        ([helper.make_node("Relu", ["x"], ["a"])], [value("x", [4])], [], "no outputs"),
        ([helper.make_node("Relu", ["x"], ["y"])], [value("x", [2**40, 2**30])], [value("y", None)], "'x'.* bytes are"),
        ([helper.make_node("SequenceConstruct", ["x"], ["s"])], [value("x", [4])], [SEQUENCE], "'s'.* sequence"),
        ([helper.make_node("SequenceLength", ["s"], ["n"])], [SEQUENCE], [value("n", [], 7)], "'s'.* sequence"),
    ],
)
def test_a_model_that_no_plan_could_run(
    tmp_path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    says: str,
) -> None:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=says):
        load_model(tmp_path / "m.onnx")


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    call = helper.make_node("Fn", ["x"], ["y"], domain="d")
    graph = helper.make_graph([call], "g", [value("x", [4])], [value("y", [4])])
    function = helper.make_function("d", "Fn", ["x"], ["y"], [call], opsets)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function])
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="cannot be inlined"):
        load_model(tmp_path / "m.onnx")


def test_an_operator_of_a_type_that_it_does_not_take_is_no_crash(tmp_path: Path) -> None:
    cast = [helper.make_node("Cast", ["x"], ["c"], to=TensorProto.COMPLEX64)]
    graph = helper.make_graph(cast, "g", [value("x", [4])], [value("c", [4], TensorProto.COMPLEX64)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx").graph.tensors["c"].dtype == "complex64"
