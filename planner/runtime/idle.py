"""Waiting until this process is idle: ONNX Runtime's threads spin for 60 to 80 ms after a run and disturb the next."""

from __future__ import annotations

import time
from typing import Final

_PAUSE_S: Final = 0.02
_IDLE_SHARE: Final = 0.1
_LONGEST_S: Final = 2.0


def pause_until_idle() -> None:
    """Sleep until no thread of this process computes or spins any more, 2 s at most."""
    give_up = time.perf_counter() + _LONGEST_S
    while time.perf_counter() < give_up:
        used = time.process_time()
        time.sleep(_PAUSE_S)
        if time.process_time() - used < _IDLE_SHARE * _PAUSE_S:
            return
