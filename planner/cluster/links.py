"""Which transfers queue behind each other: links between devices from kinds of links."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.cluster.sheets import LinkSheet
from planner.cluster.types import Device, Link


def connect(devices: Sequence[Device], sheet_of: Callable[[Device, Device], LinkSheet]) -> tuple[Link, ...]:
    """One link for every ordered pair of different devices.

    Args:
        devices: the cluster's devices.
        sheet_of: the kind of link from one device to another.
    """
    return tuple(make_link(src, dst, sheet_of(src, dst)) for src in devices for dst in devices if src.name != dst.name)


def make_link(src: Device, dst: Device, sheet: LinkSheet, *, lanes: int = 1, channel: str | None = None) -> Link:
    """A directed link.

    Args:
        src: source.
        dst: destination.
        sheet: its kind.
        lanes: parallel links of that kind.
        channel: queue it shares with other links; by default what the kind says.
    """
    if channel is None:
        channel = {
            "per-pair": "",
            "per-source": f"{sheet.kind}:{src.name}",
            "per-node": f"{sheet.kind}:{src.node}",
        }[sheet.channel]
    return Link(src.name, dst.name, sheet.latency_ns, sheet.bytes_per_s * lanes, channel, sheet.kind)
