"""What the planner asks of a cost model.

The unit of cost is a fused group: the operators of one segment that ONNX Runtime executes as one kernel, an
anchor such as a Conv and the followers fused into it (``cost.fusion``). An operator's cost alone means little:
an activation behind a Conv of the same segment costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.cluster.types import Device
from planner.graph.op_graph import OpContext


@dataclass(frozen=True, slots=True)
class Cost:
    """A time, and where it comes from.

    Attributes:
        ns: nanoseconds.
        measured: from a profile, as opposed to estimated.
    """

    ns: int
    measured: bool


class CostModel(Protocol):
    """Costs of fused groups on devices."""

    def group_ns(self, ops: Sequence[OpContext], device: Device, parent: Sequence[OpContext] | None = None) -> Cost:
        """Time of one run of a fused group.

        Args:
            ops: in topological order.
            device: where.
            parent: the group that this one is a shard of.
        """
        ...

    def dispatch_ns(self, device: Device) -> Cost:
        """Overhead of starting one segment."""
        ...
