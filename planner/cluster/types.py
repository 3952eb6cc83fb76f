"""The machine: devices on nodes, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.units import NS_PER_S

# Every pair of devices has a link, and a plan lists them all.
MAX_DEVICES: Final = 256


@dataclass(frozen=True, slots=True)
class Device:
    """One place where a segment can run.

    Attributes:
        name: ``cuda:0`` or ``cpu:1``; unique in its cluster.
        kind: what costs are keyed by: a device kind of ``profiles/`` (``v100-sxm2-16gb``), or for CPU devices
            ``cpu-<slug of the model name>-<cores>c``.
        type: ``cpu`` or ``cuda``.
        memory_bytes: memory that a plan may use.
        node: the machine it sits in.
        cores: for CPU devices the cores its worker is pinned to.
        index: for GPUs the CUDA device id.
        uuid: provenance only.
        shared: more devices than cores: results count, times do not.
    """

    name: str
    kind: str
    type: str
    memory_bytes: int
    node: str = "node0"
    cores: tuple[int, ...] = ()
    index: int = 0
    uuid: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link between two devices.

    Attributes:
        src: source device name.
        dst: destination device name.
        latency_ns: cost of an empty transfer (on CPU devices: the hand-over between workers).
        bytes_per_s: bandwidth; 0 means that the size does not matter (shared memory).
        channel: transfers on links of the same channel queue behind each other (a shared PCIe uplink, a network card).
        kind: ``nvlink2``, ``pcie3-x16``, ``ethernet-100g``, ``shared-memory``, ...
    """

    src: str
    dst: str
    latency_ns: int
    bytes_per_s: int
    channel: str = ""
    kind: str = ""

    def transfer_ns(self, nbytes: int) -> int:
        """Time of one transfer, without queueing."""
        if self.bytes_per_s == 0:
            return self.latency_ns
        return self.latency_ns + -(-nbytes * NS_PER_S // self.bytes_per_s)

    def queue(self, number: int) -> tuple[str, ...]:
        """What a transfer waits in: the link's channel, or the link; in shared memory (only a wake-up counts) nothing.

        Args:
            number: of the transfer; one that waits for nothing has a queue of its own.
        """
        if self.channel:
            return (self.channel,)
        own = (self.src, self.dst)
        return own if self.bytes_per_s else (*own, str(number))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices and links.

    Attributes:
        devices: in the order that placements count them.
        links: one for every ordered pair of different devices.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]

    def index(self, name: str) -> int:
        """Position of a device.

        Raises:
            KeyError: if there is none of that name.
        """
        for position, device in enumerate(self.devices):
            if device.name == name:
                return position
        raise KeyError(name)

    def link(self, src: str, dst: str) -> Link:
        """The link between two different devices.

        Raises:
            KeyError: if there is none.
        """
        for link in self.links:
            if link.src == src and link.dst == dst:
                return link
        raise KeyError((src, dst))

    def nodes(self) -> tuple[str, ...]:
        """Node names in order of first use."""
        return tuple(dict.fromkeys(device.node for device in self.devices))
