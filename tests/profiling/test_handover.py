"""Measuring a hand-over: it ends, whatever the threads meet."""

from __future__ import annotations

import os

import pytest

from planner.errors import ExecutionError
from planner.profiling import handover


def test_a_hand_over_takes_some_time() -> None:
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    assert handover.handover_ns(core, core, rounds=5) > 0


@pytest.mark.parametrize("refused", [0, 1])
def test_a_thread_that_cannot_be_pinned_is_an_error(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    def pin(process: int, cores: set[int]) -> None:
        if refused in cores:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", pin, raising=False)
    with pytest.raises(ExecutionError, match=r"cores 0 and 1.*Invalid argument"):
        handover.handover_ns(0, 1)


def test_a_thread_that_is_not_heard_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = handover._wait

    def deaf(semaphore: object, timeout_s: float) -> None:
        real(handover.threading.Semaphore(0), timeout_s)

    monkeypatch.setattr(handover, "_wait", deaf)
    with pytest.raises(ExecutionError, match="waited"):
        handover.handover_ns(0, 0, timeout_s=0.05)
