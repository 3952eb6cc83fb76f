"""Errors a user can cause or must act on.

Every message is one line that says what is wrong, where, what was expected and what to do next.
The command line prints it without a traceback and exits with the class's ``exit_code``:
1 for a negative answer (plans differ, verification failed, infeasible), 2 for usage, configuration or I/O.
"""

from __future__ import annotations


class FddpsError(Exception):
    """Base of all errors that reach the user.

    Args:
        what: what is wrong, in a few words.
        where: file, ``file:key``, node or tensor; empty if it is clear from ``what``.
        expected: what would have been right.
        next_step: what the user can do about it.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", expected: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.next_step = next_step
        parts = [f"{where}: {what}" if where else what]
        if expected:
            parts.append(f"expected {expected}")
        if next_step:
            parts.append(next_step)
        super().__init__("; ".join(parts).replace("\n", " "))


class UsageError(FddpsError):
    """Options that contradict each other or make no sense."""


class ModelError(FddpsError):
    """The model cannot be read, or a shape in it cannot be known."""


class PlanError(FddpsError):
    """A plan file that cannot be read, or that breaks a rule of the schema."""


class ClusterError(FddpsError):
    """Devices that are not there, or a cluster description that is wrong."""


class ProfileError(FddpsError):
    """A profile that cannot be read, written or measured."""


class InputError(FddpsError):
    """Feeds that do not fit the model's inputs."""


class InfeasibleError(FddpsError):
    """No plan fits the devices' memory."""

    exit_code = 1


class VerificationError(FddpsError):
    """The split model's outputs are not those of the unsplit model."""

    exit_code = 1


class ExecutionError(FddpsError):
    """A segment failed while it was created or run."""


class OutputError(FddpsError):
    """A result that cannot be written where the user asked."""
