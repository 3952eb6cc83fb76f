from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from planner.errors import ModelError
from planner.graph.op_graph import Array
from planner.model import LoadOptions, load_model
from tests.model.support import rebuild_and_run, run_file, save, value

RNG = np.random.default_rng(3)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def assert_batches(path: Path, old: int, new: int, axes: dict[str, int] | None = None) -> None:
    """The model at ``new``, a multiple of ``old``, gives what the model at ``old`` gives chunk by chunk."""
    axes = axes or {}
    narrow = load_model(path)
    wide = load_model(
        path, LoadOptions(batch=new, batch_axes={k: v for k, v in axes.items() if k in narrow.graph.inputs})
    )
    feeds = {n: RNG.random(wide.graph.tensors[n].dims, dtype=np.float32) for n in wide.graph.inputs}
    found = rebuild_and_run(wide, feeds)
    for start in range(0, new, old):
        part = {n: np.take(v, range(start, start + old), axis=axes.get(n, 0)) for n, v in feeds.items()}
        for name, expected in rebuild_and_run(narrow, part).items():
            axis = axes.get(name, 0)
            chunk = np.take(found[name], range(start, start + old), axis=axis)
            np.testing.assert_allclose(chunk, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", [(2, -1), (2, 12), (0, -1), (-1, 12), (2, 3, 4, 1), (2, 2, 3, 2), (-1, 3, 2, 2)])
@pytest.mark.parametrize("new", [4, 6])
def test_reshape_targets(tmp_path: Path, target: tuple[int, ...], new: int) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [2, 3, 4])], [value("y", None)], {"s": ints(*target)})
    assert_batches(path, 2, new)


def test_a_batch_of_one_does_not_end_in_another_dimension(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 6])], [value("y", [1, 6])], {"s": ints(1, -1)})
    assert load_model(path, LoadOptions(batch=4)).graph.tensors["y"].shape == (4, 6)
    assert_batches(path, 1, 4)


def test_heads_are_merged_with_the_batch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "split"], ["h"]),
        helper.make_node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "merge"], ["m"]),
        helper.make_node("MatMul", ["m", "w"], ["p"]),
        helper.make_node("Reshape", ["p", "back"], ["y"]),
    ]
    weights = {
        "split": ints(2, 5, 2, 4),
        "merge": ints(4, 5, 4),
        "w": RNG.random((4, 4), dtype=np.float32),
        "back": ints(2, 40),
    }
    assert_batches(save(tmp_path / "m.onnx", nodes, [value("x", [2, 5, 8])], [value("y", [2, 40])], weights), 2, 6)


def test_a_class_token_is_repeated(tmp_path: Path) -> None:
    nodes = [helper.make_node("Concat", ["token", "x"], ["y"], axis=1)]
    weights = {"token": RNG.random((1, 1, 3), dtype=np.float32)}
    assert_batches(save(tmp_path / "m.onnx", nodes, [value("x", [1, 4, 3])], [value("y", [1, 5, 3])], weights), 1, 3)


def test_a_token_expanded_to_the_batch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Expand", ["token", "s"], ["wide"]),
        helper.make_node("Concat", ["wide", "x"], ["y"], axis=1),
    ]
    weights = {"token": RNG.random((1, 1, 3), dtype=np.float32), "s": ints(2, 1, 3)}
    assert_batches(save(tmp_path / "m.onnx", nodes, [value("x", [2, 4, 3])], [value("y", [2, 5, 3])], weights), 2, 4)


def test_recurrent_states_and_another_batch_axis(tmp_path: Path) -> None:
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "", "", "h0"], ["", "y"], hidden_size=3)]
    weights = {
        "w": RNG.random((1, 12, 2), dtype=np.float32),
        "r": RNG.random((1, 12, 3), dtype=np.float32),
        "h0": RNG.random((1, 1, 3), dtype=np.float32),
    }
    path = save(tmp_path / "m.onnx", nodes, [value("x", [5, 1, 2])], [value("y", [1, 1, 3])], weights)
    assert_batches(path, 1, 3, {"x": 1, "y": 1})


def test_a_whole_shape_implies_the_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 2, 3])], [value("y", [1, 6])], {"s": ints(1, 6)})
    assert load_model(path, LoadOptions(input_shapes={"x": (7, 2, 3)})).graph.tensors["y"].shape == (7, 6)


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        (helper.make_node("Gather", ["x", "k"], ["y"], name="guilty", axis=0), {"k": ints(1)}),
        (helper.make_node("Slice", ["x", "a", "b"], ["y"], name="guilty"), {"a": ints(0), "b": ints(1)}),
        (helper.make_node("Concat", ["x", "x"], ["y"], name="guilty", axis=0), {}),
        (helper.make_node("Split", ["x"], ["y", "z"], name="guilty", axis=0), {}),
        (helper.make_node("Reshape", ["x", "s"], ["y"], name="guilty"), {"s": ints(3, 2)}),
        (helper.make_node("Add", ["x", "rows"], ["y"], name="guilty"), {"rows": np.ones((2, 3), np.float32)}),
    ],
)
def test_what_cannot_be_rebatched_is_refused_by_name(
    tmp_path: Path, node: onnx.NodeProto, weights: dict[str, Array]
) -> None:
    path = save(tmp_path / "m.onnx", [node], [value("x", [2, 3])], [value("y", None)], weights, opset=13)
    with pytest.raises(ModelError, match="guilty"):
        load_model(path, LoadOptions(batch=5))


def test_inputs_that_disagree_about_the_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("a", [2, 3]), value("b", [3, 4])], [value("y", [2, 4])])
    with pytest.raises(ModelError, match="--batch-axis"):
        load_model(path, LoadOptions(batch=6))
    loaded = load_model(path, LoadOptions(batch=6, batch_axes={"b": -1}))
    assert loaded.graph.tensors["y"].shape == (6, 4)


def test_light_shufflenet_in_a_larger_batch() -> None:
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_shufflenet.onnx"
    assert_batches(path, 1, 2)


ATTENTION = [
    helper.make_node("Reshape", ["x", "rows"], ["q"]),
    helper.make_node("Transpose", ["q"], ["k"], perm=[1, 0]),
    helper.make_node("MatMul", ["q", "k"], ["scores"], name="guilty"),
    helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
    helper.make_node("MatMul", ["p", "q"], ["o"]),
    helper.make_node("Reshape", ["o", "back"], ["y"]),
]
FOLDED = {"rows": ints(5, 8), "back": ints(1, 5, 8)}


def between_reshapes(*nodes: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Nodes that work on ``h``, positions of all samples folded into rows, and make ``o``."""
    fold = helper.make_node("Reshape", ["x", "rows"], ["h"])
    return [fold, *nodes, helper.make_node("Reshape", ["o", "back"], ["y"])]


@pytest.mark.parametrize(
    "nodes",
    [
        ATTENTION,
        between_reshapes(helper.make_node("Softmax", ["h"], ["o"], axis=0, name="guilty")),
        between_reshapes(helper.make_node("CumSum", ["h", "zero"], ["o"], name="guilty")),
        between_reshapes(
            helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], name="guilty"),
            helper.make_node("Sub", ["h", "m"], ["o"]),
        ),
        # All values, of all samples: the largest one of a batch is not that of a sample.
        between_reshapes(
            helper.make_node("ReduceMax", ["h"], ["m"], keepdims=0, name="guilty"),
            helper.make_node("Neg", ["m"], ["n"]),
            helper.make_node("Div", ["h", "n"], ["o"]),
        ),
        between_reshapes(
            helper.make_node("Transpose", ["h"], ["t"]),
            helper.make_node("MatMul", ["t", "h"], ["m"], name="guilty"),
            helper.make_node("MatMul", ["h", "m"], ["o"]),
        ),
        # Channels 0 to 4 are rows of the first sample, 5 to 9 of the second.
        between_reshapes(
            helper.make_node("Unsqueeze", ["h", "zero"], ["u"]),
            helper.make_node("LRN", ["u"], ["l"], size=3, name="guilty"),
            helper.make_node("Squeeze", ["l", "zero"], ["o"]),
        ),
    ],
)
def test_samples_that_are_mixed_are_refused_by_name(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    weights = {**FOLDED, "zero": ints(0)}
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 5, 8])], [value("y", [1, 5, 8])], weights)
    with pytest.raises(ModelError, match=r"guilty.*all samples") as refused:
        load_model(path, LoadOptions(batch=2))
    assert "\n" not in str(refused.value)


def test_samples_that_are_mixed_in_the_file_are_not_taken_apart(tmp_path: Path) -> None:
    weights = {"rows": ints(10, 8), "back": ints(2, 5, 8)}
    path = save(tmp_path / "m.onnx", ATTENTION, [value("x", [2, 5, 8])], [value("y", [2, 5, 8])], weights)
    with pytest.raises(ModelError, match="guilty"):
        load_model(path, LoadOptions(batch=1))


def test_rows_of_all_samples_may_be_multiplied_by_a_weight(tmp_path: Path) -> None:
    nodes = between_reshapes(
        helper.make_node("Gemm", ["h", "w"], ["g"]), helper.make_node("Softmax", ["g"], ["o"], axis=-1)
    )
    weights = {**FOLDED, "w": RNG.random((8, 8), dtype=np.float32)}
    assert_batches(save(tmp_path / "m.onnx", nodes, [value("x", [1, 5, 8])], [value("y", [1, 5, 8])], weights), 1, 3)


def test_a_loss_over_the_batch_is_no_harm(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["mean"], keepdims=0),
        helper.make_node("Sqrt", ["mean"], ["loss"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", [1, 5])], [value("y", [1, 5]), value("loss", [])])
    assert load_model(path, LoadOptions(batch=3)).graph.tensors["y"].shape == (3, 5)


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([helper.make_node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2])], [1, 2, 6]),
        ([helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Neg", ["s"], ["y"])], [3, 1, 4]),
    ],
)
def test_what_is_not_split_may_keep_samples_apart(
    tmp_path: Path, nodes: list[onnx.NodeProto], shape: list[int]
) -> None:
    path = save(tmp_path / "m.onnx", nodes, [value("x", shape)], [value("y", None)])
    assert_batches(path, shape[0], 3 * shape[0])


STEPS: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {
    "rows": ("Reshape", {}, ("rows",)),
    "back": ("Reshape", {}, ("back",)),
    "merge": ("Reshape", {}, ("merge",)),
    "halves": ("Reshape", {}, ("halves",)),
    "turn": ("Transpose", {}, ()),
    "swap": ("Transpose", {"perm": [1, 0, 2]}, ()),
    "softmax": ("Softmax", {"axis": 0}, ()),
    "softmax last": ("Softmax", {"axis": -1}, ()),
    "sum": ("CumSum", {}, ("one",)),
    "mean": ("ReduceMean", {"axes": [0]}, ()),
    "mean last": ("ReduceMean", {"axes": [-1]}, ()),
    "argmax": ("ArgMax", {"axis": -1}, ()),
    "square": ("MatMul", {}, ("x",)),
    "weight": ("MatMul", {}, ("w",)),
    "norm": ("LayerNormalization", {"axis": -1}, ("w1",)),
    "flat": ("Flatten", {"axis": 2}, ()),
    "add": ("Add", {}, ("x",)),
}


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), old=st.sampled_from([1, 2]))
def test_what_is_accepted_gives_each_sample_its_own_result(
    steps: list[str], old: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes = []
    for index, step in enumerate(steps):
        op_type, attributes, others = STEPS[step]
        before = "x" if index == 0 else f"v{index}"
        nodes.append(helper.make_node(op_type, [before, *others], [f"v{index + 1}"], **attributes))
        if op_type == "ArgMax":
            nodes[-1].output[0] = "i"
            nodes.append(helper.make_node("Cast", ["i"], [f"v{index + 1}"], to=onnx.TensorProto.FLOAT))
    last = f"v{len(steps)}"
    weights = {
        "rows": ints(old * 4, 4),
        "back": ints(old, 4, 4),
        "merge": ints(old, 16),
        "halves": ints(old * 2, 2, 4),
        "one": ints(1),
        "w": RNG.random((4, 4), dtype=np.float32),
        "w1": RNG.random(4, dtype=np.float32),
    }
    path = save(tmp_path_factory.mktemp("m") / "m.onnx", nodes, [value("x", [old, 4, 4])], [value(last, None)], weights)
    x = RNG.random((2 * old, 4, 4), dtype=np.float32)
    try:
        parts = [run_file(path, {"x": x[start : start + old]})[last] for start in (0, old)]
        wide = load_model(path, LoadOptions(batch=2 * old))
    except (ModelError, Fail, InvalidArgument):  # refused, or not a model at all
        return
    narrow = load_model(path).graph.tensors[last].dims
    (axis,) = (d for d, (a, b) in enumerate(zip(narrow, wide.graph.tensors[last].dims, strict=True)) if a != b)
    found = rebuild_and_run(wide, {"x": x})[last]
    np.testing.assert_allclose(found, np.concatenate(parts, axis), rtol=1e-4, atol=1e-5)
