"""What a hand-over between two devices' workers costs on CPU: one pinned thread wakes another."""

from __future__ import annotations

import os
import threading
import time
from statistics import median_low


def handover_ns(src_core: int, dst_core: int, *, rounds: int = 300) -> int:
    """Median nanoseconds from a worker's release of a value to the waiting worker's going on.

    Args:
        src_core: core of the worker that hands over.
        dst_core: core of the one that waits.
        rounds: round trips to measure; one way is half of a round trip.
    """
    there, back = threading.Semaphore(0), threading.Semaphore(0)
    times: list[int] = []

    def answer() -> None:
        _pin(dst_core)
        for _ in range(rounds):
            there.acquire()
            back.release()

    def ask() -> None:
        _pin(src_core)
        for _ in range(rounds):
            begin = time.perf_counter_ns()
            there.release()
            back.acquire()
            times.append(time.perf_counter_ns() - begin)

    threads = [threading.Thread(target=work, daemon=True) for work in (answer, ask)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return median_low(times) // 2


def _pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
