"""Many steps, and many callers at once: no growth of memory, no mixed-up results."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from planner.launcher.planned_session import PlannedSession
from tests.launcher.helpers import chain, cpus, ramp

SIZE = 50_000


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("devices", [1, 2])
def test_ten_thousand_steps_do_not_make_the_process_grow(devices: int) -> None:
    with PlannedSession.from_partition(chain(4, devices, SIZE), cpus(devices)) as session:
        x = ramp(SIZE)
        before = 0
        for step in range(10_000):
            (value,) = session.run(None, {"x": x})
            if step % 500 == 0:
                np.testing.assert_array_equal(value, x * 5)
            if step == 1_000:
                gc.collect()
                before = resident_bytes()
        del value
        gc.collect()
        # One value is 200 kB: had a thousandth of them been kept, this would show.
        assert resident_bytes() - before < 2_000_000


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_eight_callers_get_their_own_results(devices: int) -> None:
    wrong: list[Any] = []
    with PlannedSession.from_partition(chain(5, devices, 1000), cpus(devices)) as session:

        def call(number: int) -> None:
            for step in range(150):
                x = ramp(1000) + number * 1000 + step
                (value,) = session.run(None, {"x": x})
                if not np.array_equal(value, x * 6):
                    wrong.append((number, step))

        callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert wrong == []
