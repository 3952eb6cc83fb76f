"""GPU devices: found through NVML, or of a data-sheet kind without looking for hardware."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.cluster.links import connect
from planner.cluster.sheets import LinkSheet, link_for, load_sheets, sheet_for
from planner.cluster.types import MAX_DEVICES, Cluster, Device
from planner.errors import ClusterError, UsageError

_COUNT = re.compile(r"[0-9]{1,3}\Z")
_LIST = re.compile(r"[0-9]{1,3}(?:,|(?:,[0-9]{1,3})+)\Z")
_MAX_NVLINKS = 18


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that the driver reports.

    Attributes:
        index: CUDA device id with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``: NVML counts in PCI bus order, CUDA by default
            does not.
        name: the driver's name.
        uuid: identity across reboots and orders.
        memory_bytes: all of it.
        pci_bus_id: place on the bus.
    """

    index: int
    name: str
    uuid: str
    memory_bytes: int
    pci_bus_id: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """What NVML says.

    Attributes:
        gpus: in PCI bus order.
        link_kinds: link kind by (index, index).
        driver: version of the driver.
        reason: why there are none, if there are none.
    """

    gpus: tuple[Gpu, ...]
    link_kinds: dict[tuple[int, int], str]
    driver: str = ""
    reason: str = ""


def gpu_devices(
    spec: str, profile_kind: str | None = None, link: str | None = None, found: Discovery | None = None
) -> Cluster:
    """GPUs to plan for.

    Args:
        spec: ``4``: the first four; ``0,2``: these; ``2,``: the one with index 2.
        profile_kind: a data-sheet kind: no hardware is looked for, and a list counts only by its numbers.
        link: link kind between every two; by default what is found, or what the kind usually has.
        found: discovery result; by default NVML is asked.

    Raises:
        UsageError: if ``spec`` names no devices or one twice.
        ClusterError: if there are fewer GPUs than asked for, or the kind is unknown.
    """
    indices = _parse(spec)
    if profile_kind is not None:
        sheet = sheet_for(profile_kind)
        if sheet.type != "cuda":
            raise ClusterError(f"'{profile_kind}' is no GPU", where="--profile", next_step="use --cpus")
        usual = link_for(link or sheet.link, "--link")
        devices = tuple(Device(f"cuda:{i}", sheet.kind, "cuda", sheet.memory_bytes, index=i) for i in indices)
        return Cluster(devices, connect(devices, lambda _src, _dst: usual))
    found = discover() if found is None else found
    by_index = {gpu.index: gpu for gpu in found.gpus}
    missing = [i for i in indices if i not in by_index]
    if missing:
        have = f"{len(by_index)} GPUs found" + (f" ({found.reason})" if found.reason else "")
        raise ClusterError(
            f"GPU {missing[0]} is not there: {have}",
            where="--gpus",
            next_step="plan for hardware elsewhere with --profile v100-sxm2-16gb, or use CPU cores with --cpus 2",
        )
    devices = tuple(_device(by_index[i]) for i in indices)

    def kind_of(src: Device, dst: Device) -> LinkSheet:
        return link_for(link or found.link_kinds.get((src.index, dst.index), "pcie3-x16"), "--link")

    return Cluster(devices, connect(devices, kind_of))


def _parse(spec: str) -> tuple[int, ...]:
    text = spec.replace(" ", "")
    expected = "a number such as 4, or a list such as 0,2"
    if _LIST.match(text):
        indices = tuple(int(part) for part in text.strip(",").split(","))
        if len(set(indices)) != len(indices):
            raise UsageError(f"'{spec}' names a GPU twice", where="--gpus", expected="each device once")
        return indices
    if not _COUNT.match(text):
        raise UsageError(f"'{spec}' names no GPUs", where="--gpus", expected=expected)
    if int(text) == 0:
        raise UsageError("zero devices", where="--gpus", expected=expected, next_step="use --cpus for CPU cores")
    if int(text) > MAX_DEVICES:
        raise UsageError(f"{text} devices", where="--gpus", expected=f"at most {MAX_DEVICES}")
    return tuple(range(int(text)))


def gpu_kind(nvml_name: str) -> str:
    """Device kind of a GPU by the driver's name for it: that of its data sheet, or the name itself as a slug."""
    for sheet in load_sheets().values():
        if nvml_name in sheet.nvml_names:
            return sheet.kind
    return re.sub(r"[^a-z0-9]+", "-", nvml_name.lower()).strip("-")


def _device(gpu: Gpu) -> Device:
    kind, memory = gpu_kind(gpu.name), gpu.memory_bytes
    sheet = load_sheets().get(kind)
    if sheet is not None:
        memory = min(memory, sheet.memory_bytes)
    return Device(f"cuda:{gpu.index}", kind, "cuda", memory, index=gpu.index, uuid=gpu.uuid)


def discover() -> Discovery:
    """Ask NVML; a missing package or driver means no GPUs, with the reason kept."""
    try:
        import pynvml
    except ImportError:
        return Discovery((), {}, reason="the package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return Discovery((), {}, reason=f"NVML: {problem}")
    try:
        return _read(pynvml)
    except pynvml.NVMLError as problem:
        return Discovery((), {}, reason=f"NVML: {problem}")
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any) -> Discovery:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    handles.sort(key=lambda handle: _text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    gpus = tuple(
        Gpu(
            index,
            _text(nvml.nvmlDeviceGetName(handle)),
            _text(nvml.nvmlDeviceGetUUID(handle)),
            int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        )
        for index, handle in enumerate(handles)
    )
    kinds = {(i, j): _link_kind(nvml, a, b) for i, a in enumerate(handles) for j, b in enumerate(handles) if i != j}
    return Discovery(gpus, kinds, _text(nvml.nvmlSystemGetDriverVersion()))


def _link_kind(nvml: Any, src: Any, dst: Any) -> str:
    """NVLink of the source's generation where peer copies run over it, else PCIe of the source's generation."""
    try:
        nvlink = nvml.nvmlDeviceGetP2PStatus(src, dst, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK
        if nvlink:
            for number in range(_MAX_NVLINKS):
                if nvml.nvmlDeviceGetNvLinkState(src, number):
                    return f"nvlink{min(max(int(nvml.nvmlDeviceGetNvLinkVersion(src, number)), 1), 4)}"
    except nvml.NVMLError:
        # Old drivers and consumer cards do not answer: they have no NVLink to speak of.
        pass
    try:
        generation = int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(src))
    except nvml.NVMLError:
        generation = 3
    return f"pcie{min(max(generation, 3), 5)}-x16"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
