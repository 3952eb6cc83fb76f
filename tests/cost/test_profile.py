"""The profile file: stable, mergeable, strict."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.profile import (
    Measurement,
    ProfileKey,
    ProfileTable,
    link_key,
    parse_profile,
    read_profile,
    segment_key,
    write_profile,
)
from planner.errors import OutputError, ProfileError

A = ProfileKey("cpu-x-1c", "cpu", "Conv(float32:1x3)->float32:1x8")
B = ProfileKey("v100", "cuda", segment_key("sha256:00"))
C = ProfileKey("v100", "cuda", link_key("v100"))
TABLE = ProfileTable(
    {
        B: Measurement(7, 5, "1.32.0"),
        A: Measurement(9, 5, "1.32.0"),
        C: Measurement(44_000, 5, "1.31.0", 12_000_000_000),
    }
)
ENTRIES = st.dictionaries(
    st.builds(ProfileKey, st.text(max_size=8), st.sampled_from(["cpu", "cuda"]), st.text(max_size=12)),
    st.builds(Measurement, st.integers(0, 10**12), st.integers(1, 99), st.just("1.32.0"), st.integers(0, 10**12)),
    max_size=8,
)


@given(ENTRIES)
def test_reads_back_as_written(entries: dict[ProfileKey, Measurement]) -> None:
    table = ProfileTable(entries)
    assert parse_profile(table.to_text(), "p").entries == entries


def test_file_is_sorted_with_one_line_an_entry() -> None:
    lines = TABLE.to_text().splitlines()
    assert lines[:2] == ["schema: fddps/profile/v1", "entries:"]
    assert len(lines) == 2 + len(TABLE.entries)
    assert lines[2:] == sorted(lines[2:])


def test_digest_ignores_the_order_of_measuring() -> None:
    backwards = ProfileTable(dict(reversed(list(TABLE.entries.items()))))
    assert backwards.digest() == TABLE.digest()
    assert TABLE.merged(ProfileTable({A: Measurement(8, 5, "1.32.0")})).digest() != TABLE.digest()


def test_merge_prefers_the_newer_table(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    write_profile(TABLE, old)
    write_profile(ProfileTable({A: Measurement(1, 3, "1.33.0")}), new)
    merged = read_profile(old).merged(read_profile(new))
    assert merged.entries[A].ns == 1
    assert merged.entries[B] == TABLE.entries[B]


def test_write_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    write_profile(TABLE, path)
    write_profile(TABLE, path)
    assert [p.name for p in tmp_path.iterdir()] == ["p.yaml"]
    assert read_profile(path) == TABLE


def test_version_note() -> None:
    assert "1 of 3" in TABLE.version_note("1.32.0")
    assert ProfileTable({A: Measurement(1, 1, "1.32.0")}).version_note("1.32.0") == ""


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "p"),
        ("schema: fddps/profile/v2\nentries: []\n", "p:schema"),
        (
            "schema: fddps/profile/v1\nentries:\n- {kind: a, provider: cpu, key: k, ns: -1, repeats: 1, ort: x}\n",
            "p:entries.0.ns",
        ),
        (
            "schema: fddps/profile/v1\nentries:\n- {kind: a, provider: cpu, key: k, ns: 1.5, repeats: 1, ort: x}\n",
            "p:entries.0.ns",
        ),
        (
            "schema: fddps/profile/v1\nentries:\n- {kind: a, provider: cpu, key: k, ns: 1, repeats: 1, ort: x, b: 1}\n",
            "p:entries.0.b",
        ),
        (
            "schema: fddps/profile/v1\nentries:\n"
            + 2 * "- {kind: a, provider: cpu, key: k, ns: 1, repeats: 1, ort: x}\n",
            "p:entries.1",
        ),
        ("<<<<<<< HEAD\n", "p"),
    ],
)
def test_wrong_files_are_refused_with_their_place(text: str, where: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "p")
    assert str(caught.value).startswith(where)


def test_missing_and_unwritable_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "none.yaml")
    with pytest.raises(OutputError, match="cannot be written"):
        write_profile(TABLE, tmp_path / "no" / "p.yaml")


@pytest.mark.parametrize("text", ["", "hello", "[1]"])
def test_a_file_without_keys_is_no_profile(text: str) -> None:
    with pytest.raises(ProfileError, match=r"^p\.yaml: not a profile; expected a mapping"):
        parse_profile(text, "p.yaml")
