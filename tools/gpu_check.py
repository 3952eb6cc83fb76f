"""What to run once on a machine with NVIDIA GPUs: does the GPU path work, and does it keep what plans promise.

Devices, profile, plan on all GPUs (on a single one as two logical devices, which run one after the other: outputs
count then, speed-ups do not), ``apply --verify``, predicted against measured, and how much of the data sheet's peak
each operator family reached, for ``profiles/``. Every step is a command of ``fddps``; what fails is reported, and the
rest goes on. The report is Markdown, written as it grows. ``--cpus 2`` runs the same steps on CPU devices.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.cluster.cpu import cpu_devices
from planner.cluster.gpu import gpu_devices
from planner.cluster.sheets import DataSheet, sheet_for
from planner.cluster.types import Cluster
from planner.cost.flops import family, is_view, op_flops
from planner.cost.keys import group_key
from planner.cost.profile import ProfileTable, read_profile
from planner.cost.roofline import group_ns
from planner.model.load import load_model
from planner.model.options import LoadOptions
from planner.pipeline import make_setting
from planner.plan.atomic import write_text_atomically
from planner.request import Request
from tests.models import light_path, reweight
from tools.commands import CommandFailed, run_fddps

# Models that the onnx package brings: nothing has to be downloaded. The most telling first.
CASES: Final = (("resnet50", 8), ("inception_v2", 8), ("densenet121", 8), ("vgg19", 8), ("squeezenet", 1))


@dataclass(frozen=True, slots=True)
class Target:
    """How the commands name the devices.

    Attributes:
        profile: options of ``fddps profile``.
        plan: options of ``fddps plan``, to which the profile is added.
        apply: options of ``fddps apply``.
        alone: whether all devices of the plan are one.
    """

    profile: tuple[str, ...]
    plan: tuple[str, ...]
    apply: tuple[str, ...] = ()
    alone: bool = False


def gpu_target(count: int) -> Target:
    """All GPUs; one GPU is planned for as two."""
    if count == 1:
        return Target(("--gpus", "1"), ("--gpus", "2"), ("--map", "cuda:1=cuda:0"), True)
    return Target(("--gpus", str(count)), ("--gpus", str(count)))


class Report:
    """Lines of the report, written after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[str] = []
        self.failed = False

    def add(self, *lines: str) -> None:
        """Add lines, show them, and write all."""
        self._lines += lines
        print(*lines, sep="\n", flush=True)
        write_text_atomically(self._path, "\n".join(self._lines) + "\n")

    def fail(self, what: str, problem: Exception) -> None:
        """Say what did not work."""
        self.failed = True
        self.add(f"FAILED: {what}: {problem}", "")


def check(name: str, batch: int, target: Target, out: Path, report: Report) -> None:
    """Profile, plan, run and verify one model, and say what became of the prediction."""
    model, profile, plan = out / f"{name}.onnx", out / f"{name}-{batch}-profile.yaml", out / f"{name}-{batch}.yaml"
    if not model.exists():
        reweight(light_path(name), model, seed=0)
    size = ("--batch", str(batch))
    try:
        run_fddps("profile", str(model), *target.profile, *size, "-o", str(profile), "--quiet")
        planned = run_fddps(
            "plan", str(model), *target.plan, *size, "--profile", str(profile), "-o", str(plan), "--force", "--quiet"
        )
        ran = run_fddps("apply", str(plan), *target.apply, "--verify", "--repeat", "20", "--quiet")
    except CommandFailed as problem:
        report.fail(f"{name}, batch {batch}", problem)
        return
    report.add(_row(name, batch, planned, ran))
    report.failed = report.failed or not ran["verified"]


HEADING: Final = (
    "model",
    "batch",
    "plan by",
    "one device predicted ms",
    "measured ms",
    "plan predicted ms",
    "measured ms",
    "speed-up predicted",
    "measured",
    "largest relative difference",
    "verified",
)


def _row(name: str, batch: int, planned: dict[str, Any], ran: dict[str, Any]) -> str:
    one, step = planned["one_device_step_s"], planned["predicted_step_s"]
    times = (one, ran["one_device_step_s"], step, ran["step_s"])
    cells = [name, str(batch), planned["planner"], *("-" if t is None else f"{1000 * t:.2f}" for t in times)]
    cells += ["-" if not all(times) else f"{a / b:.2f}" for a, b in ((one, step), (times[1], times[3]))]
    return "| " + " | ".join([*cells, f"{ran['max_rel_diff']:.1e}", "yes" if ran["verified"] else "NO"]) + " |"


def efficiencies(model: Path, batch: int, profile: ProfileTable, cluster: Cluster) -> dict[str, list[float]]:
    """By operator family, percentage of the data sheet's peak that measured groups of a model reached.

    Only groups whose roofline is twice the launch overhead: others tell of that, and not of arithmetic.

    Args:
        model: the file.
        batch: its batch size.
        profile: measured on the first device's kind.
        cluster: the devices.
    """
    device = cluster.devices[0]
    sheet: DataSheet = sheet_for(device.kind)
    request = Request(model, cluster, measure=False, profile=profile, load=LoadOptions(batch=batch))
    loaded = load_model(model, request.load)
    setting = make_setting(request, loaded, profile)
    found: dict[str, list[float]] = {}
    for members in setting.workloads.build(()).groups.members:
        ops = [loaded.graph.context(op) for op in members]
        measured = profile.find(device.kind, device.type, group_key(ops))
        work = group_ns(ops, sheet)
        if all(is_view(op) for op in ops) or measured is None or work < 2 * sheet.launch_ns:
            continue
        name = family(max(ops, key=op_flops))
        found.setdefault(name, []).append(sheet.efficiency[name] * work / max(measured.ns, 1))
    return found


def main() -> int:
    """Command line; 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Check the GPU path on a machine that has GPUs.")
    parser.add_argument("--cpus", help="CPU devices in place of GPUs, as in fddps plan")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder for models, plans and the report")
    parser.add_argument("--model", action="append", default=[], choices=[name for name, _ in CASES])
    parser.add_argument("--seconds", type=float, default=480.0, help="no model is begun later")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report, begin = Report(options.out / "REPORT.md"), time.monotonic()
    try:
        devices = run_fddps("devices")
    except CommandFailed as problem:
        report.fail("devices", problem)
        return 1
    gpus = [device for device in devices["devices"] if device["type"] == "cuda"]
    if not gpus and not options.cpus:
        print("no GPU found: see `fddps devices`; --cpus 2 runs the same steps on CPU devices", file=sys.stderr)
        return 1
    target = gpu_target(len(gpus))
    if options.cpus:
        target = Target(("--cpus", options.cpus), ("--cpus", options.cpus))
    report.add(f"Driver {devices['driver'] or 'none'}; devices:", "")
    report.add(*(f"- {device['name']}: {device['kind']}" for device in devices["devices"]), "")
    if target.alone:
        report.add("One GPU stands for two devices: outputs count, speed-ups do not.", "")
    report.add("| " + " | ".join(HEADING) + " |", "|" + "---|" * len(HEADING))
    cases = [(name, batch) for name, batch in CASES if not options.model or name in options.model]
    begun = [case for case in cases if _in_time(case, begin + options.seconds, target, options.out, report)]
    if missing := [f"{name} {batch}" for name, batch in cases if (name, batch) not in begun]:
        report.add("", f"Not begun for lack of time: {', '.join(missing)}")
    cluster = cpu_devices(options.cpus) if options.cpus else gpu_devices(target.profile[1])
    report.add(*_efficiency_table(begun, cluster, options.out))
    return 1 if report.failed else 0


def _in_time(case: tuple[str, int], until: float, target: Target, out: Path, report: Report) -> bool:
    if time.monotonic() > until:
        return False
    check(*case, target, out, report)
    return True


def _efficiency_table(cases: list[tuple[str, int]], cluster: Cluster, out: Path) -> list[str]:
    """Percentages beside those of the data sheet, where any group was measured."""
    found: dict[str, list[float]] = {}
    for name, batch in cases:
        profile = out / f"{name}-{batch}-profile.yaml"
        if profile.exists():
            for group, values in efficiencies(out / f"{name}.onnx", batch, read_profile(profile), cluster).items():
                found.setdefault(group, []).extend(values)
    sheet = sheet_for(cluster.devices[0].kind)
    lines = ["", f"Percentage of the peak that measured groups reached on {cluster.devices[0].kind}:", ""]
    lines += ["| family | data sheet | median | least | most | groups |", "|---|---|---|---|---|---|"]
    for group, values in sorted(found.items()):
        middle = statistics.median(values)
        figures = (sheet.efficiency[group], middle, min(values), max(values))
        lines.append(f"| {group} | " + " | ".join(f"{value:.0f}" for value in figures) + f" | {len(values)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
