"""All planners on real networks and clusters from data sheets: ours beside the best rival and the lower bound.

One JSON line a row, appended to a file, so that an interrupted run goes on where it was. ``--table`` writes the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from planner.api import DeviceChoice, compare_request, find_hardware
from planner.cli.compare import row
from planner.cluster.types import Cluster
from planner.errors import FddpsError
from planner.model.options import LoadOptions
from planner.plan.atomic import write_text_atomically
from planner.request import Request
from planner.schedule.planners import PLANNERS

NETWORKS: Final = (
    "timm_inception_v3",
    "timm_densenet121",
    "timm_pnasnet_mobile",
    "keras_NASNetMobile",
    "timm_resnet200",
    "timm_inception_v4",
    "recurrent_ptb_lstm_unrolled",
    "recurrent_gnmt",
    "transformers_bert_base_dynamic",
    "transformers_gpt2_dynamic",
    "transformers_llama_small",
    "timm_pnasnet5large",
    "timm_nasnetalarge",
)
BAKED: Final = ("recurrent_ptb_lstm_unrolled", "recurrent_gnmt")
BATCHES: Final = (1, 32)
SEQUENCE: Final = 128
CLUSTERS: Final = {
    "2 V100 NVLink": DeviceChoice(gpus="2", profile="v100-sxm2-16gb"),
    "4 V100 NVLink": DeviceChoice(gpus="4", profile="v100-sxm2-16gb"),
    "8 V100 NVLink": DeviceChoice(gpus="8", profile="v100-sxm2-16gb"),
    "4 V100 PCIe": DeviceChoice(gpus="4", profile="v100-pcie-16gb"),
    "4 T4 PCIe": DeviceChoice(gpus="4", profile="t4"),
    "2 V100 + 2 T4": DeviceChoice(cluster=Path("two-v100-two-t4")),
}
_FEWEST_PERCENT: Final = 5


def rows_of(models: Path, network: str, batch: int, cluster: str, planners: Sequence[str]) -> dict[str, Any]:
    """Every planner on one network.

    Raises:
        FddpsError: if it cannot be planned at all.
    """
    load = LoadOptions(batch=None if network in BAKED else batch)
    if network.endswith("_dynamic"):
        load = LoadOptions(input_shapes={"input_ids": (batch, SEQUENCE)})
    request = Request(models / f"{network}.onnx", Cluster((), ()), load=load)
    found, _ = compare_request(request, find_hardware(CLUSTERS[cluster]), planners)
    return {"network": network, "batch": batch, "cluster": cluster, "planners": [row(each) for each in found]}


def summary(line: dict[str, Any]) -> dict[str, Any]:
    """Best rival, ours, the bound, and the share of the gap between rival and bound that ours closes."""
    steps = {p["planner"]: p["predicted_step_s"] for p in line["planners"] if p["predicted_step_s"] is not None}
    ours = steps.pop("auto")
    rival = min(steps, key=lambda name: steps[name])
    gap = next(p["gap_to_lower_bound"] for p in line["planners"] if p["planner"] == "auto")
    bound = ours / (1 + gap)
    left = steps[rival] - bound
    return {
        "rival": rival,
        "rival_s": steps[rival],
        "ours_s": ours,
        "bound_s": bound,
        "gap": gap,
        "closed": (steps[rival] - ours) / left if left > 0 else 1.0,
        "better": steps[rival] / ours - 1,
        "planning_s": next(p["planning_s"] for p in line["planners"] if p["planner"] == "auto"),
        "steps": steps,
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The table, and what it says in numbers."""
    heading = ("network", "batch", "cluster", "best rival", "its step ms", "auto ms", "bound ms", "auto over bound")
    heading += ("gap closed", "better by", "planning s")
    text = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    good = strictly = 0
    for line in lines:
        s = summary(line)
        good += s["closed"] >= 0.5 or s["gap"] <= _FEWEST_PERCENT / 100
        strictly += s["better"] > 0.01
        text.append(
            f"| {line['network']} | {line['batch']} | {line['cluster']} | {s['rival']} | {s['rival_s'] * 1e3:.3f} "
            f"| {s['ours_s'] * 1e3:.3f} | {s['bound_s'] * 1e3:.3f} | {100 * s['gap']:.0f}% | {100 * s['closed']:.0f}% "
            f"| {100 * s['better']:.1f}% | {s['planning_s']:.1f} |"
        )
    text.append("")
    text.append(
        f"{good} of {len(lines)} rows close half of the gap or are within {_FEWEST_PERCENT}% of the bound; "
        f"on {strictly} ours is over 1% better than every rival."
    )
    return "\n".join(text) + "\n"


def main() -> int:
    """Command line; 1 if a row failed."""
    parser = argparse.ArgumentParser(description="Planners on real networks.")
    parser.add_argument("--models", type=Path, default=Path(".models"))
    parser.add_argument("--lines", type=Path, default=Path(".models") / "bench" / "networks.jsonl")
    parser.add_argument("--only", action="append", default=[], help="networks whose name contains this")
    parser.add_argument("--cluster", action="append", default=[], help="clusters whose name contains this")
    parser.add_argument("--planners", default=",".join(PLANNERS))
    parser.add_argument("--table", type=Path, help="write the table there")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines()] if options.lines.exists() else []
    done = {(line["network"], line["batch"], line["cluster"]) for line in lines}
    failed = False
    for network in NETWORKS:
        if not (options.models / f"{network}.onnx").exists() or not _chosen(network, options.only):
            continue
        for batch in BATCHES[:1] if network in BAKED else BATCHES:
            for cluster in CLUSTERS:
                if (network, batch, cluster) in done or not _chosen(cluster, options.cluster):
                    continue
                try:
                    line = rows_of(options.models, network, batch, cluster, options.planners.split(","))
                except FddpsError as problem:
                    failed = True
                    print(f"{network} {batch} {cluster}: {problem}", file=sys.stderr, flush=True)
                    continue
                lines.append(line)
                with options.lines.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(table([line]).splitlines()[2], file=sys.stderr, flush=True)
    if options.table is not None:
        write_text_atomically(options.table, table(lines))
    return 1 if failed else 0


def _chosen(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(text in name for text in wanted)


if __name__ == "__main__":
    sys.exit(main())
