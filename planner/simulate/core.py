"""The event simulation on numbers: segments, transfers and channels are positions in lists.

Kept free of plans and names because planners call it hundreds of times per plan with candidates that are no
plans yet. The semantics are those of the launcher, see :mod:`planner.simulate.simulator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True)
class ArrayResult:
    """Times of one simulated step.

    Attributes:
        start_ns: start of each segment; -1 for one that never starts (deadlock).
        finish_ns: finish of each segment; -1 likewise.
        sent_ns: when each transfer gets its channel; -1 for one that never does.
        arrival_ns: when each transfer's data is there; -1 likewise.
        step_ns: latest finish; 0 without segments.
        complete: whether every segment ran.
    """

    start_ns: list[int]
    finish_ns: list[int]
    sent_ns: list[int]
    arrival_ns: list[int]
    step_ns: int
    complete: bool


def simulate_arrays(
    duration_ns: Sequence[int],
    next_on_device: Sequence[int],
    transfer_src: Sequence[int],
    transfer_dst: Sequence[int],
    transfer_ns: Sequence[int],
    transfer_channel: Sequence[int],
) -> ArrayResult:
    """Simulate one step.

    A segment starts when the one before it on its device has finished and all its transfers have arrived.
    A transfer is ready when its source finishes; a channel carries one at a time, in order of readiness, then of
    position. Pass lists: plain Python integers are several times faster here than numpy's.

    Args:
        duration_ns: [segments] time on the device, dispatch included.
        next_on_device: [segments] the segment that follows in the device's queue, -1 for the last.
        transfer_src: [transfers] segment that makes the tensor.
        transfer_dst: [transfers] segment that waits for it.
        transfer_ns: [transfers] time on the channel.
        transfer_channel: [transfers] channel, counted from 0.
    """
    num_segments, num_transfers = len(duration_ns), len(transfer_src)
    waits = [0] * num_segments
    for following in next_on_device:
        if following >= 0:
            waits[following] += 1
    outgoing: list[list[int]] = [[] for _ in range(num_segments)]
    for index, (src, dst) in enumerate(zip(transfer_src, transfer_dst, strict=True)):
        waits[dst] += 1
        outgoing[src].append(index)

    ready = [0] * num_segments
    start, finish = [-1] * num_segments, [-1] * num_segments
    sent, arrival = [-1] * num_transfers, [-1] * num_transfers
    channel_free = [0] * (max(transfer_channel, default=-1) + 1)
    # One number a waiting transfer, (ready time, position), compares faster than a pair.
    scale = max(num_transfers, 1)
    heap: list[int] = []
    runnable = [segment for segment in range(num_segments) if not waits[segment]]
    done = 0
    while True:
        while runnable:
            segment = runnable.pop()
            done += 1
            start[segment] = begin = ready[segment]
            finish[segment] = end = begin + duration_ns[segment]
            for index in outgoing[segment]:
                heappush(heap, end * scale + index)
            following = next_on_device[segment]
            if following >= 0:
                if ready[following] < end:
                    ready[following] = end
                waits[following] -= 1
                if not waits[following]:
                    runnable.append(following)
        if not heap:
            break
        # No transfer still unknown can be ready earlier: times only grow along edges.
        ready_ns, index = divmod(heappop(heap), scale)
        channel = transfer_channel[index]
        begin = max(ready_ns, channel_free[channel])
        sent[index] = begin
        arrival[index] = channel_free[channel] = end = begin + transfer_ns[index]
        dst = transfer_dst[index]
        if ready[dst] < end:
            ready[dst] = end
        waits[dst] -= 1
        if not waits[dst]:
            runnable.append(dst)
    return ArrayResult(start, finish, sent, arrival, max(finish, default=0), done == num_segments)
