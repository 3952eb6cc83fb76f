"""Measured costs: the profile table and its file.

A profile is a text file, one line an entry, sorted, so that two people's measurements merge in git. Kinds of keys:

    Conv(...)...            a fused group (``cost.keys.group_key``)
    segment:<digest>        a whole segment or model
    plan:<digest>           a plan that was run; 0 ns: it failed
    dispatch                starting one segment
    link:<destination kind> a transfer; ``ns`` is the latency, ``bytes_per_s`` the bandwidth
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import ProfileError
from planner.plan.atomic import write_text_atomically
from planner.safe_yaml import dump_yaml, load_yaml, read_limited

SCHEMA_ID = "fddps/profile/v1"
DISPATCH_KEY = "dispatch"


class ProfileKey(NamedTuple):
    """What an entry is about.

    Attributes:
        kind: device kind.
        provider: ONNX Runtime execution provider: ``cpu`` or ``cuda``.
        key: what was measured; see the module.
    """

    kind: str
    provider: str
    key: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured cost.

    Attributes:
        ns: lower quartile of the repeats, of transfers the median; overheads subtracted. An operator has its share of a
            session's step, and a segment of a plan that ran is scaled until the simulated step is the measured one.
        repeats: how many.
        ort_version: ONNX Runtime that ran it.
        bytes_per_s: for links: bandwidth; else 0.
    """

    ns: int
    repeats: int
    ort_version: str
    bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """Measured costs by device kind, provider and key."""

    entries: Mapping[ProfileKey, Measurement] = field(default_factory=dict)

    def find(self, kind: str, provider: str, key: str) -> Measurement | None:
        """The measurement, or None."""
        return self.entries.get(ProfileKey(kind, provider, key))

    def merged(self, other: ProfileTable) -> ProfileTable:
        """Both tables' entries; ``other`` wins where both have one."""
        return ProfileTable({**self.entries, **other.entries})

    def sorted_entries(self) -> list[tuple[ProfileKey, Measurement]]:
        """Entries in the file's order."""
        return sorted(self.entries.items(), key=lambda entry: entry[0])

    def digest(self) -> str:
        """``sha256:...`` of the content, whatever order it was measured in."""
        return "sha256:" + hashlib.sha256(self.to_text().encode()).hexdigest()

    def version_note(self, ort_version: str) -> str:
        """A warning if entries were measured with another ONNX Runtime; else empty."""
        others = sorted({m.ort_version for m in self.entries.values()} - {ort_version})
        if not others:
            return ""
        count = sum(m.ort_version != ort_version for m in self.entries.values())
        return (
            f"{count} of {len(self.entries)} profile entries were measured with ONNX Runtime {', '.join(others)}, "
            f"this is {ort_version}: measure again if predictions are off"
        )

    def to_text(self) -> str:
        """The profile file's content."""
        data = {
            "schema": SCHEMA_ID,
            "entries": [_line(key, measurement) for key, measurement in self.sorted_entries()],
        }
        return dump_yaml(data, block_depth=2)


def link_key(dst_kind: str) -> str:
    """Key of a link's entry; the entry's ``kind`` is that of the source device."""
    return f"link:{dst_kind}"


def segment_key(digest: str) -> str:
    """Key of a whole segment or model."""
    return f"segment:{digest}"


def plan_key(digest: str) -> str:
    """Key of a plan as a whole."""
    return f"plan:{digest}"


def read_profile(path: Path) -> ProfileTable:
    """Read a profile file.

    Raises:
        ProfileError: if it cannot be read, or breaks the schema.
    """
    try:
        text = read_limited(path)
    except OSError as problem:
        raise ProfileError(
            f"cannot be read: {problem.strerror}", where=str(path), next_step="check --profile"
        ) from None
    return parse_profile(text, str(path))


def parse_profile(text: str | bytes, where: str) -> ProfileTable:
    """As :func:`read_profile`, from text."""
    data = load_yaml(text, where, error=ProfileError)
    if not isinstance(data, dict):
        raise ProfileError("not a profile", where=where, expected=f"a mapping with 'schema: {SCHEMA_ID}'")
    try:
        raw = _File.model_validate(data)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ProfileError(
            first["msg"].lower(), where=f"{where}:{key}", expected=f"a profile, schema {SCHEMA_ID}"
        ) from None
    entries: dict[ProfileKey, Measurement] = {}
    for position, entry in enumerate(raw.entries):
        key_of = ProfileKey(entry.kind, entry.provider, entry.key)
        if key_of in entries:
            raise ProfileError(
                f"'{entry.key}' occurs twice",
                where=f"{where}:entries.{position}",
                expected="one entry a key",
                next_step="keep the better of the two lines",
            )
        entries[key_of] = Measurement(entry.ns, entry.repeats, entry.ort, entry.bytes_per_s)
    return ProfileTable(entries)


def write_profile(table: ProfileTable, path: Path) -> None:
    """Write a profile file; no reader ever sees half of one.

    Raises:
        OutputError: if it cannot be written.
    """
    write_text_atomically(path, table.to_text())


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Entry(_Record):
    kind: str
    provider: str
    key: str
    ns: int = Field(ge=0)
    repeats: int = Field(ge=1)
    ort: str
    bytes_per_s: int = Field(default=0, ge=0)


class _File(_Record):
    schema_id: Literal["fddps/profile/v1"] = Field(alias="schema")
    entries: list[_Entry]


def _line(key: ProfileKey, measurement: Measurement) -> dict[str, str | int]:
    line: dict[str, str | int] = {
        "kind": key.kind,
        "provider": key.provider,
        "key": key.key,
        "ns": measurement.ns,
        "repeats": measurement.repeats,
        "ort": measurement.ort_version,
    }
    if measurement.bytes_per_s:
        line["bytes_per_s"] = measurement.bytes_per_s
    return line
