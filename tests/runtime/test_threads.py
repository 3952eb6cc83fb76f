"""Ctrl-C while threads are being started: those that run are stopped and waited for."""

from __future__ import annotations

import threading
import time

import pytest

from planner.runtime.threads import run_in_threads


@pytest.mark.parametrize(("launched", "expected"), [(True, 2), (False, 1)])
def test_ctrl_c_between_two_starts(monkeypatch: pytest.MonkeyPatch, launched: bool, expected: int) -> None:
    stopped = threading.Event()
    ended: list[int] = []
    real, calls = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        calls.append(thread)
        if len(calls) < 2:
            real(thread)
            return
        if launched:
            real(thread)
        raise KeyboardInterrupt

    def work() -> None:
        assert stopped.wait(10)
        time.sleep(0.1)  # the kernel that it is at
        ended.append(1)

    monkeypatch.setattr(threading.Thread, "start", start)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_in_threads([work, work], stopped.set)
    assert len(ended) == expected
    assert time.monotonic() - began < 5  # not for one that never began
