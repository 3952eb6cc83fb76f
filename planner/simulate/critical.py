"""The critical path of a simulated step: back from the segment that ends last to what each one waited for."""

from __future__ import annotations

from collections.abc import Sequence


def critical_path(
    start_ns: Sequence[int],
    finish_ns: Sequence[int],
    previous: Sequence[int],
    transfer_src: Sequence[int],
    transfer_dst: Sequence[int],
    transfer_channel: Sequence[int],
    sent_ns: Sequence[int],
    arrival_ns: Sequence[int],
) -> list[int]:
    """Segments each of which starts the moment the one before it, or that one's data, lets it.

    Ties: the earliest segment of those that end last; the segment before it on its device rather than a transfer; the
    first transfer. A transfer that waited for its channel was held up by the one that freed it at that moment.

    Args:
        start_ns: [segments] start.
        finish_ns: [segments] finish.
        previous: [segments] the one before it on its device; -1 for the first.
        transfer_src: [transfers] segment that makes the tensor.
        transfer_dst: [transfers] segment that waits for it.
        transfer_channel: [transfers] what it queues on.
        sent_ns: [transfers] when its channel took it.
        arrival_ns: [transfers] when it was there.

    Returns:
        Positions of segments, the last of which ends the step.
    """
    if not finish_ns:
        return []
    incoming: list[list[int]] = [[] for _ in finish_ns]
    for index, dst in enumerate(transfer_dst):
        incoming[dst].append(index)
    frees = {
        (transfer_channel[index], arrival): index
        for index, arrival in enumerate(arrival_ns)
        if sent_ns[index] < arrival
    }
    path = [finish_ns.index(max(finish_ns))]
    while True:
        segment = path[-1]
        begin = start_ns[segment]
        before = previous[segment]
        if before < 0 or finish_ns[before] != begin:
            late = next((index for index in incoming[segment] if arrival_ns[index] == begin), None)
            if late is None:
                return path[::-1]
            while sent_ns[late] > finish_ns[transfer_src[late]]:
                late = frees[transfer_channel[late], sent_ns[late]]
            before = transfer_src[late]
        path.append(before)
