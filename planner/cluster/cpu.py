"""CPU devices: equal groups of cores of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from planner.cluster.cgroup import core_limit, memory_limit_bytes
from planner.cluster.links import connect
from planner.cluster.sheets import link_for
from planner.cluster.types import MAX_DEVICES, Cluster, Device
from planner.errors import UsageError

_SPEC = re.compile(r"([0-9]{1,4})(?:x([0-9]{1,4}))?\Z")
_GIB = 1 << 30


def cpu_devices(spec: str, *, anywhere: bool = False) -> Cluster:
    """Devices made of this machine's usable cores.

    Args:
        spec: ``2``: two equal, disjoint groups of all usable cores; ``2x1``: two devices of one core each. More
            devices than cores share cores round-robin and are marked ``shared``.
        anywhere: number the cores of the second form from 0, whatever cores are here: nothing is measured on them, and
            the launcher finds as many.

    Raises:
        UsageError: if the text is neither form.
    """
    match = _SPEC.match(spec.strip())
    cores = range(int(match[1]) * int(match[2])) if anywhere and match and match[2] else paid_cores()
    return divide_cores(spec, cores, cpu_model_name(), total_memory_bytes())


def divide_cores(spec: str, cores: Sequence[int], model_name: str, memory_bytes: int) -> Cluster:
    """As :func:`cpu_devices`, for a machine described by its arguments."""
    match = _SPEC.match(spec.strip())
    count = int(match[1]) if match else 0
    wanted = int(match[2]) if match and match[2] else 0
    if match is None or not 0 < count <= MAX_DEVICES or (match[2] is not None and wanted == 0):
        raise UsageError(
            f"'{spec}' names no CPU devices",
            where="--cpus",
            expected=f"a number such as 2, or 2x1 (devices x cores), of up to {MAX_DEVICES} devices",
        )
    if wanted > len(cores):
        raise UsageError(
            f"a device of {wanted} cores, and there are {len(cores)} here",
            where="--cpus",
            expected=f"at most {len(cores)} cores a device",
            next_step="to plan for another machine, give a --profile that was measured there",
        )
    size = wanted or max(1, len(cores) // count)
    shared = count * size > len(cores)
    groups = [tuple(sorted({cores[(first * size + i) % len(cores)] for i in range(size)})) for first in range(count)]
    devices = tuple(
        Device(
            name=f"cpu:{position}",
            kind=f"cpu-{slug(model_name)}-{len(group)}c",
            type="cpu",
            # Whole GiB, so that the few MiB a kernel keeps for itself do not change plans between reboots.
            memory_bytes=(memory_bytes // _GIB * _GIB or memory_bytes) // count,
            cores=group,
            index=position,
            shared=shared,
        )
        for position, group in enumerate(groups)
    )
    return Cluster(devices, connect(devices, lambda _src, _dst: link_for("shared-memory")))


def usable_cores() -> tuple[int, ...]:
    """Cores that this process may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def paid_cores() -> tuple[int, ...]:
    """Cores for devices: the usable ones, in a container with a quota of processor time as many as that pays for."""
    return usable_cores()[: core_limit()]


def cpu_model_name() -> str:
    """Model name as the kernel gives it, or ``unknown``."""
    return _first(Path("/proc/cpuinfo"), "model name") or "unknown"


def total_memory_bytes() -> int:
    """Physical memory of this machine, or of the container."""
    found = _first(Path("/proc/meminfo"), "MemTotal")
    physical = int(found.split()[0]) * 1024 if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(physical, memory_limit_bytes() or physical)


def slug(name: str) -> str:
    """``AMD EPYC 7B13 64-Core Processor`` -> ``amd-epyc-7b13-64-core-processor``."""
    cleaned = re.sub(r"\((?:r|tm|c)\)", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", cleaned).strip("-") or "unknown"


def _first(path: Path, key: str) -> str:
    """Value of the first ``key : value`` line of a /proc file; empty if there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
