"""Large weights stay in the file: what is read of them is what lies there, and broken files are as broken as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from planner.errors import ModelError
from planner.model.load import load_model
from planner.model.options import LoadOptions
from planner.model.wire import LARGE_BYTES, without_large_weights

DTYPES = ("float32", "float16", "int8", "int64", "bool", "float64")


def tensor(name: str, dtype: str, size: int, raw: bool, seed: int) -> TensorProto:
    array = np.random.default_rng(seed).integers(0, 2, size).astype(dtype)
    if raw:
        return numpy_helper.from_array(array, name)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, array.tolist())


def model_of(tensors: list[TensorProto]) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [t.name], [f"y{t.name}"], name=f"n{t.name}") for t in tensors]
    outputs = [helper.make_tensor_value_info(f"y{t.name}", t.data_type, t.dims) for t in tensors]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors, doc_string="d" * 300)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


TENSORS = st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 70_000), st.booleans()), max_size=5)


@given(TENSORS)
def test_references_lead_to_the_same_content(tmp_path_factory: pytest.TempPathFactory, chosen: list) -> None:
    folder = tmp_path_factory.mktemp("wire")
    tensors = [tensor(f"w{i}", dtype, size, raw, i) for i, (dtype, size, raw) in enumerate(chosen)]
    whole = model_of(tensors)
    data = whole.SerializeToString()
    (folder / "m.onnx").write_bytes(data)
    found = onnx.ModelProto.FromString(without_large_weights(data, "m.onnx"))
    for before, after in zip(tensors, found.graph.initializer, strict=True):
        large = before.HasField("raw_data") and len(before.raw_data) >= LARGE_BYTES
        assert (after.data_location == TensorProto.EXTERNAL) == large
        np.testing.assert_array_equal(
            numpy_helper.to_array(after, base_dir=str(folder)), numpy_helper.to_array(before), strict=True
        )
    del found.graph.initializer[:], whole.graph.initializer[:]
    assert found == whole


def test_what_has_no_whole_bytes_or_is_external_already_stays(tmp_path: Path) -> None:
    packed = TensorProto(name="p", data_type=TensorProto.INT4, dims=[LARGE_BYTES * 2], raw_data=bytes(LARGE_BYTES))
    outside = TensorProto(name="o", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="elsewhere")
    data = model_of([packed, outside]).SerializeToString()
    assert without_large_weights(data, "m.onnx") == data


def test_dims_that_were_not_packed_are_read_too() -> None:
    # onnx.proto is proto2: writers may put each dimension into a field of its own, and parsers take both.
    body = b"".join((b"\x08\x80\x80\x01", b"\x08\x02", b"\x10\x01", b"\x42\x01w"))
    raw = bytes(4 * 2 * 16384)
    body += b"\x4a\x80\x80\x08" + raw
    model = model_of([])
    graph = model.graph.SerializeToString() + b"\x2a" + varint(len(body)) + body
    model.ClearField("graph")
    data = model.SerializeToString() + b"\x3a" + varint(len(graph)) + graph
    assert onnx.ModelProto.FromString(data).graph.initializer[0].dims == [16384, 2]
    found = onnx.ModelProto.FromString(without_large_weights(data, "m.onnx")).graph.initializer[0]
    assert {entry.key: entry.value for entry in found.external_data} == {
        "location": "m.onnx",
        "offset": str(data.rindex(raw)),
        "length": str(len(raw)),
    }


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


@given(st.data())
def test_broken_files_are_refused_in_one_line_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(model_of([tensor("w", "float32", 20_000, True, 0)]).SerializeToString())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(1, len(content) - 1)) :]
    # Where the structure is: the content of the weight says nothing.
    spots = st.one_of(st.integers(0, 200), st.integers(len(content) - 120, len(content) - 1))
    for spot in data.draw(st.lists(spots, max_size=3)):
        if 0 <= spot < len(content):
            content[spot] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("wire") / "m.onnx"
    path.write_bytes(content)
    try:
        load_model(path, LoadOptions())
    except ModelError as problem:
        assert "\n" not in str(problem)


def test_a_tensor_of_the_wrong_size_is_named(tmp_path: Path) -> None:
    wrong = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[7, 5000], raw_data=bytes(LARGE_BYTES))
    node = helper.make_node("Add", ["x", "w"], ["y"], name="add")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [7, 5000]) for name in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [wrong])
    path = tmp_path / "m.onnx"
    opsets = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString())
    model = load_model(path, LoadOptions())
    with pytest.raises(ModelError, match="'w' cannot be read"):
        model.weights["w"].load()
