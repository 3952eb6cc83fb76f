"""What the user wants of the placement: operators pinned to devices, operators kept together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import UsageError
from planner.graph.op_graph import Op
from planner.graph.task_graph import I64
from planner.schedule.memory import Flags


@dataclass(frozen=True, slots=True)
class Wishes:
    """Wishes by regular expressions, which may match anywhere in an operator's name.

    Attributes:
        pins: (expression, device): matching operators, and all their shards, run there.
        together: expressions: all operators that match one of them run on one device.
    """

    pins: tuple[tuple[str, str], ...] = ()
    together: tuple[str, ...] = ()

    def check(self, ops: Sequence[Op], devices: Sequence[str]) -> None:
        """Whether every wish can be meant.

        Raises:
            UsageError: for an expression that is none or matches nothing, for an unknown device, and for an operator
                that is pinned to two.
        """
        home: dict[str, str] = {}
        for pattern, device in self.pins:
            if device not in devices:
                raise UsageError(f"no device '{device}'", where="--pin", expected=f"one of {', '.join(devices)}")
            for name in _matching(pattern, ops, "--pin"):
                if home.setdefault(name, device) != device:
                    raise UsageError(
                        f"operator '{name}' is pinned to {home[name]} and {device}",
                        where="--pin",
                        expected="one device",
                    )
        for pattern in self.together:
            pinned = {home[name] for name in _matching(pattern, ops, "--keep-together") if name in home}
            if len(pinned) > 1:
                raise UsageError(
                    f"'{pattern}' is kept together and pinned to {' and '.join(sorted(pinned))}",
                    where="--keep-together",
                    expected="one device",
                )

    def of_groups(self, names: Sequence[Sequence[str]], devices: Sequence[str]) -> tuple[Flags | None, I64 | None]:
        """The wishes for fused groups of operators.

        Args:
            names: [groups] names in the unsplit graph of each group's operators.
            devices: names of the devices.

        Returns:
            [groups, devices] where each may run, and [groups] who stays together; None for no such wish.

        Raises:
            UsageError: if operators that run as one are pinned apart.
        """
        allowed = np.ones((len(names), len(devices)), np.bool_) if self.pins else None
        for pattern, device in self.pins:
            found = re.compile(pattern)
            here = np.arange(len(devices)) == devices.index(device)
            for group, members in enumerate(names):
                if allowed is not None and any(found.search(name) for name in members):
                    allowed[group] &= here
                    if not allowed[group].any():
                        raise UsageError(
                            f"{' and '.join(members[:4])} run as one, and are pinned apart",
                            where="--pin",
                            expected="one device for them",
                        )
        together = self._together(names)
        if allowed is not None and together is not None:
            for number in np.unique(together[together >= 0]).tolist():
                kept = np.flatnonzero(together == number)
                allowed[kept] = allowed[kept].all(axis=0)
                if not allowed[kept[0]].any():
                    shown = " and ".join(names[group][0] for group in kept[:4].tolist())
                    raise UsageError(
                        f"{shown} are kept together and pinned apart", where="--keep-together", expected="one device"
                    )
        return allowed, together

    def _together(self, names: Sequence[Sequence[str]]) -> I64 | None:
        """Groups that match one expression share a number; expressions that share a group are one."""
        if not self.together:
            return None
        number = np.full(len(names), -1, np.int64)
        for own, pattern in enumerate(self.together):
            found = re.compile(pattern)
            matching = [g for g, members in enumerate(names) if any(found.search(name) for name in members)]
            for other in sorted({int(number[g]) for g in matching if number[g] >= 0}):
                number[number == other] = own
            number[matching] = own
        return number


def _matching(pattern: str, ops: Sequence[Op], option: str) -> list[str]:
    """Names of the operators that an expression matches."""
    try:
        found = re.compile(pattern)
    except re.error as problem:
        raise UsageError(f"'{pattern}' is no regular expression: {problem}", where=option) from None
    names = [op.name for op in ops if found.search(op.name)]
    if not names:
        raise UsageError(
            f"'{pattern}' matches no operator", where=option, expected=f"part of a name such as {ops[0].name!r}"
        )
    return names
