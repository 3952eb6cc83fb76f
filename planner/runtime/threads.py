"""Threads that are inside ONNX Runtime, and Ctrl-C: an interpreter that ends meanwhile ends in an abort."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

# A session may finish the kernel that it is at.
_STOP_S: Final = 10.0
_STARTED_S: Final = 0.05


def run_in_threads(works: Sequence[Callable[[], None]], stop: Callable[[], None]) -> None:
    """Run each in a thread of its own and wait for all.

    Args:
        works: what each thread does; none raises.
        stop: called on Ctrl-C; has them end early, and is waited for.
    """
    # Not Thread.join: in Python 3.11 one that is interrupted takes the thread for ended from then on.
    done: SimpleQueue[None] = SimpleQueue()

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            done.put(None)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    left = len(works)
    try:
        # Inside the try: the last one may be at work before ``start`` returns, and Ctrl-C come in between.
        for thread in threads:
            thread.start()
        while left:
            done.get()
            left -= 1
    except BaseException:
        stop()
        # One that was started says so as soon as it runs; those that were not will never be done.
        time.sleep(_STARTED_S)
        left -= sum(thread.ident is None for thread in threads)
        with contextlib.suppress(Empty):
            while left > 0:
                done.get(timeout=_STOP_S)
                left -= 1
        raise
