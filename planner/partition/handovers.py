"""Do a plan's transfers carry what its split graph needs, and nothing else?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.graph.op_graph import OpGraph
from planner.plan.check import transfer_place
from planner.plan.schema import Plan


def transfer_violations(plan: Plan, graph: OpGraph) -> list[str]:
    """Transfers that are missing, or that the plan's split graph does not need, one line each.

    What is handed over when a plan runs follows from its segments: wrong transfers make wrong predictions, but they
    keep no plan from running, and anyone may write one without.

    Args:
        plan: a plan that covers its model (``coverage_violations``).
        graph: the model's graph after the plan's splits.
    """
    ops = {op.name: op for op in graph.ops}
    segments = [(queue.device, segment) for queue in plan.devices for segment in queue.segments]
    device_of = {segment.id: device for device, segment in segments}
    maker = {name: segment.id for _, segment in segments for task in segment.tasks for name in ops[task].writes}
    # A tensor goes once to each device that reads it: to the first reader there.
    needed: dict[tuple[str, str], str] = {}
    for device, segment in segments:
        for name in (name for task in segment.tasks for name in ops[task].reads):
            if name in maker and device_of[maker[name]] != device:
                needed.setdefault((name, device), segment.id)
    return [*_wrong(plan, device_of, maker, needed), *_missing(plan, maker, needed)]


def _wrong(
    plan: Plan, device_of: Mapping[str, str], maker: Mapping[str, str], needed: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    for transfer in plan.transfers:
        if transfer.src not in device_of or transfer.dst not in device_of:
            continue  # said without the model
        place, device = transfer_place(transfer), device_of[transfer.dst]
        reader = needed.get((transfer.tensor, device))
        if transfer.tensor not in maker:
            yield f"{place}: no task makes such a tensor"
        elif maker[transfer.tensor] != transfer.src:
            yield f"{place}: {maker[transfer.tensor]!r} makes it"
        elif reader is None:
            yield f"{place}: nothing on {device!r} needs it"
        elif reader != transfer.dst:
            yield f"{place}: the first to read it on {device!r} is {reader!r}"


def _missing(plan: Plan, maker: Mapping[str, str], needed: Mapping[tuple[str, str], str]) -> Iterator[str]:
    given = {(transfer.tensor, transfer.src, transfer.dst) for transfer in plan.transfers}
    for (name, device), reader in needed.items():
        if (name, maker[name], reader) not in given:
            yield f"transfers: {name!r} from {maker[name]!r} to {reader!r} on {device!r} is missing"
