"""Threads that are inside ONNX Runtime, and Ctrl-C: an interpreter that ends meanwhile ends in an abort."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

# A session may finish the kernel that it is at.
_STOP_S: Final = 10.0


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

    for work in works:
        threading.Thread(target=run, args=(work,), daemon=True).start()
    left = len(works)
    try:
        while left:
            done.get()
            left -= 1
    except BaseException:
        stop()
        with contextlib.suppress(Empty):
            while left:
                done.get(timeout=_STOP_S)
                left -= 1
        raise
