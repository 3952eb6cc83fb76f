"""What a hand-over between two devices' workers costs on CPU: one pinned thread wakes another."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from statistics import median_low
from typing import Final

from planner.errors import ExecutionError

ROUNDS: Final = 300
"""Round trips to measure."""
# A round trip takes microseconds; on a machine that has other things to do, thousands of them.
_TIMEOUT_S: Final = 10.0


def handover_ns(src_core: int, dst_core: int, *, rounds: int = ROUNDS, timeout_s: float = _TIMEOUT_S) -> int:
    """Median nanoseconds from a worker's release of a value to the waiting worker's going on.

    Args:
        src_core: core of the worker that hands over.
        dst_core: core of the one that waits.
        rounds: round trips to measure; one way is half of a round trip.
        timeout_s: no thread waits longer for the other.

    Raises:
        ExecutionError: if a thread cannot be pinned to its core, or the other is not heard of.
    """
    there, back = threading.Semaphore(0), threading.Semaphore(0)
    times: list[int] = []
    problems: list[Exception] = []

    def answer() -> None:
        _pin(dst_core)
        for _ in range(rounds):
            _wait(there, timeout_s)
            back.release()

    def ask() -> None:
        _pin(src_core)
        for _ in range(rounds):
            begin = time.perf_counter_ns()
            there.release()
            _wait(back, timeout_s)
            times.append(time.perf_counter_ns() - begin)

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:
            problems.append(problem)
            # The other need not wait for the time-out: it goes on, and what it measures does not count.
            there.release(rounds)
            back.release(rounds)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in (answer, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise ExecutionError(
            f"a hand-over cannot be measured: {problems[0]}",
            where=f"cores {src_core} and {dst_core}",
            expected="two cores that this process may run on",
            next_step="name other devices with --cpus",
        ) from problems[0]
    return median_low(times) // 2


def _wait(semaphore: threading.Semaphore, timeout_s: float) -> None:
    if not semaphore.acquire(timeout=timeout_s):
        raise TimeoutError(f"one thread waited {timeout_s:g} s for the other")


def _pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
