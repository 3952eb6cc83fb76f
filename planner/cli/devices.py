"""``fddps devices``: what there is to plan for on this machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import FILE, with_terminal
from planner.cli.terminal import Terminal

if TYPE_CHECKING:
    from planner.cluster.gpu import Discovery
    from planner.cluster.types import Cluster

_EPILOG = """\b
Examples:
  fddps devices
  fddps devices --cpus 2      # the core groups that --cpus 2 makes
  fddps devices --cluster cluster.yaml    # what a cluster description means
"""


@click.command("devices", epilog=_EPILOG, short_help="List GPUs and CPU core groups, memory, links.")
@click.option("--cpus", default="1", show_default=True, metavar="N|NxC", help="How to group the cores.")
@click.option("--cluster", type=FILE, help="List the devices of a cluster description (YAML) instead.")
@with_terminal
def command(terminal: Terminal, cpus: str, cluster: Path | None) -> None:
    """List the GPUs and the CPU core groups of this machine, their memory and the links between them."""
    from planner.cluster.cpu import cpu_devices
    from planner.cluster.gpu import Discovery, discover
    from planner.cluster.load import load_cluster

    found = Discovery((), {}) if cluster is not None else discover()
    devices = load_cluster(cluster) if cluster is not None else cpu_devices(cpus)
    if terminal.json:
        terminal.result(_data(found, devices))
        return
    _show(terminal, found, devices)
    if not found.gpus and cluster is None:
        terminal.note(f"no GPUs: {found.reason or 'NVML reports none'}; plan for some with --profile v100-sxm2-16gb")
    if sharing := _sharing(devices):
        terminal.note(f"{', '.join(sharing)} share cores: results of a plan for them count, times do not")


def _sharing(cluster: Cluster) -> list[str]:
    """Names of devices with a core that another has too."""
    owners = Counter((device.node, core) for device in cluster.devices for core in device.cores)
    return [d.name for d in cluster.devices if any(owners[d.node, core] > 1 for core in d.cores)]


def _data(found: Discovery, cluster: Cluster) -> dict[str, Any]:
    gpus = [
        {
            "name": f"cuda:{gpu.index}",
            "kind": gpu.name,
            "type": "cuda",
            "memory_bytes": gpu.memory_bytes,
            "uuid": gpu.uuid,
        }
        for gpu in found.gpus
    ]
    sharing = _sharing(cluster)
    cpus = [
        {
            "name": d.name,
            "kind": d.kind,
            "type": "cpu",
            "memory_bytes": d.memory_bytes,
            "cores": list(d.cores),
            "shares_cores": d.name in sharing,
        }
        for d in cluster.devices
    ]
    links = [{"src": f"cuda:{i}", "dst": f"cuda:{j}", "kind": kind} for (i, j), kind in found.link_kinds.items()]
    links += [{"src": link.src, "dst": link.dst, "kind": link.kind} for link in cluster.links]
    return {"devices": [*gpus, *cpus], "links": links, "driver": found.driver}


def _show(terminal: Terminal, found: Discovery, cluster: Cluster) -> None:
    from rich.table import Table
    from rich.text import Text

    from planner.units import format_size

    data = _data(found, cluster)
    table = Table("device", "kind", title="Devices", title_justify="left")
    table.add_column("memory", justify="right")
    table.add_column("cores, UUID")
    for device in data["devices"]:
        place = device.get("uuid") or ", ".join(map(str, device.get("cores", ())))
        table.add_row(device["name"], Text(device["kind"]), format_size(device["memory_bytes"]), Text(place))
    links = Table("from", "to", "link", title="Links", title_justify="left")
    for link in data["links"]:
        links.add_row(link["src"], link["dst"], Text(link["kind"]))
    terminal.show(table, *([links] if data["links"] else []))
