"""Which cores and which GPUs of this machine the devices of a plan are."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime as ort

from planner.cluster.cpu import usable_cores
from planner.cluster.gpu import gpu_kind
from planner.errors import ExecutionError, UsageError
from planner.plan.schema import ClusterSpec, DeviceSpec
from planner.units import format_size


@dataclass(frozen=True, slots=True)
class LocalDevice:
    """A device of the plan, found on this machine.

    Attributes:
        name: its name in the plan.
        type: ``cpu`` or ``cuda``.
        cores: for CPU devices the cores its worker and its sessions are pinned to; never empty for them.
        index: for GPUs the CUDA device id.
        memory_bytes: what the plan may use of its memory.
        shared: other devices use the same cores: sessions must not spin, and times do not count.
    """

    name: str
    type: str
    cores: tuple[int, ...]
    index: int
    memory_bytes: int
    shared: bool


@dataclass(frozen=True, slots=True)
class LocalDevices:
    """The devices a plan uses, by name, and what the user should know about them (one line each)."""

    devices: Mapping[str, LocalDevice]
    warnings: tuple[str, ...]


def find_devices(
    cluster: ClusterSpec,
    used: Sequence[str],
    *,
    on_cpu: bool = False,
    device_map: Mapping[str, str] | None = None,
) -> LocalDevices:
    """Find the devices of a plan on this machine.

    Args:
        cluster: the plan's cluster.
        used: names of the devices that execute something, in the plan's order.
        on_cpu: run every device as a worker on this machine's cores, whatever it is in the plan.
        device_map: plan device -> the device to use instead: ``cuda:2`` is CUDA device 2, ``cpu:1`` the cores of
            the plan's device of that name.

    Raises:
        UsageError: if ``device_map`` names a device that does not exist.
        ExecutionError: if a device of the plan is not there; names ``--on cpu`` as the way out.
    """
    by_name = {spec.name: spec for spec in cluster.devices}
    specs = _renamed(by_name, used, device_map or {})
    nodes = list(dict.fromkeys(specs[name].node for name in used))
    if len(nodes) > 1 and not on_cpu:
        raise ExecutionError(
            f"the plan uses {len(nodes)} machines ({', '.join(nodes)})",
            expected="a plan for one machine",
            next_step="run it on this machine's cores with --on cpu, or export it with fddps export",
        )
    cpu_names = [name for name in used if on_cpu or specs[name].type == "cpu"]
    for name in used:
        if name not in cpu_names:
            _check_gpu(specs[name])
    cores, warnings = _place_on_cores(cpu_names, specs, by_name, on_cpu)
    owners: dict[int, int] = {}
    for name in cpu_names:
        for core in cores[name]:
            owners[core] = owners.get(core, 0) + 1
    devices = {
        name: LocalDevice(
            name=name,
            type="cpu" if name in cores else "cuda",
            cores=cores.get(name, ()),
            index=specs[name].index,
            memory_bytes=specs[name].memory_bytes,
            shared=specs[name].shared or any(owners[core] > 1 for core in cores.get(name, ())),
        )
        for name in used
    }
    return LocalDevices(devices, tuple(warnings))


def available_memory_bytes(device: LocalDevice) -> int | None:
    """Memory that is free on a device right now; None if that cannot be told."""
    if device.type == "cuda":
        memory = _nvml_memory(device.index)
        return int(memory.free) if memory is not None else None
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def _renamed(
    by_name: Mapping[str, DeviceSpec], used: Sequence[str], device_map: Mapping[str, str]
) -> dict[str, DeviceSpec]:
    for name in device_map:
        if name not in by_name:
            raise UsageError(
                f"the plan has no device '{name}'",
                expected=f"one of {', '.join(by_name)}",
                next_step="correct the device map",
            )
    specs = {}
    for name in used:
        spec = by_name[name]
        target = device_map.get(name, name)
        if target != name:
            spec = _retarget(spec, target, by_name)
        specs[name] = spec
    return specs


def _retarget(spec: DeviceSpec, target: str, by_name: Mapping[str, DeviceSpec]) -> DeviceSpec:
    kind, _, number = target.partition(":")
    if kind == spec.type == "cuda" and number.isdecimal():
        return spec.model_copy(update={"index": int(number), "uuid": ""})
    if kind == spec.type == "cpu" and target in by_name:
        other = by_name[target]
        return spec.model_copy(update={"cores": other.cores, "members": other.members, "shared": other.shared})
    raise UsageError(
        f"device '{spec.name}' cannot be mapped to '{target}'",
        expected="cuda:N for a GPU, or a CPU device of the plan for a CPU device",
        next_step="run the whole plan on the CPU with --on cpu if there are no GPUs",
    )


def _wanted_cores(spec: DeviceSpec, by_name: Mapping[str, DeviceSpec]) -> tuple[int, ...]:
    if spec.cores or not spec.members:
        return spec.cores
    cores = [core for member in spec.members if member in by_name for core in by_name[member].cores]
    return tuple(dict.fromkeys(cores))


def _place_on_cores(
    names: Sequence[str], specs: Mapping[str, DeviceSpec], by_name: Mapping[str, DeviceSpec], on_cpu: bool
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Cores for each CPU device: the plan's own if this machine has them, else as many others, else shared ones."""
    if not names:
        return {}, []
    machine = usable_cores()
    wanted = {name: _wanted_cores(specs[name], by_name) if specs[name].type == "cpu" else () for name in names}
    if all(wanted[name] and set(wanted[name]) <= set(machine) for name in names):
        return wanted, _sharing_notes(names, specs)
    if on_cpu and any(specs[name].type != "cpu" for name in names):
        sizes = {name: max(1, len(machine) // len(names)) for name in names}
    else:
        sizes = {name: max(1, len(wanted[name])) for name in names}
    warnings: list[str] = []
    distinct = len({core for name in names for core in wanted[name]}) or sum(sizes.values())
    if distinct > len(machine) or sum(sizes.values()) > len(machine):
        warnings.append(
            f"the plan's devices ({len(names)}) use {max(distinct, sum(sizes.values()))} cores, this machine offers "
            f"{len(machine)}: they share cores, so results count and times do not"
        )
    else:
        warnings.append(f"devices run on cores {', '.join(map(str, machine[: sum(sizes.values())]))} of this machine")
    placed, next_core = {}, 0
    for name in names:
        size = min(sizes[name], len(machine))
        placed[name] = tuple(machine[(next_core + i) % len(machine)] for i in range(size))
        next_core += size
    return placed, warnings


def _sharing_notes(names: Sequence[str], specs: Mapping[str, DeviceSpec]) -> list[str]:
    shared = [name for name in names if specs[name].shared]
    if not shared:
        return []
    return [f"{', '.join(shared)} share cores by the plan: results count, times do not"]


def _check_gpu(spec: DeviceSpec) -> None:
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise ExecutionError(
            "this ONNX Runtime has no CUDAExecutionProvider",
            where=f"device {spec.name}",
            expected=f"a GPU of kind {spec.kind}",
            next_step="install onnxruntime-gpu, or check the results on the CPU with --on cpu",
        )
    memory, kind = _nvml_memory(spec.index), _nvml_kind(spec.index)
    if kind not in ("", spec.kind):
        raise ExecutionError(
            f"CUDA device {spec.index} is of kind {kind}",
            where=f"device {spec.name}",
            expected=f"a GPU of kind {spec.kind}",
            next_step="name another GPU in the device map, or plan again for this one",
        )
    if memory is not None and int(memory.total) < spec.memory_bytes:
        raise ExecutionError(
            f"CUDA device {spec.index} has {format_size(int(memory.total))} of memory",
            where=f"device {spec.name}",
            expected=f"at least {format_size(spec.memory_bytes)} ({spec.kind})",
            next_step="name another GPU in the device map, or plan again for this one",
        )


def _nvml_memory(index: int) -> Any:
    """NVML's memory record of a GPU (``total``, ``free``); None without NVML or such a GPU."""
    return _ask_nvml(index, "nvmlDeviceGetMemoryInfo")


def _nvml_kind(index: int) -> str:
    """Device kind of a GPU; empty without NVML or such a GPU."""
    name = _ask_nvml(index, "nvmlDeviceGetName")
    return "" if name is None else gpu_kind(name.decode() if isinstance(name, bytes) else str(name))


def _ask_nvml(index: int, question: str) -> Any:
    """Answer of an NVML function about a GPU; None without NVML or such a GPU."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return getattr(nvml, question)(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError:
        return None
