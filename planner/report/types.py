"""What the drawings are made of; simulations and measurements are both turned into it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One stretch of work on one row of a timeline.

    Attributes:
        device: the row: a device's name, or a link's.
        name: the work: a segment's id, or a tensor's name.
        start_ns: start.
        finish_ns: finish, not before the start.
    """

    device: str
    name: str
    start_ns: int
    finish_ns: int
