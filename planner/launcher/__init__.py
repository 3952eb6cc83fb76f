"""Executes a plan with ONNX Runtime: one session a segment, one pinned worker thread a device; it decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.launcher.planned_session import PlannedSession

__all__ = ["PlannedSession"]


def __getattr__(name: str) -> Any:
    """Load ONNX Runtime when a session is asked for, not when the package is."""
    if name == "PlannedSession":
        from planner.launcher.planned_session import PlannedSession

        return PlannedSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
