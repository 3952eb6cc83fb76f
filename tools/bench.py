"""The benchmark: every model of ``.models`` that is there, planned for two CPU devices, run and compared.

Light models of the onnx package are used too, with weights that tell inputs apart. Measurements are of this machine:
compare rows of one table, not tables of two machines.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.models import light_path, reweight
from tools.commands import CommandFailed, Comparison, milliseconds, plan_and_apply, print_table

# File below .models -> batch sizes; chains of operators gain from a batch, branches also without one.
MADE: Final = {
    "timm_resnet50": (1, 8),
    "timm_inception_v3": (1, 8),
    "timm_densenet121": (8,),
    "timm_efficientnet_b0": (8,),
    "timm_pnasnet5large": (1,),
    "timm_pnasnet_mobile": (1,),
    "timm_nasnetalarge": (1,),
    "keras_NASNetMobile": (1,),
    "transformers_bert_base": (1,),
    "transformers_gpt2": (1,),
    "recurrent_ptb_lstm_unrolled": (8,),
}
LIGHT: Final = {"squeezenet": (8,), "inception_v1": (1, 8), "shufflenet": (8,)}


def cases(models: Path, out: Path, only: str) -> Iterator[tuple[str, Path, int]]:
    """Name, file and batch of every case whose model is there or can be made from the onnx package."""
    for name, batches in MADE.items():
        path = models / f"{name}.onnx"
        if only in name and path.exists():
            yield from ((name, path, batch) for batch in batches)
    for name, batches in LIGHT.items():
        path = out / f"light_{name}.onnx"
        if only not in path.stem:
            continue
        if not path.exists():
            reweight(light_path(name), path, seed=0)
        yield from ((path.stem, path, batch) for batch in batches)


def main() -> int:
    """Command line; 1 if a model could not be planned, run or verified."""
    parser = argparse.ArgumentParser(description="Plan and run real models on two CPU devices.")
    parser.add_argument("--models", type=Path, default=Path(".models"))
    parser.add_argument("--out", type=Path, default=Path(".models") / "bench", help="folder for plans")
    parser.add_argument("--only", default="", metavar="TEXT", help="only models whose name contains TEXT")
    parser.add_argument("--cpus", default="2", help="devices, as in fddps plan")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results, failed = [], []
    for name, path, batch in cases(options.models, options.out, options.only):
        title = f"{name}, {batch}"
        plan = options.out / f"{name}-{batch}.yaml"
        try:
            result = plan_and_apply(title, path, plan, ["--cpus", options.cpus, "--batch", str(batch)])
        except CommandFailed as error:
            failed.append(f"{title}: {error}")
            continue
        results.append(result)
        print(f"{title}: {milliseconds(result.measured_s)} ms", file=sys.stderr)
    show(results)
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed or not all(result.verified for result in results) else 0


def show(results: list[Comparison]) -> None:
    """Print one row a case."""
    heading = ("model, batch", "plan by", "one device ms", "plan ms", "speed-up", "predicted ms", "off by", "agree")
    rows = [heading]
    for r in results:
        speedup = "-" if r.speedup is None else f"{r.speedup:.2f}"
        off = f"{(r.predicted_s / r.measured_s - 1) * 100:+.0f}%"
        measured = (milliseconds(r.one_device_s), milliseconds(r.measured_s), speedup)
        rows.append((r.model, r.planner, *measured, milliseconds(r.predicted_s), off, "yes" if r.verified else "NO"))
    print_table(rows)


if __name__ == "__main__":
    sys.exit(main())
