"""Costs from a profile where it has them, from calibrated rooflines where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from planner.cluster.sheets import DataSheet, cpu_kind_parts, sheet_for
from planner.cluster.types import Device
from planner.cost.floor import Floor, op_floor
from planner.cost.flops import family, is_view, op_flops
from planner.cost.keys import group_key, segment_digest
from planner.cost.model import Cost
from planner.cost.profile import DISPATCH_KEY, ProfileTable, segment_key
from planner.cost.roofline import group_ns, group_work_ns
from planner.graph.op_graph import OpContext

# A ratio measured / roofline, as a fraction of integers: decisions rest on no floating-point digit.
Ratio = tuple[int, int]
_ONE: Ratio = (1, 1)


@dataclass(frozen=True, slots=True)
class CostTable:
    """The cost model in use: ``cost.model.CostModel``.

    Attributes:
        profile: measurements, or None.
        sheets: data sheets by device kind.
        calibration: per (device kind, operator family) the median ratio measured / roofline; see :meth:`calibrated`.
    """

    profile: ProfileTable | None
    sheets: Mapping[str, DataSheet]
    calibration: Mapping[tuple[str, str], Ratio] = field(default_factory=dict)

    def calibrated(self, groups: Sequence[Sequence[OpContext]], devices: Sequence[Device]) -> CostTable:
        """The same table with rooflines scaled to what the profile says of these groups.

        Args:
            groups: fused groups, some of which the profile has.
            devices: devices to calibrate; one of each kind is enough.
        """
        if self.profile is None:
            return self
        keyed = [(group_key(ops), _group_family(ops), ops) for ops in groups]
        found: dict[tuple[str, str], list[Ratio]] = {}
        for device in {device.kind: device for device in devices}.values():
            sheet = sheet_for(device.kind, self.sheets)
            for key, group, ops in dict((entry[0], entry) for entry in keyed).values():
                measured = self.profile.find(device.kind, device.type, key)
                work = group_ns(ops, sheet)
                if measured is not None and work > 0 and measured.ns > 0:
                    found.setdefault((device.kind, group), []).append((measured.ns, work))
        medians = {name: _median(ratios) for name, ratios in found.items()}
        for kind in dict.fromkeys(kind for kind, _ in found):
            # A family without any measurement takes the median of all.
            every = [ratio for (owner, _), ratios in found.items() if owner == kind for ratio in ratios]
            medians[(kind, "")] = _median(every)
        for kind in dict.fromkeys(device.kind for device in devices):
            near = _nearest_sibling(kind, [owner for owner, group in medians if not group and owner not in self.sheets])
            if (kind, "") not in medians and near:
                medians.update({(kind, group): ratio for (owner, group), ratio in medians.items() if owner == near})
        return CostTable(self.profile, self.sheets, medians)

    def group_ns(self, ops: Sequence[OpContext], device: Device, parent: Sequence[OpContext] | None = None) -> Cost:
        """Time of one run of a fused group.

        Measured if the profile has its key. Else, if ``parent`` is measured, its time in proportion to the rooflines
        of part and whole, and never less than one kernel's overhead. Else the calibrated roofline.

        Args:
            ops: in topological order.
            device: where.
            parent: the group that this one is a shard of.

        Raises:
            ClusterError: if the cost must be estimated and the device kind has no data sheet.
        """
        if all(is_view(op) for op in ops):
            return Cost(0, True)
        measured = self._measured(ops, device)
        if measured is not None:
            return Cost(measured, True)
        sheet = sheet_for(device.kind, self.sheets)
        if parent is not None:
            whole_measured = self._measured(parent, device)
            whole = group_work_ns(parent, sheet)
            if whole_measured is not None and whole > 0:
                overhead = min(sheet.launch_ns, whole_measured)
                part = group_work_ns(ops, sheet)
                return Cost(overhead + _scaled(whole_measured - overhead, (part, whole)), False)
        name = (device.kind, _group_family(ops))
        ratio = self.calibration.get(name) or self.calibration.get((device.kind, ""), _ONE)
        return Cost(_scaled(group_ns(ops, sheet), ratio), False)

    def floors(self, ops: Sequence[OpContext], device: Device) -> list[Floor]:
        """The least that shards of each operator of a group cost, however they are split.

        Args:
            ops: a fused group of the unsplit graph.
            device: where.

        Raises:
            ClusterError: if the device kind has no data sheet.
        """
        sheet = sheet_for(device.kind, self.sheets)
        found = [op_floor(op, sheet) for op in ops]
        whole, estimated = self.group_ns(ops, device).ns, group_ns(ops, sheet)
        if whole == estimated or not estimated:
            return found
        return [Floor(*(part * whole // estimated for part in floor)) for floor in found]

    @property
    def knows_segments(self) -> bool:
        """Whether the profile has any whole segment."""
        prefix = segment_key("")
        return self.profile is not None and any(key.key.startswith(prefix) for key in self.profile.entries)

    def segment_ns(self, keys: Sequence[str], device: Device) -> int | None:
        """Measured time of a whole segment, None if the profile has none.

        Args:
            keys: group keys of its tasks, in order.
            device: where.
        """
        if self.profile is None:
            return None
        found = self.profile.find(device.kind, device.type, segment_key(segment_digest(keys)))
        return None if found is None else found.ns

    def dispatch_ns(self, device: Device) -> Cost:
        """Overhead of starting one segment.

        Raises:
            ClusterError: if it is not measured and the device kind has no data sheet.
        """
        if self.profile is not None:
            found = self.profile.find(device.kind, device.type, DISPATCH_KEY)
            if found is not None:
                return Cost(found.ns, True)
        return Cost(sheet_for(device.kind, self.sheets).dispatch_ns, False)

    def _measured(self, ops: Sequence[OpContext], device: Device) -> int | None:
        if self.profile is None:
            return None
        found = self.profile.find(device.kind, device.type, group_key(ops))
        return None if found is None else found.ns


def _nearest_sibling(kind: str, others: Sequence[str]) -> str:
    """The same CPU with the number of cores that is nearest; empty if there is none.

    What a data sheet of a CPU is wrong by, it is wrong by for any number of its cores: without this the guess for all
    cores would be compared with what was measured on one.
    """
    stem, cores = cpu_kind_parts(kind)
    siblings = [(abs(cpu_kind_parts(name)[1] - cores), name) for name in others if cpu_kind_parts(name)[0] == stem]
    return min(siblings)[1] if stem and siblings else ""


def _group_family(ops: Sequence[OpContext]) -> str:
    """Family of the operator that does most of the arithmetic, the first of equals."""
    return family(max(ops, key=op_flops))


def _median(ratios: Sequence[Ratio]) -> Ratio:
    """Lower median of fractions, compared exactly."""
    ordered = sorted(ratios, key=lambda ratio: (Fraction(*ratio), ratio))
    return ordered[(len(ordered) - 1) // 2]


def _scaled(value: int, ratio: Ratio) -> int:
    """``value * ratio`` rounded to nearest, halves up."""
    return (2 * value * ratio[0] + ratio[1]) // (2 * ratio[1])
