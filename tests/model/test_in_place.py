"""Weights that sessions read from the model's file: the same outputs, whatever byte they begin at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.launcher.planned_session import PlannedSession
from planner.model.in_place import referring
from planner.model.types import Place, Weight
from planner.partition.boxes import Box
from planner.partition.types import SegmentModel
from planner.partition.weight_parts import weight_part
from tests.launcher.helpers import cpus, info, node, partitioned, segment, stub

ROWS, COLUMNS = 300, 100


def content(folder: Path, skip: int) -> tuple[Weight, np.ndarray]:
    """A weight whose elements begin after ``skip`` bytes of a file, and its value."""
    array = np.random.default_rng(skip).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    path = folder / f"weights {skip}.bin"
    path.write_bytes(b"x" * skip + array.tobytes())
    return Weight(info("w", array.shape), lambda: array, key="w", place=Place(path, skip)), array


def product(weight: Weight, op_type: str = "MatMul") -> SegmentModel:
    """x ``op_type`` w, with a stub for the weight."""
    rows = weight.info.dims[0]
    shapes = ((2, rows), (2, COLUMNS)) if op_type == "MatMul" else ((rows, COLUMNS), (rows, COLUMNS))
    reads, makes = info("x", shapes[0]), info("y", shapes[1])
    made = segment("s", "cpu:0", [node(op_type, ["x", "w"], ["y"])], [reads], [makes])
    model = onnx.ModelProto.FromString(made.model)
    proto = stub("w", np.empty(weight.info.dims, np.float32))
    for key, value in (("offset", "0"), ("length", str(weight.info.nbytes))):
        proto.external_data.add(key=key, value=value)
    model.graph.initializer.append(proto)
    return SegmentModel("s", "cpu:0", made.inputs, made.outputs, model.SerializeToString(), {"w": weight})


@pytest.mark.parametrize("skip", [0, 4, 1, 4099])
@pytest.mark.parametrize("op_type", ["MatMul", "Add"])
def test_a_session_reads_its_weight_from_the_file(tmp_path: Path, skip: int, op_type: str) -> None:
    weight, array = content(tmp_path, skip)
    made = product(weight, op_type)
    in_place = referring(made.model, made.weights)
    # Adding reads the elements as they lie: unaligned ones are copied.
    assert (not in_place.weights) == (op_type == "MatMul" or skip % 4 == 0)
    x = np.random.default_rng(1).standard_normal(made.inputs[0].dims).astype(np.float32)
    with PlannedSession.from_partition(partitioned([made], made.inputs, made.outputs), cpus(1)) as session:
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x @ array if op_type == "MatMul" else x + array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("start", "stop"), [(0, 100), (100, 300), (7, 8)])
def test_rows_of_a_weight_are_read_where_they_lie(tmp_path: Path, start: int, stop: int) -> None:
    weight, array = content(tmp_path, 8)
    part = weight_part(weight, info("w", (stop - start, COLUMNS)), Box.of({0: ((start, stop),)}))
    assert part.place is not None
    made = product(part)
    assert not referring(made.model, made.weights).weights
    x = np.random.default_rng(1).standard_normal((2, stop - start)).astype(np.float32)
    with PlannedSession.from_partition(partitioned([made], made.inputs, made.outputs), cpus(1)) as session:
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x @ array[start:stop], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("box", [{1: ((0, 50),)}, {0: ((0, 5), (9, 11))}, {0: ((0, 9),), 1: ((0, 50),)}])
def test_scattered_parts_have_no_place(tmp_path: Path, box: dict) -> None:
    weight, _ = content(tmp_path, 8)
    shape = Box.of(box).shape(weight.info)
    assert weight_part(weight, info("w", shape), Box.of(box)).place is None


def test_a_weight_in_a_file_beside_one_that_is_not(tmp_path: Path) -> None:
    weight, array = content(tmp_path, 16)
    computed = np.random.default_rng(3).standard_normal((2, COLUMNS)).astype(np.float32)
    made = product(weight)
    model = onnx.ModelProto.FromString(made.model)
    model.graph.node[0].output[0] = "inner"
    model.graph.node.append(helper.make_node("Add", ["inner", "c"], ["y"], name="add"))
    model.graph.initializer.append(stub("c", computed))
    other = Weight(info("c", computed.shape), lambda: computed, key="c")
    both = SegmentModel("s", "cpu:0", made.inputs, made.outputs, model.SerializeToString(), {"w": weight, "c": other})
    assert list(referring(both.model, both.weights).weights) == ["c"]
    x = np.ones((2, ROWS), np.float32)
    with PlannedSession.from_partition(partitioned([both], made.inputs, made.outputs), cpus(1)) as session:
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x @ array + computed, rtol=1e-4, atol=1e-4)


def test_a_weight_behind_a_link_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    weight, array = content(tmp_path / "store", 4)
    assert weight.place is not None
    link = tmp_path / "model" / "weights.bin"
    link.parent.mkdir()
    link.symlink_to(weight.place.path)
    made = product(Weight(weight.info, weight.load, key="w", place=Place(link, 4)))
    assert not referring(made.model, made.weights).weights
    x = np.ones((2, ROWS), np.float32)
    with PlannedSession.from_partition(partitioned([made], made.inputs, made.outputs), cpus(1)) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ array, rtol=1e-4, atol=1e-4)


def test_unaligned_elements_read_inside_a_loop_are_copied(tmp_path: Path) -> None:
    weight, _ = content(tmp_path, 1)
    made = product(weight)
    model = onnx.ModelProto.FromString(made.model)
    body = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["o"])], "b", [], [helper.make_tensor_value_info("o", 1, [ROWS, COLUMNS])]
    )
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    assert model.graph.initializer[0].data_location == TensorProto.EXTERNAL
    with_loop = SegmentModel("s", "cpu:0", made.inputs, made.outputs, model.SerializeToString(), {"w": weight})
    assert list(referring(with_loop.model, with_loop.weights).weights) == ["w"]
