from __future__ import annotations

import io
import os
import zipfile

import ml_dtypes
import numpy as np
import pytest

from planner.errors import InputError, OutputError
from planner.graph.op_graph import TensorInfo
from planner.runtime.feeds import load_npz, random_feeds, save_npz
from tests.launcher.helpers import info


def test_random_inputs_have_types_shapes_and_ranges() -> None:
    inputs = [
        info("f", (100,)), info("h", (3,), "float16"), info("b", (2,), "bfloat16"), info("i", (500,), "int64"),
        info("u", (50,), "uint8"), info("t", (64,), "bool"), info("s", (2, 2), "string"), info("q", (9,), "int4"),
        info("scalar", (), "float32"), info("empty", (0, 3), "int32"), info("text", (), "string"),
    ]  # fmt: skip
    feeds = random_feeds(inputs, 0)
    assert list(feeds) == [i.name for i in inputs]
    assert all(feeds[i.name].shape == i.shape for i in inputs)
    assert feeds["f"].dtype == np.float32 and feeds["f"].std() > 0.5
    assert feeds["b"].dtype == ml_dtypes.bfloat16 and feeds["q"].dtype == ml_dtypes.int4
    assert feeds["i"].min() >= 0 and feeds["i"].max() <= 99
    assert set(feeds["t"].tolist()) == {True, False}
    assert all(isinstance(text, str) for text in feeds["s"].flat) and feeds["text"].dtype == object


def test_inputs_depend_on_seed_and_name_only() -> None:
    one = random_feeds([info("a"), info("b")], 1)
    other = random_feeds([info("b")], 1)
    np.testing.assert_array_equal(one["b"], other["b"])
    assert not np.array_equal(one["a"], one["b"])
    assert not np.array_equal(random_feeds([info("b")], 2)["b"], one["b"])


def test_integers_can_be_limited_by_name() -> None:
    feeds = random_feeds([info("ids", (200,), "int64"), info("n", (200,), "int64")], 0, int_high={"ids": 3})
    assert feeds["ids"].max() == 2 and feeds["n"].max() > 50


def test_what_has_no_random_values_is_named() -> None:
    with pytest.raises(InputError, match="input 'x': no random values for a sequence of float32"):
        random_feeds([TensorInfo("x", "float32", None, "sequence")], 0)


def test_any_name_and_type_survives_a_file(tmp_path) -> None:
    arrays = {
        "a/b:c": np.arange(3),
        "../x": np.float32([1.5]),
        "/abs": np.array(True),
        "n" * 3000: np.zeros((0, 2), np.int8),
        "ünï.npy": np.array(["a", "längere"], object),
        "sp ace\n": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "back\\slash": np.float16([1]),
        "": np.int64([4]),
    }
    path = tmp_path / "out.npz"
    save_npz(path, arrays)
    back = load_npz(path)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]
    save_npz(path, {"b": ml_dtypes.bfloat16(1.5) * np.ones(2, ml_dtypes.bfloat16), "s": np.zeros((0,), object)})
    back = load_npz(path)
    assert back["b"].dtype == np.float32 and back["b"].tolist() == [1.5, 1.5] and back["s"].shape == (0,)


def test_equal_arrays_give_equal_files(tmp_path) -> None:
    for name in ("a", "b"):
        save_npz(tmp_path / name, {"x": np.arange(4)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "out.npz"
    save_npz(path, {"x": np.arange(4)})
    before = path.read_bytes()
    with pytest.raises(OutputError, match="output 'y' is a list"):
        save_npz(path, {"x": np.arange(9), "y": [np.arange(2)]})
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["out.npz"]
    with pytest.raises(OutputError, match="cannot be written"):
        save_npz(tmp_path / "no" / "out.npz", {})


def test_what_is_no_regular_file_is_written_to_and_links_stay(tmp_path) -> None:
    # A pipe, not /dev/null: if this went wrong, root would lose the device for all programs.
    pipe, link, copy = tmp_path / "pipe", tmp_path / "link.npz", tmp_path / "copy.npz"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_npz(pipe, {"x": np.arange(4)})
        copy.write_bytes(os.read(end, 1 << 16))
    finally:
        os.close(end)
    assert pipe.is_fifo() and load_npz(copy)["x"].tolist() == [0, 1, 2, 3]
    link.symlink_to(copy)
    save_npz(link, {"x": np.arange(2)})
    assert link.is_symlink() and load_npz(copy)["x"].tolist() == [0, 1]


def test_bad_files_are_one_line(tmp_path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.array([{}], dtype=object))
    single = tmp_path / "one.npy"
    np.save(single, np.arange(3))
    text = tmp_path / "text.npz"
    text.write_text("hello")
    empty = tmp_path / "empty.npz"
    empty.write_bytes(b"")
    cut = tmp_path / "cut.npz"
    save_npz(cut, {"x": np.arange(1000)})
    cut.write_bytes(cut.read_bytes()[:900])
    for bad in (path, single, text, empty, cut, tmp_path, tmp_path / "missing.npz"):
        with pytest.raises(InputError) as caught:
            load_npz(bad)
        assert str(bad) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("names", [("x.npy", "x.npy"), ("x.npy", "x")])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_refused(tmp_path, names: tuple[str, str]) -> None:
    array = io.BytesIO()
    np.save(array, np.zeros(2, np.float32))
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        for name in names:
            archive.writestr(name, array.getvalue())
    with pytest.raises(InputError, match="'x' is in it twice"):
        load_npz(tmp_path / "in.npz")
