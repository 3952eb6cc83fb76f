"""The demonstration: ResNet-50, batch 8, planned for two CPU devices, run, checked and compared.

The network is the one that the onnx package ships, with weights that tell inputs apart: checking outputs that never
change would prove nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.models import light_path, reweight
from tools.commands import CommandFailed, Comparison, milliseconds, plan_and_apply, print_table


def main() -> int:
    """Command line; the exit code is that of the demonstration: 0 if the plan ran and the outputs agree."""
    parser = argparse.ArgumentParser(description="Plan ResNet-50 for two CPU devices and run the plan.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the model and the plan")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = options.out / "resnet50.onnx"
    if not model.exists():
        reweight(light_path("resnet50"), model, seed=0)
    try:
        result = plan_and_apply(
            "resnet50", model, options.out / "plan.yaml", ["--cpus", "2", "--batch", str(options.batch)]
        )
    except CommandFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    show(result, options.batch)
    return 0 if result.verified else 1


def show(result: Comparison, batch: int) -> None:
    """Print every choice that was weighed, then what the machine said."""
    print(f"\n{result.model}, batch {batch}, two CPU devices; the plan is by {result.planner}\n")
    print_table(
        [("choice", "predicted ms")] + [(planner, milliseconds(step_s)) for planner, step_s in result.candidates]
    )
    print()
    print_table(
        [
            ("run", "predicted ms", "measured ms"),
            ("one device", "", milliseconds(result.one_device_s)),
            ("the plan", milliseconds(result.predicted_s), milliseconds(result.measured_s)),
        ]
    )
    speedup = "not measured" if result.speedup is None else f"{result.speedup:.2f}x"
    print(f"\nspeed-up over one device: {speedup}; outputs agree: {'yes' if result.verified else 'NO'}")


if __name__ == "__main__":
    sys.exit(main())
