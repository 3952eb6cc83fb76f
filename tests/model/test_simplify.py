from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.graph.op_graph import Array, Attribute, Op
from planner.model import LoadOptions, load_model
from planner.model.fold import fold
from planner.model.protos import node_proto
from tests.model.support import rebuild_and_run, run_file, save, value


def op(op_type: str, count: int, version: int = 17, **attributes: Attribute) -> Op:
    return Op("n", "", op_type, version, tuple(f"i{k}" for k in range(count)), ("o",), attributes)


A = np.array([[-7, 5, 3], [4, -2, 9]], np.int64)
B = np.array([[2, -3, 3], [-5, 2, 4]], np.int64)
F = np.array([[-7.5, 5.25, 3], [4, -2, 9]], np.float32)


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        (op("Add", 2), (A, B)),
        (op("Sub", 2), (A, B)),
        (op("Mul", 2), (F, F[:1])),
        (op("Div", 2), (A, B)),
        (op("Div", 2), (F, F)),
        (op("Mod", 2), (A, B)),
        (op("Mod", 2, fmod=Attribute.int(1)), (A, B)),
        (op("Equal", 2), (A, B)),
        (op("Less", 2), (A, B)),
        (op("Min", 3), (A, B, A + 1)),
        (op("Max", 2), (F, F * -1)),
        (op("Cast", 1, to=Attribute.int(TensorProto.INT32)), (F,)),
        (op("Cast", 1, to=Attribute.int(TensorProto.BOOL)), (A - 3,)),
        (op("Concat", 2, axis=Attribute.int(-1)), (A, B)),
        (op("Unsqueeze", 2), (A, np.array([0, -1]))),
        (op("Squeeze", 2), (A[None], np.array([0]))),
        (op("Gather", 2, axis=Attribute.int(1)), (A, np.array([[-1, 0]]))),
        (op("Slice", 4), (A, np.array([-1]), np.array([-(2**63)]), np.array([1]))),
        (op("Slice", 5), (A, np.array([5]), np.array([-(2**63)]), np.array([1]), np.array([-2]))),
        (op("Slice", 3), (A, np.array([0, 1]), np.array([1, 2**62]))),
        (op("Reshape", 2), (A, np.array([0, -1, 1]))),
        (op("Transpose", 1), (A,)),
        (op("Expand", 2), (A[:1], np.array([2, 1]))),
        (op("Where", 3), (A > 0, A, B)),
        (op("Range", 3), tuple(np.array(v) for v in (5, -4, -2))),
        (op("ReduceProd", 1, keepdims=Attribute.int(0)), (A,)),
        (op("ReduceMin", 1, axes=Attribute.ints([-1])), (A,)),
        (op("ReduceSum", 2), (A, np.array([0]))),
        (op("Neg", 1), (A,)),
        (op("Floor", 1), (F,)),
        (op("Sqrt", 1), (np.abs(F),)),
        (op("Tile", 2), (A, np.array([2, 1]))),
        (op("Not", 1), (A > 0,)),
    ],
    ids=lambda item: item.op_type if isinstance(item, Op) else "",
)
def test_folding_gives_what_onnx_runtime_gives(tmp_path: Path, operator: Op, inputs: Sequence[Array]) -> None:
    folded = fold(operator, list(inputs), 4096)
    assert folded is not None
    types = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in inputs]
    declared = [value(f"i{k}", array.shape, types[k]) for k, array in enumerate(inputs)]
    graph = helper.make_graph([node_proto(operator)], "g", declared, [onnx.ValueInfoProto(name="o")])
    path = tmp_path / "m.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    expected = run_file(path, {f"i{k}": array for k, array in enumerate(inputs)})["o"]
    assert np.asarray(expected).dtype == folded.dtype and np.shape(expected) == folded.shape
    np.testing.assert_array_equal(folded, expected)


def test_division_by_zero_is_left_to_the_run() -> None:
    assert fold(op("Div", 2), [A, np.zeros_like(A)], 4096) is None
    assert fold(op("Mod", 2), [A, np.zeros_like(A)], 4096) is None


def test_a_large_result_is_not_folded() -> None:
    assert fold(op("Expand", 2), [A[:1], np.array([1000, 3])], 4096) is None


def test_shape_arithmetic_disappears(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "minus": np.array([-1])}
    path = save(tmp_path / "m.onnx", nodes, [value("x", ["n", 2, 3])], [value("y", ["n", "m"])], weights)
    loaded = load_model(path, LoadOptions(batch=4))
    assert [o.op_type for o in loaded.graph.ops] == ["Reshape"]
    assert loaded.graph.tensors["y"].shape == (4, 6)
    assert loaded.graph.constants["target"].tolist() == [4, -1]


def test_dead_and_idle_operators_disappear_but_outputs_keep_their_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Dropout", ["b"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Identity", ["d"], ["y"]),
        helper.make_node("Exp", ["x"], ["unused"]),
    ]
    loaded = load_model(save(tmp_path / "m.onnx", nodes, [value("x", [2])], [value("y", [2]), value("d", [2])]))
    assert [(o.op_type, o.inputs) for o in loaded.graph.ops] == [
        ("Relu", ("x",)),
        ("Neg", ("a",)),
        ("Identity", ("d",)),
    ]
    assert loaded.graph.outputs == ("y", "d")


def test_a_name_that_a_body_reads_is_kept(tmp_path: Path) -> None:
    then = helper.make_graph([helper.make_node("Neg", ["b"], ["t"])], "t", [], [value("t", [2])])
    other = helper.make_graph([helper.make_node("Abs", ["b"], ["e"])], "e", [], [value("e", [2])])
    nodes = [
        helper.make_node("Identity", ["x"], ["b"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", [2])])
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(True)}
    np.testing.assert_array_equal(rebuild_and_run(load_model(path), feeds)["y"], [-1, 2])


def test_random_operators_are_not_folded(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomNormal", [], ["y"], shape=[2])]
    assert len(load_model(save(tmp_path / "m.onnx", nodes, [], [value("y", [2])])).graph.ops) == 1


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, -2]], np.float16),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([1.5, -2], ml_dtypes.float8_e4m3fn),
        np.array([1.5, -2], ml_dtypes.float8_e5m2),
        np.array([1, -2, 7], ml_dtypes.int4),
        np.array([1, 2, 15], ml_dtypes.uint4),
        np.array([1 + 2j], np.complex64),
        np.array([True, False]),
        np.array(3, np.uint16),
        np.zeros((0, 3), np.float64),
    ],
    ids=lambda array: array.dtype.name,
)
@pytest.mark.parametrize("external", [False, True])
def test_every_type_of_weight_is_read_as_it_is(tmp_path: Path, array: Array, external: bool) -> None:
    tensor = ir.serde.serialize_tensor(ir.Tensor(array, name="w"))
    if external:
        (tmp_path / "w.bin").write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    graph = helper.make_graph([], "g", [], [onnx.ValueInfoProto(name="w")], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    loaded = load_model(path)
    found = loaded.weights["w"].load()
    assert found.dtype == array.dtype and found.shape == array.shape
    assert (found == array).all()
    assert loaded.graph.tensors["w"].shape == array.shape


def test_strings_are_text(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.array(["a", "é"], dtype=object), "w")
    graph = helper.make_graph([], "g", [], [value("w", [2], TensorProto.STRING)], [tensor])
    path = tmp_path / "m.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    )
    assert load_model(path).weights["w"].load().tolist() == ["a", "é"]
