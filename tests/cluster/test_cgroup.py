"""Limits of a container, in the two forms that kernels give them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.cluster.cgroup import core_limit, memory_limit_bytes


def _machine(root: Path, listing: str, files: Mapping[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        path = root / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "cgroup").write_text(listing)
    return root / "mount", root / "cgroup"


@pytest.mark.parametrize(
    ("listing", "files", "memory", "cores"),
    [
        ("0::/\n", {"memory.max": "4294967296\n", "cpu.max": "200000 100000\n"}, 1 << 32, 2),
        ("0::/a/b\n", {"a/memory.max": "1000\n", "a/b/memory.max": "max\n", "a/b/cpu.max": "max 100000\n"}, 1000, None),
        ("0::/a/b\n", {"a/memory.max": "1000\n", "a/b/memory.max": "900\n", "memory.max": "2000\n"}, 900, None),
        # A container sees the host's name of its group, and its own group at the top.
        ("0::/docker/1234\n", {"memory.max": "77\n", "cpu.max": "50000 100000\n"}, 77, 1),
        (
            "9:memory:/x\n3:cpu,cpuacct:/x\n",
            {
                "memory/x/memory.limit_in_bytes": "5000\n",
                "cpu/x/cpu.cfs_quota_us": "350000\n",
                "cpu/x/cpu.cfs_period_us": "100000\n",
            },
            5000,
            3,
        ),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None, None),
        ("", {}, None, None),
    ],
    ids=["v2", "unlimited", "least", "container", "v1", "v1-unlimited", "none"],
)
def test_limits(listing: str, files: dict[str, str], memory: int | None, cores: int | None, tmp_path: Path) -> None:
    mount, names = _machine(tmp_path, listing, files)
    assert memory_limit_bytes(mount, names) == memory
    assert core_limit(mount, names) == cores


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path / "no", tmp_path / "none") is None
    assert core_limit(tmp_path / "no", tmp_path / "none") is None
