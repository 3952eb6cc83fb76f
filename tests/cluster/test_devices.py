"""Devices of this machine and of data sheets."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from planner.cluster.cpu import cpu_devices, divide_cores, slug
from planner.cluster.gpu import Discovery, Gpu, discover, gpu_devices
from planner.cluster.sheets import FAMILIES, link_for, load_links, load_sheets, sheet_for
from planner.errors import ClusterError, UsageError
from planner.resources import data_path

GIB = 1 << 30


def cores(spec: str, count: int) -> list[tuple[int, ...]]:
    return [device.cores for device in divide_cores(spec, range(10, 10 + count), "Some CPU", 64 * GIB).devices]


def test_equal_disjoint_groups_of_all_cores() -> None:
    assert cores("2", 8) == [(10, 11, 12, 13), (14, 15, 16, 17)]
    assert cores("3", 8) == [(10, 11), (12, 13), (14, 15)]
    assert cores("2x1", 8) == [(10,), (11,)]
    assert cores("1", 2) == [(10, 11)]


def test_more_devices_than_cores_share_and_say_so() -> None:
    cluster = divide_cores("3", (4, 5), "x", 9 * GIB)
    assert [device.cores for device in cluster.devices] == [(4,), (5,), (4,)]
    assert all(device.shared for device in cluster.devices)
    assert not any(device.shared for device in divide_cores("2", (4, 5), "x", GIB).devices)
    assert divide_cores("2x2", (4, 5), "x", GIB).devices[1].shared
    with pytest.raises(UsageError, match="a device of 4 cores, and there are 2 here"):
        divide_cores("1x4", (4, 5), "x", GIB)


def test_kind_and_memory_do_not_wobble() -> None:
    one = divide_cores("2", range(4), "AMD EPYC(TM) 7B13 64-Core", 64 * GIB + 1)
    two = divide_cores("2", range(4), "AMD EPYC(TM) 7B13 64-Core", 64 * GIB + 900_000_000)
    assert one == two
    assert one.devices[0].kind == "cpu-amd-epyc-7b13-64-core-2c"
    assert one.devices[0].memory_bytes == 32 * GIB
    assert slug("(R)") == "unknown"


def test_every_ordered_pair_is_linked_by_shared_memory() -> None:
    cluster = divide_cores("3", range(3), "x", GIB)
    assert {(link.src, link.dst) for link in cluster.links} == {
        (a.name, b.name) for a in cluster.devices for b in cluster.devices if a is not b
    }
    assert {(link.kind, link.latency_ns, link.bytes_per_s) for link in cluster.links} == {("shared-memory", 44_000, 0)}


@pytest.mark.parametrize("spec", ["0", "-1", "x", "2x0", "2x", "", "x2", "1.5", "0x1", "99999"])
def test_bad_cpu_specs(spec: str) -> None:
    with pytest.raises(UsageError, match="--cpus"):
        cpu_devices(spec)


def test_this_machine() -> None:
    cluster = cpu_devices("1")
    assert cluster.devices[0].memory_bytes >= GIB
    assert cluster.devices[0].cores


def test_data_sheet_gpus_need_no_hardware() -> None:
    cluster = gpu_devices("4", "v100-sxm2-16gb")
    assert [device.name for device in cluster.devices] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert len(cluster.links) == 12
    assert {link.kind for link in cluster.links} == {"nvlink2"}
    assert 14 * GIB < cluster.devices[0].memory_bytes < 16 * GIB
    pcie = gpu_devices("0,2", "t4", "pcie4-x16")
    assert [device.index for device in pcie.devices] == [0, 2]
    assert {link.channel for link in pcie.links} == {"pcie4-x16:cuda:0", "pcie4-x16:cuda:2"}
    assert [device.index for device in gpu_devices("2,", "t4").devices] == [2]


@pytest.mark.parametrize(
    ("spec", "word"), [("0", "zero devices"), ("0,0", "twice"), ("-1", "no GPUs"), ("a", "no GPUs"), ("", "no GPUs")]
)
def test_bad_gpu_specs(spec: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        gpu_devices(spec, "t4")


def test_unknown_kinds_list_the_known() -> None:
    with pytest.raises(ClusterError, match="v100-sxm2-16gb"):
        gpu_devices("1", "v1000")
    with pytest.raises(ClusterError, match="nvlink2"):
        gpu_devices("1", "t4", "token-ring")
    with pytest.raises(ClusterError, match="--cpus"):
        gpu_devices("1", "cpu-generic")


FOUND = Discovery(
    (Gpu(0, "Tesla T4", "GPU-a", 15 * GIB, "0:1"), Gpu(1, "Unheard Of 9000", "GPU-b", 8 * GIB, "0:2")),
    {(0, 1): "nvlink3", (1, 0): "pcie4-x16"},
)


def test_found_gpus_keep_identity_and_links() -> None:
    cluster = gpu_devices("2", found=FOUND)
    assert [(d.kind, d.uuid) for d in cluster.devices] == [("t4", "GPU-a"), ("unheard-of-9000", "GPU-b")]
    assert [link.kind for link in cluster.links] == ["nvlink3", "pcie4-x16"]
    assert [d.uuid for d in gpu_devices("1,0", found=FOUND).devices] == ["GPU-b", "GPU-a"]


def test_too_few_gpus_name_the_ways_out() -> None:
    with pytest.raises(ClusterError, match=r"2 GPUs found.*--profile.*--cpus"):
        gpu_devices("3", found=FOUND)
    with pytest.raises(ClusterError, match="no driver"):
        gpu_devices("1", found=Discovery((), {}, reason="no driver"))


class FakeNvml(SimpleNamespace):
    """Two GPUs that NVML lists against their order on the bus."""

    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    class NVMLError(Exception):
        """As in pynvml."""

    def __init__(self) -> None:
        bus = {0: "0000:41:00.0", 1: "0000:01:00.0"}
        super().__init__(
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda i: i,
            nvmlDeviceGetPciInfo=lambda h: SimpleNamespace(busId=bus[h].encode()),
            nvmlDeviceGetName=lambda h: "NVIDIA H200",
            nvmlDeviceGetUUID=lambda h: f"GPU-{h}",
            nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=140 * GIB),
            nvmlDeviceGetP2PStatus=lambda a, b, cap: 0,
            nvmlDeviceGetNvLinkState=lambda h, n: int(n == 3),
            nvmlDeviceGetNvLinkVersion=lambda h, n: 4,
            nvmlSystemGetDriverVersion=lambda: "570.1",
        )


def test_discovery_counts_in_bus_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    found = discover()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-1", "GPU-0"]
    assert found.link_kinds == {(0, 1): "nvlink4", (1, 0): "nvlink4"}
    assert found.driver == "570.1"
    cluster = gpu_devices("2")
    assert cluster.devices[0].kind == "h200-sxm-141gb"


def test_discovery_without_package_or_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in discover().reason
    broken = FakeNvml()

    def fail() -> None:
        raise broken.NVMLError("no library")

    broken.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert "no library" in discover().reason
    assert discover().gpus == ()


def test_shipped_sheets_are_complete() -> None:
    sheets, links = load_sheets(), load_links()
    assert {"p100-sxm2-16gb", "v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "h100-sxm5-80gb", "cpu-generic"} <= set(sheets)
    for sheet in sheets.values():
        assert sheet.link in links
        assert set(sheet.efficiency) == set(FAMILIES)
        assert sheet.memory_bytes > GIB and sheet.bytes_per_s > 0 and min(sheet.efficiency.values()) > 0
    assert (data_path("configs") / "clusters").is_dir()


def test_cpu_kinds_without_a_sheet_scale_the_generic_one() -> None:
    two, four = sheet_for("cpu-any-2c"), sheet_for("cpu-any-4c")
    assert four.peak_flops["float32"] == 2 * two.peak_flops["float32"]
    assert sheet_for("cpu-any-512c").bytes_per_s < 512 // 4 * four.bytes_per_s
    assert sheet_for("cpu-any-512c").bytes_per_s == sheet_for("cpu-any-256c").bytes_per_s


def test_link_latency_includes_the_hand_over() -> None:
    assert link_for("nvlink2").latency_ns > link_for("shared-memory").latency_ns == 44_000
