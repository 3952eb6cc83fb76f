from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from planner.simulate.core import ArrayResult, simulate_arrays


def run(*columns: list[int]) -> ArrayResult:
    return simulate_arrays(*columns)


def test_lists_and_arrays_of_any_integer_type_are_the_same() -> None:
    columns = [[5, 7, 3], [1, -1, -1], [0, 1], [2, 2], [4, 4], [0, 0]]
    one = run(*columns)
    two = simulate_arrays(*(np.array(column, np.int32) for column in columns))
    assert one.step_ns == two.step_ns == 5 + 7 + 4 + 3
    assert one.start_ns.tolist() == two.start_ns.tolist() == [0, 5, 16]
    assert one.sent_ns.tolist() == [5, 12]
    assert one.arrival_ns.tolist() == [9, 16]


def test_inputs_stay_as_they_are() -> None:
    columns = [np.array(column, np.int64) for column in ([5, 7, 3], [1, -1, -1], [0, 1], [2, 2], [4, 4], [0, 0])]
    copies = [column.copy() for column in columns]
    simulate_arrays(*columns)
    assert all((a == b).all() for a, b in zip(columns, copies, strict=True))


def test_nothing_takes_no_time() -> None:
    result = run([], [], [], [], [], [])
    assert (result.step_ns, result.complete) == (0, True)


def test_a_deadlock_is_incomplete_and_marked() -> None:
    result = run([1, 1, 1], [-1, -1, -1], [0, 1], [1, 0], [1, 1], [0, 0])
    assert not result.complete
    assert result.start_ns.tolist() == [-1, -1, 0]
    assert result.arrival_ns.tolist() == [-1, -1]


def test_a_thousand_segments_hold_the_bounds() -> None:
    """Step at least the longest chain over queues and transfers; every segment starts as soon as it may."""
    draw = random.Random(7)
    count, devices = 1000, 4
    device = [draw.randrange(devices) for _ in range(count)]
    following, last = [-1] * count, dict[int, int]()
    for segment in range(count):
        if device[segment] in last:
            following[last[device[segment]]] = segment
        last[device[segment]] = segment
    pairs = [sorted(draw.sample(range(count), 2)) for _ in range(4000)]
    sends = [(a, b) for a, b in pairs if device[a] != device[b]]
    duration = [draw.randrange(1, 1000) for _ in range(count)]
    carry = [draw.randrange(1, 5000) for _ in sends]
    channel = [device[a] * devices + device[b] for a, b in sends]
    result = run(duration, following, [a for a, _ in sends], [b for _, b in sends], carry, channel)
    assert result.complete

    longest = [0] * count
    earliest = [0] * count
    for segment in range(count):
        before = [finish for finish in (result.finish_ns[s] for s in range(segment) if following[s] == segment)]
        before += [arrival for (_, b), arrival in zip(sends, result.arrival_ns, strict=True) if b == segment]
        earliest[segment] = int(max(before, default=0))
        longest[segment] += duration[segment]
        if following[segment] >= 0:
            longest[following[segment]] = max(longest[following[segment]], longest[segment])
        for (a, b), time in zip(sends, carry, strict=True):
            if a == segment:
                longest[b] = max(longest[b], longest[segment] + time)
    assert result.start_ns.tolist() == earliest
    assert result.step_ns >= max(longest)
    for number in range(devices * devices):
        spans = sorted(
            (int(result.sent_ns[k]), int(result.arrival_ns[k])) for k in range(len(sends)) if channel[k] == number
        )
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
