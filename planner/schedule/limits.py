"""Steps that no plan can hold: a model with absurd shapes is refused before its times and sizes overflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from planner.cluster.types import Cluster
from planner.cost.model import Cost
from planner.errors import UsageError
from planner.units import NS_PER_S

# A plan's numbers end at 2**53. Splits add work and tensors are sent to several devices: some room is left for that.
_LONGEST_NS: Final = 2**51
_LARGEST_BYTES: Final = 2**51
_SMALLER: Final = "use a smaller --batch, or check --input-shape"


def check_times(names: Sequence[str], costs: Sequence[Sequence[Cost]], cluster: Cluster) -> None:
    """Refuse a graph whose operators, one after the other, take longer than a plan's times can say.

    Args:
        names: of the groups of operators.
        costs: [group][device].
        cluster: the devices.

    Raises:
        UsageError: names the operator that takes longest.
    """
    slowest = [max((cost.ns for cost in row), default=0) for row in costs]
    if sum(slowest) <= _LONGEST_NS:
        return
    worst = max(range(len(slowest)), key=slowest.__getitem__)
    device = max(range(len(cluster.devices)), key=lambda number: costs[worst][number].ns)
    raise UsageError(
        f"one step takes {_days(sum(slowest))}, this operator alone {_days(slowest[worst])} on "
        f"{cluster.devices[device].kind}",
        where=f"operator '{names[worst]}'",
        expected=f"a step of at most {_days(_LONGEST_NS)}",
        next_step=_SMALLER,
    )


def check_sizes(tensors: Iterable[tuple[str, int]]) -> None:
    """Refuse a graph whose tensors have more bytes together than a plan's sizes can say.

    Args:
        tensors: names and sizes of those that may be sent.

    Raises:
        UsageError: names the largest tensor.
    """
    sizes = dict(tensors)
    total = sum(sizes.values())
    if total <= _LARGEST_BYTES:
        return
    worst = max(sizes, key=sizes.__getitem__)
    raise UsageError(
        f"the model's tensors have {total} bytes, this one alone {sizes[worst]}",
        where=f"tensor '{worst}'",
        expected=f"at most {_LARGEST_BYTES}",
        next_step=_SMALLER,
    )


def _days(ns: int) -> str:
    return f"{max(ns // (NS_PER_S * 24 * 3600), 1)} days"
