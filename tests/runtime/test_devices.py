from __future__ import annotations

import sys
from types import SimpleNamespace

import onnxruntime as ort
import pytest

from planner.cluster.cpu import usable_cores
from planner.errors import ExecutionError, UsageError
from planner.plan.schema import ClusterSpec, DeviceSpec
from planner.runtime.devices import find_devices

MACHINE = usable_cores()


def cpu(name: str, *cores: int, **more) -> DeviceSpec:
    return DeviceSpec(name=name, kind="cpu-x-1c", type="cpu", memory_bytes=1 << 30, cores=cores, **more)


def gpu(name: str, index: int, **more) -> DeviceSpec:
    return DeviceSpec(name=name, kind="v100-sxm2-16gb", type="cuda", memory_bytes=1 << 34, index=index, **more)


def cluster(*devices: DeviceSpec) -> ClusterSpec:
    return ClusterSpec(nodes=tuple(dict.fromkeys(d.node for d in devices)), devices=devices, links=())


def test_cores_of_the_plan_are_used_where_they_exist() -> None:
    found = find_devices(cluster(cpu("cpu:0", MACHINE[-1])), ["cpu:0"])
    assert found.devices["cpu:0"].cores == (MACHINE[-1],)
    assert found.warnings == () and not found.devices["cpu:0"].shared


def test_cores_that_do_not_exist_are_replaced() -> None:
    found = find_devices(cluster(cpu("cpu:0", 100_000)), ["cpu:0"])
    assert found.devices["cpu:0"].cores == MACHINE[:1] and not found.devices["cpu:0"].shared


def test_more_devices_than_cores_share_with_a_warning() -> None:
    names = [f"cpu:{i}" for i in range(len(MACHINE) + 1)]
    found = find_devices(cluster(*(cpu(name, 100_000 + i) for i, name in enumerate(names))), names)
    assert all(found.devices[name].cores for name in names)
    assert any(device.shared for device in found.devices.values())
    assert len(found.warnings) == 1 and "share" in found.warnings[0]


def test_a_device_of_members_spans_their_cores() -> None:
    parts = [cpu(f"cpu:{i}", core) for i, core in enumerate(MACHINE)]
    whole = DeviceSpec(name="cpu:all", kind="k", type="cpu", memory_bytes=1, members=tuple(part.name for part in parts))
    found = find_devices(cluster(*parts, whole), ["cpu:all"])
    assert found.devices["cpu:all"].cores == MACHINE


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="there is a GPU")
def test_gpu_plans_need_a_gpu_or_the_cpu_instead() -> None:
    devices = cluster(gpu("cuda:0", 0, node="a"), gpu("cuda:1", 1, node="a"), gpu("cuda:2", 0, node="b"))
    with pytest.raises(ExecutionError, match=r"device cuda:0: .*--on cpu"):
        find_devices(devices, ["cuda:0", "cuda:1"])
    with pytest.raises(ExecutionError, match="2 machines"):
        find_devices(devices, ["cuda:0", "cuda:2"])
    names = ["cuda:0", "cuda:1", "cuda:2"]
    found = find_devices(devices, names, on_cpu=True)
    assert all(found.devices[name].type == "cpu" and found.devices[name].cores for name in names)
    assert len(MACHINE) >= 3 or found.warnings


@pytest.mark.parametrize(
    ("name", "total", "message"),
    [
        ("Tesla V100-SXM2-16GB", 1 << 34, ""),
        ("Tesla T4", 1 << 34, "kind t4; expected a GPU of kind v100-sxm2-16gb"),
        ("Tesla V100-SXM2-16GB", 1 << 30, r"1\.0 GiB of memory"),
    ],
)
def test_gpus_match_by_kind_and_memory(name: str, total: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: name,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=total, free=total),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    if not message:
        assert find_devices(cluster(gpu("cuda:0", 0)), ["cuda:0"]).devices["cuda:0"].type == "cuda"
        return
    with pytest.raises(ExecutionError, match=message):
        find_devices(cluster(gpu("cuda:0", 0)), ["cuda:0"])


def test_wrong_device_maps_are_named() -> None:
    devices = cluster(cpu("cpu:0", MACHINE[0]), cpu("cpu:1", MACHINE[-1]))
    assert find_devices(devices, ["cpu:0"], device_map={"cpu:0": "cpu:1"}).devices["cpu:0"].cores == (MACHINE[-1],)
    for wrong in ({"cpu:7": "cpu:0"}, {"cpu:0": "cuda:0"}, {"cpu:0": "cpu:9"}, {"cpu:0": ""}):
        with pytest.raises(UsageError):
            find_devices(devices, ["cpu:0"], device_map=wrong)
