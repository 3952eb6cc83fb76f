"""What a container may use of its machine: memory and processor time, by the kernel's control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MOUNT: Final = Path("/sys/fs/cgroup")
_LISTING: Final = Path("/proc/self/cgroup")


def memory_limit_bytes(mount: Path = _MOUNT, listing: Path = _LISTING) -> int | None:
    """Least memory that a group of this process may use; None if there is no limit.

    Args:
        mount: where control groups are mounted, version 1 or 2.
        listing: the kernel's list of this process's groups.
    """
    found = [
        int(text)
        for folder in _folders(mount, listing, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(folder / name)).isdigit()
    ]
    return min(found, default=None)


def core_limit(mount: Path = _MOUNT, listing: Path = _LISTING) -> int | None:
    """Whole cores' worth of processor time that this process may use, at least 1; None if there is no limit.

    Args:
        mount: where control groups are mounted, version 1 or 2.
        listing: the kernel's list of this process's groups.
    """
    found = []
    for folder in _folders(mount, listing, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(max(1, int(quota) // int(period)))
    return min(found, default=None)


def _folders(mount: Path, listing: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that limit this process: its own and all above, in either version."""
    for line in _read(listing).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            top = mount
        elif controller in controllers.split(","):
            top = mount / controller
        else:
            continue
        here = Path(path.lstrip("/"))
        yield from dict.fromkeys((top / here, *(top / parent for parent in here.parents)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
