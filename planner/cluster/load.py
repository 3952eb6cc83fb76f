"""Cluster descriptions in YAML: nodes, their devices, and how these are linked.

    schema: fddps/cluster/v1
    nodes:
    - name: node0
      devices: [{kind: v100-sxm2-16gb, count: 2}, {kind: t4, count: 2, memory: 14GiB}]
      link: pcie3-x16                                        # between every two devices of the node
      links: [{between: [0, 1], kind: nvlink2, lanes: 2}]    # exceptions, both directions
      uplinks: [{name: switch1, devices: [2, 3]}]            # transfers in and out of the group queue
    network: ethernet-100g                                   # between nodes, one network card a node

Devices are counted within their node, in the order listed. CPU devices are ``{kind: cpu, cores: 8}``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.cluster.links import make_link
from planner.cluster.sheets import link_for, parse_record, sheet_for
from planner.cluster.types import MAX_DEVICES, Cluster, Device, Link
from planner.errors import ClusterError
from planner.resources import data_path
from planner.safe_yaml import read_limited
from planner.units import parse_size


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _Devices(_Record):
    kind: str
    count: int = Field(default=1, ge=1, le=MAX_DEVICES)
    memory: str | int = ""
    cores: int = Field(default=0, ge=0, le=4096)


class _PairLink(_Record):
    between: list[int] = Field(min_length=2, max_length=2)
    kind: str
    lanes: int = Field(default=1, ge=1, le=64)


class _Uplink(_Record):
    name: _Name
    devices: list[int] = Field(min_length=1)


class _Node(_Record):
    name: _Name
    devices: list[_Devices] = Field(min_length=1)
    link: str = ""
    links: list[_PairLink] = []
    uplinks: list[_Uplink] = []


class _ClusterFile(_Record):
    schema_id: Literal["fddps/cluster/v1"] = Field(alias="schema")
    nodes: list[_Node] = Field(min_length=1)
    network: str = ""


def load_cluster(path: Path) -> Cluster:
    """Read a cluster description.

    Args:
        path: the YAML file, see the module for its form; or the name of one that ships with fddps.

    Raises:
        ClusterError: if it cannot be read, breaks the form, or names an unknown kind.
    """
    shipped = data_path("configs") / "clusters" / f"{path.name.removesuffix('.yaml')}.yaml"
    if not path.exists() and shipped.is_file() and path.parent in (Path("."), Path("configs/clusters")):
        path = shipped
    try:
        text = read_limited(path)
    except OSError as problem:
        raise ClusterError(
            f"cannot be read: {problem.strerror}", where=str(path), next_step="check --cluster"
        ) from None
    return parse_cluster(text, str(path))


def parse_cluster(text: str | bytes, where: str) -> Cluster:
    """As :func:`load_cluster`, from text."""
    raw = parse_record(_ClusterFile, text, where, ClusterError)
    names = [node.name for node in raw.nodes]
    for name in names:
        if names.count(name) > 1:
            raise ClusterError(f"node '{name}' occurs twice", where=f"{where}:nodes", expected="each name once")
    if len(names) > 1 and not raw.network:
        raise ClusterError(
            f"{len(names)} nodes without a network",
            where=f"{where}:network",
            expected="a link kind such as ethernet-100g",
        )
    total = sum(entry.count for node in raw.nodes for entry in node.devices)
    if total > MAX_DEVICES:
        raise ClusterError(f"{total} devices", where=f"{where}:nodes", expected=f"at most {MAX_DEVICES}")
    by_node = [_devices(node, len(names) > 1, where) for node in raw.nodes]
    links: list[Link] = []
    for node, own in zip(raw.nodes, by_node, strict=True):
        inside = _node_links(node, own, where)
        for src in own:
            for other in by_node:
                for dst in other:
                    if dst.node != src.node:
                        links.append(make_link(src, dst, link_for(raw.network, f"{where}:network")))
                    elif dst is not src:
                        links.append(inside[src.name, dst.name])
    return Cluster(tuple(device for own in by_node for device in own), tuple(links))


def _devices(node: _Node, several_nodes: bool, where: str) -> list[Device]:
    prefix = f"{node.name}/" if several_nodes else ""
    counts = {"cuda": 0, "cpu": 0}
    next_core = 0
    devices: list[Device] = []
    for entry in node.devices:
        at = f"{where}:nodes.{node.name}.devices"
        cores = max(entry.cores, 1)
        try:
            sheet = sheet_for(f"cpu-generic-{cores}c" if entry.kind in ("cpu", "cpu-generic") else entry.kind)
        except ClusterError as problem:
            raise ClusterError(problem.what, where=at, expected=problem.expected) from None
        if entry.cores and sheet.type != "cpu":
            raise ClusterError(f"'{entry.kind}' has no cores to name", where=at, expected="cores for CPU devices only")
        memory = _memory(entry.memory, at) or sheet.memory_bytes
        for _ in range(entry.count):
            index = counts[sheet.type]
            counts[sheet.type] += 1
            own = tuple(range(next_core, next_core + cores)) if sheet.type == "cpu" else ()
            next_core += len(own)
            devices.append(
                Device(f"{prefix}{sheet.type}:{index}", sheet.kind, sheet.type, memory, node.name, own, index)
            )
    return devices


def _memory(size: str | int, where: str) -> int:
    if size == "":
        return 0
    try:
        nbytes = size if isinstance(size, int) else parse_size(size)
    except ValueError as problem:
        raise ClusterError(str(problem), where=f"{where}.memory") from None
    if nbytes <= 0:
        raise ClusterError(f"memory of {nbytes} bytes", where=f"{where}.memory", expected="a size such as 14GiB")
    return nbytes


def _node_links(node: _Node, devices: list[Device], where: str) -> dict[tuple[str, str], Link]:
    """Links inside a node: exceptions first, then uplinks' shared channels, then the node's usual link."""
    at = f"{where}:nodes.{node.name}"
    usual = link_for(node.link or sheet_for(devices[0].kind).link, f"{at}.link")
    pairs: dict[frozenset[int], _PairLink] = {}
    for pair in node.links:
        _check_positions(pair.between, len(devices), f"{at}.links")
        if frozenset(pair.between) in pairs:
            raise ClusterError(f"pair {pair.between} occurs twice", where=f"{at}.links", expected="each pair once")
        pairs[frozenset(pair.between)] = pair
    uplink_of: dict[int, str] = {}
    for uplink in node.uplinks:
        _check_positions(uplink.devices, len(devices), f"{at}.uplinks")
        for position in uplink.devices:
            if position in uplink_of:
                raise ClusterError(f"device {position} has two uplinks", where=f"{at}.uplinks", expected="one at most")
            uplink_of[position] = uplink.name
    found: dict[tuple[str, str], Link] = {}
    for i, src in enumerate(devices):
        for j, dst in enumerate(devices):
            if i == j:
                continue
            special = pairs.get(frozenset((i, j)))
            if special is not None:
                sheet = link_for(special.kind, f"{at}.links")
                found[src.name, dst.name] = make_link(src, dst, sheet, lanes=special.lanes)
            else:
                found[src.name, dst.name] = make_link(src, dst, usual, channel=_channel(node.name, uplink_of, i, j))
    return found


def _channel(node: str, uplink_of: dict[int, str], src: int, dst: int) -> str | None:
    """Queue of a transfer over an uplink (each direction has its own); None if it uses none."""
    leaving, entering = uplink_of.get(src), uplink_of.get(dst)
    if leaving == entering:
        return None
    return f"{node}/{leaving}/out" if leaving is not None else f"{node}/{entering}/in"


def _check_positions(positions: list[int], count: int, where: str) -> None:
    for position in positions:
        if not 0 <= position < count:
            raise ClusterError(f"no device {position}", where=where, expected=f"0 to {count - 1}")
    if len(set(positions)) != len(positions):
        raise ClusterError(f"{positions} names a device twice", where=where, expected="each once")
