"""From ONNX Runtime's profile to the cost of each fused group.

The profiler names kernels after nodes of the optimised graph: a fused node carries the name of the operator or
of the value it began as (``conv1_nchwc``, ``matmul/MatMulAddFusion``, ``fused conv1``). Time that no name explains
(layout changes, mostly) is spread over the groups in proportion, since the true step contains it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from planner.graph.op_graph import Op

_SUFFIX: Final = "_kernel_time"
_DECORATION: Final = re.compile(
    r"^(fused |Fused)|(_nchwc|_nhwc|_nchwc_\d+|_token_\d+|/[A-Za-z]*Fusion[A-Za-z_0-9]*/?|_fused)$"
)


def kernel_times(profile: Path) -> dict[str, list[int]]:
    """Kernel durations of a profile in nanoseconds, by node name, in the order of the runs."""
    found: dict[str, list[int]] = {}
    for event in json.loads(profile.read_text(encoding="utf-8")):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_SUFFIX):
            found.setdefault(name[: -len(_SUFFIX)], []).append(int(event["dur"]) * 1000)
    return found


def attribute(kernels: Mapping[str, int], groups: Sequence[Sequence[Op]]) -> tuple[list[int], int]:
    """Share kernel times out among groups.

    Args:
        kernels: node name of the optimised graph -> nanoseconds a step.
        groups: fused groups of the graph that ran.

    Returns:
        Nanoseconds of each group, and of kernels that belong to none.
    """
    owner: dict[str, int] = {}
    for number, members in enumerate(groups):
        for op in members:
            for name in op.writes:
                owner.setdefault(name, number)
    for number, members in enumerate(groups):
        for op in members:
            owner[op.name] = number
    times = [0] * len(groups)
    unknown = 0
    for kernel, ns in kernels.items():
        found = _owner(kernel, owner)
        if found is None:
            unknown += ns
        else:
            times[found] += ns
    return times, unknown


def _owner(kernel: str, owner: Mapping[str, int]) -> int | None:
    name = kernel
    while name:
        if name in owner:
            return owner[name]
        stripped = _DECORATION.sub("", name)
        if stripped == name:
            return owner.get(name.rpartition("/")[0])
        name = stripped
    return None
