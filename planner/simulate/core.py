"""The event simulation on numbers: segments, transfers and channels are positions in arrays.

Kept free of plans and names because planners call it hundreds of times per plan with candidates that are no
plans yet. The semantics are those of the launcher, see :mod:`planner.simulate.simulator`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.graph.jit import kernel

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayResult:
    """Times of one simulated step.

    Attributes:
        start_ns: [segments] start; -1 for one that never starts (deadlock).
        finish_ns: [segments] finish; -1 likewise.
        sent_ns: [transfers] when the channel takes it; -1 for one that is never sent.
        arrival_ns: [transfers] when the data is there; -1 likewise.
        step_ns: latest finish; 0 without segments.
        complete: whether every segment ran.
    """

    start_ns: I64
    finish_ns: I64
    sent_ns: I64
    arrival_ns: I64
    step_ns: int
    complete: bool


def simulate_arrays(
    duration_ns: npt.ArrayLike,
    next_on_device: npt.ArrayLike,
    transfer_src: npt.ArrayLike,
    transfer_dst: npt.ArrayLike,
    transfer_ns: npt.ArrayLike,
    transfer_channel: npt.ArrayLike,
) -> ArrayResult:
    """Simulate one step.

    A segment starts when the one before it on its device has finished and all its transfers have arrived.
    A transfer is ready when its source finishes; a channel carries one at a time, in order of readiness, then of
    position.

    Args:
        duration_ns: [segments] time on the device, dispatch included. All times together must stay below 2**63.
        next_on_device: [segments] the segment that follows in the device's queue, -1 for the last.
        transfer_src: [transfers] segment that makes the tensor.
        transfer_dst: [transfers] segment that waits for it.
        transfer_ns: [transfers] time on the channel.
        transfer_channel: [transfers] channel, counted from 0.
    """
    duration, following, src, dst, carry, channel = (
        np.ascontiguousarray(column, dtype=np.int64)
        for column in (duration_ns, next_on_device, transfer_src, transfer_dst, transfer_ns, transfer_channel)
    )
    # Transfers by source, each source's in their own order: compressed sparse rows.
    outgoing = np.argsort(src, kind="stable")
    first = np.searchsorted(src[outgoing], np.arange(len(duration) + 1))
    waits = np.bincount(dst, minlength=len(duration))
    waits += np.bincount(following[following >= 0], minlength=len(duration))
    start, finish, sent, arrival = _run(duration, following, waits, outgoing, first, dst, carry, channel)
    step_ns = int(finish.max()) if len(finish) else 0
    return ArrayResult(start, finish, sent, arrival, step_ns, not len(start) or int(start.min()) >= 0)


@kernel
def _run(
    duration: I64,
    following: I64,
    waits: I64,
    outgoing: I64,
    first: I64,
    dst: I64,
    carry: I64,
    channel: I64,
) -> tuple[I64, I64, I64, I64]:
    """Start, finish, sent and arrival times; ``waits`` (how much each segment still waits for) is used up."""
    num_segments, num_transfers = len(duration), len(dst)
    start = np.full(num_segments, -1, np.int64)
    finish = np.full(num_segments, -1, np.int64)
    sent = np.full(num_transfers, -1, np.int64)
    arrival = np.full(num_transfers, -1, np.int64)
    ready = np.zeros(num_segments, np.int64)
    channel_free = np.zeros(channel.max() + 1 if num_transfers else 0, np.int64)
    runnable = np.empty(num_segments, np.int64)
    count = 0
    for segment in range(num_segments):
        if waits[segment] == 0:
            runnable[count] = segment
            count += 1
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]  # empty, of known type
    while True:
        while count > 0:
            count -= 1
            segment = runnable[count]
            end = ready[segment] + duration[segment]
            start[segment] = ready[segment]
            finish[segment] = end
            for position in range(first[segment], first[segment + 1]):
                heapq.heappush(heap, (end, outgoing[position]))
            after = following[segment]
            if after >= 0:
                ready[after] = max(ready[after], end)
                waits[after] -= 1
                if waits[after] == 0:
                    runnable[count] = after
                    count += 1
        if len(heap) == 0:
            return start, finish, sent, arrival
        # No transfer still unknown can be ready earlier: times only grow along edges.
        begin, index = heapq.heappop(heap)
        begin = max(begin, channel_free[channel[index]])
        end = begin + carry[index]
        sent[index] = begin
        arrival[index] = end
        channel_free[channel[index]] = end
        reader = dst[index]
        ready[reader] = max(ready[reader], end)
        waits[reader] -= 1
        if waits[reader] == 0:
            runnable[count] = reader
            count += 1
