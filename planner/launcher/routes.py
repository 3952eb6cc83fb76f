"""From a partitioned model to what each worker sends, drops and reports."""

from __future__ import annotations

from collections.abc import Mapping

from planner.launcher.worker import SegmentRoute
from planner.partition.types import PartitionedModel


def routes_by_device(model: PartitionedModel) -> Mapping[str, tuple[SegmentRoute, ...]]:
    """Routes of each device's segments, in execution order; devices in order of their first segment.

    A value is sent once to a device, however many of its segments read it.
    """
    devices = list(dict.fromkeys(segment.device for segment in model.segments))
    readers: dict[str, dict[str, int]] = {}
    for position, segment in enumerate(model.segments):
        for info in segment.inputs:
            # Overwritten by later readers: what is left is the last one of each device.
            readers.setdefault(info.name, {})[segment.device] = position
    results = {info.name for info in model.outputs}
    routes: dict[str, list[SegmentRoute]] = {name: [] for name in devices}
    for position, segment in enumerate(model.segments):
        sends: dict[int, list[str]] = {}
        drops = []
        made = [info.name for info in segment.outputs]
        for name in made:
            for target in readers.get(name, {}):
                if target != segment.device:
                    sends.setdefault(devices.index(target), []).append(name)
            if segment.device not in readers.get(name, {}):
                drops.append(name)
        read = dict.fromkeys(info.name for info in segment.inputs)
        drops += [name for name in read if readers[name][segment.device] == position]
        routes[segment.device].append(
            SegmentRoute(
                position=position,
                sends=tuple((target, tuple(names)) for target, names in sends.items()),
                drops=tuple(drops),
                results=tuple(name for name in made if name in results),
            )
        )
    return {name: tuple(of_device) for name, of_device in routes.items()}
