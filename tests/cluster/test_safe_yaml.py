"""Reading YAML from strangers, and writing what reads back equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import ClusterError, FddpsError, PlanError, UsageError
from planner.safe_yaml import dump_yaml, load_yaml, read_limited

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(
        ["no", "12:30", "1e5", "0o7", "012", "1_0", "~", "- a", "a: b", "a #b", "<<", "2020-01-01", "k" * 2000]
    )
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.just("x" * 1500), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(DATA, st.none() | st.integers(0, 3), st.booleans())
def test_what_is_written_reads_back_equal(data: Any, block_depth: int | None, sort_keys: bool) -> None:
    text = dump_yaml(data, block_depth=block_depth, sort_keys=sort_keys)
    assert load_yaml(text, "x") == data
    assert load_yaml(text.encode(), "x") == data


@settings(max_examples=100, deadline=None)
@given(DATA)
def test_other_yaml_readers_agree(data: Any) -> None:
    assert yaml.safe_load(dump_yaml(data, block_depth=1)) == data


def test_words_stay_words_and_keys_are_strings() -> None:
    assert load_yaml("{on: no, 1: 12:30, b: 012, c: 1_0}", "x") == {"on": "no", "1": "12:30", "b": "012", "c": "1_0"}


def test_core_schema_numbers() -> None:
    assert load_yaml("[1, -2, 1.5, 1e3, .5, true, null, '1', \"2\"]", "x") == [
        1,
        -2,
        1.5,
        1000.0,
        0.5,
        True,
        None,
        "1",
        "2",
    ]


def test_one_line_an_entry() -> None:
    assert (
        dump_yaml({"tasks": [{"a": 1, "b": [1, 2]}], "e": {}}, block_depth=2) == "tasks:\n- {a: 1, b: [1, 2]}\ne: {}\n"
    )


def test_order_is_kept_or_sorted() -> None:
    assert dump_yaml({"b": 1, "a": 2}) == "b: 1\na: 2\n"
    assert dump_yaml({"b": 1, "a": 2}, sort_keys=True) == "a: 2\nb: 1\n"


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: 1\nb: 2\na: 3", 3, "twice"),
        ("a: {x: 1,\n x: 2}", 2, "twice"),
        ("a: &x 1", 1, "anchor"),
        ("a: 1\nb: *x", 2, "alias"),
        ("a: !!python/object:os.system 3", 1, "tag"),
        ("a: 1\n? [a]\n: b", 2, "key"),
        ("a: 1\n---\nb: 1", 2, "document"),
        ("a:\n  - [", 3, "YAML"),
        ("[" * 33 + "]" * 33, 1, "deep"),
    ],
)
def test_refusals_name_the_line(text: str, line: int, word: str) -> None:
    with pytest.raises(PlanError, match=word) as caught:
        load_yaml(text, "f.yaml", error=PlanError)
    assert str(caught.value).startswith(f"f.yaml:{line}")
    assert "\n" not in str(caught.value)


def test_limits() -> None:
    with pytest.raises(UsageError, match="at most 10 bytes"):
        load_yaml("a" * 11, "f", max_bytes=10)
    with pytest.raises(UsageError, match="at most 5"):
        load_yaml("[1, 2, 3, 4, 5, 6]", "f", max_nodes=5)
    assert load_yaml("[[1]]", "f", max_depth=2) == [[1]]
    with pytest.raises(UsageError, match="at most 1 levels"):
        load_yaml("[[1]]", "f", max_depth=1)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00a", b"\x80", b"a: \x01"])
def test_binary_is_refused(data: bytes) -> None:
    with pytest.raises(ClusterError, match=r"^f\.bin"):
        load_yaml(data, "f.bin", error=ClusterError)


def test_empty_document() -> None:
    assert load_yaml("", "x") is None
    assert load_yaml("# only a comment\n", "x") is None


def test_unknown_type_is_an_error() -> None:
    with pytest.raises(TypeError):
        dump_yaml({"a": {1, 2}})


def test_no_more_of_a_file_is_read_than_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FddpsError, match="too large"):
        load_yaml(read_limited(Path("/dev/zero"), 100), "zero", max_bytes=100)
    (tmp_path / "cut").write_bytes("é".encode() * 51)
    with pytest.raises(FddpsError, match="too large"):
        load_yaml(read_limited(tmp_path / "cut", 100), "cut", max_bytes=100)
