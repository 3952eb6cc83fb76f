"""Data sheets: what is known of device kinds and links without measuring them.

``profiles/*.yaml`` holds one device kind a file, ``profiles/links.yaml`` the links; every figure names its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import ClusterError, FddpsError
from planner.resources import data_path
from planner.safe_yaml import load_yaml

FAMILIES = (
    "conv",
    "depthwise",
    "matmul",
    "rnn",
    "elementwise",
    "normalization",
    "pool",
    "reduction",
    "data-movement",
    "other",
)
_CPU_CORES = re.compile(r"cpu-.*-(\d+)c\Z")
_LINKS_FILE = "links.yaml"


@dataclass(frozen=True, slots=True)
class DataSheet:
    """One kind of device.

    Attributes:
        kind: e.g. ``v100-sxm2-16gb``.
        type: ``cpu`` or ``cuda``.
        memory_bytes: what a plan may use: all, less what the runtime reserves.
        peak_flops: operations per second by element type; ``tf32`` is what float32 matrix products may use.
        bytes_per_s: memory bandwidth that kernels reach.
        fill_elements: output elements of a matrix product at which half of the device is busy: small products leave
            multiprocessors idle. 0: none.
        launch_ns: overhead of one kernel.
        dispatch_ns: overhead of starting one segment.
        link: usual link between two of them.
        efficiency: attainable percentage of the peak by operator family.
        nvml_names: names the driver gives it.
        bytes_per_s_cap: for kinds whose figures are per core: the bandwidth of all cores together; 0: not per core.
    """

    kind: str
    type: Literal["cpu", "cuda"]
    memory_bytes: int
    peak_flops: Mapping[str, int]
    bytes_per_s: int
    launch_ns: int
    dispatch_ns: int
    link: str
    efficiency: Mapping[str, int]
    fill_elements: int = 0
    nvml_names: tuple[str, ...] = ()
    bytes_per_s_cap: int = 0

    def for_cores(self, kind: str, cores: int) -> DataSheet:
        """The sheet of a device of that many cores, from a per-core sheet."""
        return replace(
            self,
            kind=kind,
            memory_bytes=self.memory_bytes * cores,
            peak_flops={dtype: rate * cores for dtype, rate in self.peak_flops.items()},
            bytes_per_s=min(self.bytes_per_s * cores, max(self.bytes_per_s_cap, self.bytes_per_s)),
        )


@dataclass(frozen=True, slots=True)
class LinkSheet:
    """One kind of link, one direction.

    Attributes:
        kind: e.g. ``nvlink2``.
        latency_ns: an empty transfer, the hand-over between workers included.
        bytes_per_s: bandwidth that large copies reach; 0: size does not matter.
        channel: transfers queue ``per-pair`` of devices, ``per-source`` device or ``per-node``.
    """

    kind: str
    latency_ns: int
    bytes_per_s: int
    channel: Literal["per-pair", "per-source", "per-node"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Figure(_Record):
    value: int = Field(ge=0)
    source: str = Field(min_length=1)


class _Efficiency(_Record):
    source: str = Field(min_length=1)
    values: dict[str, int]


class _DeviceFile(_Record):
    schema_id: Literal["fddps/device/v1"] = Field(alias="schema")
    kind: str
    type: Literal["cpu", "cuda"]
    nvml_names: list[str]
    memory_gib: _Figure
    reserved_mib: _Figure
    memory_mb_per_s: _Figure
    memory_mb_per_s_cap: _Figure | None = None
    bandwidth_percent: _Figure
    peak_gflops: dict[str, _Figure]
    fill_elements: _Figure
    launch_overhead_ns: _Figure
    dispatch_ns: _Figure
    link: str
    efficiency_percent: _Efficiency


class _LinkEntry(_Record):
    latency_ns: int = Field(ge=0)
    mb_per_s: int = Field(ge=0)
    percent: int = Field(gt=0, le=100)
    channel: Literal["per-pair", "per-source", "per-node"]
    source: str = Field(min_length=1)


class _LinksFile(_Record):
    schema_id: Literal["fddps/links/v1"] = Field(alias="schema")
    handover_ns: _Figure
    latency_source: str = Field(min_length=1)
    percent_source: str = Field(min_length=1)
    links: dict[str, _LinkEntry]


RecordT = TypeVar("RecordT", bound=BaseModel)


def parse_record(record: type[RecordT], text: str | bytes, where: str, error: type[FddpsError]) -> RecordT:
    """A YAML text as a validated record; the first violation is named with its key."""
    data = load_yaml(text, where, error=error)
    if not isinstance(data, dict):
        raise error("holds no mapping", where=where, expected="keys and values in YAML", next_step="check the path")
    try:
        return record.model_validate(data)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise error(
            first["msg"].lower(), where=f"{where}:{key}" if key else where, next_step="correct the file"
        ) from None


@cache
def load_sheets(folder: Path | None = None) -> Mapping[str, DataSheet]:
    """Data sheets of all device kinds, by kind.

    Args:
        folder: where they are; by default those that ship with fddps.

    Raises:
        ClusterError: for a file that is wrong.
    """
    sheets: dict[str, DataSheet] = {}
    for path in sorted((folder or data_path("profiles")).glob("*.yaml")):
        if path.name != _LINKS_FILE:
            sheet = _parse_sheet(path)
            sheets[sheet.kind] = sheet
    return MappingProxyType(sheets)


def _parse_sheet(path: Path) -> DataSheet:
    raw = parse_record(_DeviceFile, path.read_text(encoding="utf-8"), path.name, ClusterError)
    for problem, bad in (
        (f"kind '{raw.kind}' is not the file's name", raw.kind != path.stem),
        ("float32 is missing from peak_gflops", "float32" not in raw.peak_gflops),
        ("efficiency_percent names other families", set(raw.efficiency_percent.values) != set(FAMILIES)),
    ):
        if bad:
            raise ClusterError(problem, where=path.name, next_step="correct the file")
    percent = raw.bandwidth_percent.value
    cap = raw.memory_mb_per_s_cap
    return DataSheet(
        kind=raw.kind,
        type=raw.type,
        memory_bytes=(raw.memory_gib.value << 30) - (raw.reserved_mib.value << 20),
        peak_flops={dtype: figure.value * 10**9 for dtype, figure in raw.peak_gflops.items()},
        bytes_per_s=raw.memory_mb_per_s.value * 10_000 * percent,
        launch_ns=raw.launch_overhead_ns.value,
        dispatch_ns=raw.dispatch_ns.value,
        link=raw.link,
        fill_elements=raw.fill_elements.value,
        efficiency=dict(raw.efficiency_percent.values),
        nvml_names=tuple(raw.nvml_names),
        bytes_per_s_cap=cap.value * 10_000 * percent if cap else 0,
    )


@cache
def load_links(folder: Path | None = None) -> Mapping[str, LinkSheet]:
    """Kinds of links, by name; latencies include the hand-over between two workers.

    Raises:
        ClusterError: if the file is wrong.
    """
    path = (folder or data_path("profiles")) / _LINKS_FILE
    raw = parse_record(_LinksFile, path.read_text(encoding="utf-8"), path.name, ClusterError)
    links = {
        kind: LinkSheet(
            kind, entry.latency_ns + raw.handover_ns.value, entry.mb_per_s * 10_000 * entry.percent, entry.channel
        )
        for kind, entry in raw.links.items()
    }
    return MappingProxyType(links)


def sheet_for(kind: str, sheets: Mapping[str, DataSheet] | None = None) -> DataSheet:
    """The sheet of a device kind; a CPU kind without one (``cpu-...-8c``) is ``cpu-generic`` with that many cores.

    Raises:
        ClusterError: for an unknown kind.
    """
    known = load_sheets() if sheets is None else sheets
    if kind in known:
        return known[kind]
    match = _CPU_CORES.match(kind)
    if match and "cpu-generic" in known:
        return known["cpu-generic"].for_cores(kind, int(match[1]))
    raise ClusterError(f"no data sheet for device kind '{kind}'", expected=f"one of {_listed(known)}")


def cpu_kind_parts(kind: str) -> tuple[str, int]:
    """``cpu-amd-epyc-8c`` -> (``cpu-amd-epyc``, 8); other kinds have no stem and 0 cores."""
    match = _CPU_CORES.match(kind)
    return (kind.removesuffix(f"-{match[1]}c"), int(match[1])) if match else ("", 0)


def link_for(kind: str, where: str = "") -> LinkSheet:
    """The sheet of a link kind.

    Raises:
        ClusterError: for an unknown kind.
    """
    links = load_links()
    if kind not in links:
        raise ClusterError(f"no link kind '{kind}'", where=where, expected=f"one of {_listed(links)}")
    return links[kind]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
