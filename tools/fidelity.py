"""Does a run take what the plan says: the plans of several planners, predicted first, then run in turns.

For each model the plan that ``fddps plan`` would write, and five of other planners, losing ones too. All are predicted
by the default path before any of them runs here; then all of them run in one process, in turns, each when that is idle
(see ``contest``). Figures are ratios: the one-device plan's step over the plan's, predicted and measured within a
round; and whether the plans come in the predicted order (Kendall's tau). One JSON line a case is appended to a file;
``--report`` writes the table and the scatter plot of all of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from planner.graph.op_graph import TensorInfo
from planner.launcher.planned_session import PlannedSession
from planner.plan.atomic import write_text_atomically
from planner.plan.files import read_plan
from planner.runtime.feeds import random_feeds
from tools.bench import Case, cases
from tools.contest import take_turns

# The models of the issue "What the plan promises is what the run delivers".
MODELS: Final = (
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_densenet121",
    "light_squeezenet",
    "light_vgg19",
    "timm_inception_v3",
    "timm_resnet50",
    "timm_densenet121",
    "timm_efficientnet_b0",
    "timm_pnasnet5large",
    "keras_NASNetMobile",
    "transformers_bert_base_dynamic",
    "transformers_gpt2_dynamic",
    "recurrent_ptb_lstm_unrolled",
    "rapidocr/PP-OCRv6_det_small",
)
# In this order, as many as are needed; the one-device plan is always there, for the ratios.
OTHERS: Final = ("one-device", "all-cores", "data-parallel", "fd-dps", "heft", "pipeline", "m-topo", "fastt-dp", "etf")
PLANS: Final = 6
ONE: Final = "one-device"


def predict(case: Case, out: Path, measured: Path | None = None) -> list[dict[str, Any]]:
    """Plan a case by the default path, then by other planners with the same measured costs.

    Args:
        case: the model.
        out: folder for plans and profiles.
        measured: folder of the benchmark: costs that it measured for its own plan are not measured again.

    Returns:
        One object a plan: ``planner``, ``path``, ``predicted_s``; the default one first. Plans that are the same but
        for the planner's name are there once.

    Raises:
        subprocess.CalledProcessError: if the default path fails.
    """
    cache = out / f"{case.label}.profile.yaml"
    cache.unlink(missing_ok=True)
    if measured is not None and (measured / cache.name).exists():
        shutil.copyfile(measured / cache.name, cache)
    found: list[dict[str, Any]] = []
    kinds: set[str] = set()
    for name in ("auto", *OTHERS):
        if len(found) == PLANS:
            break
        path = out / f"{case.label}-{name}.yaml"
        command = [sys.executable, "-m", "planner.cli.main", "plan", str(case.path), "--cpus", "2", *case.options]
        command += ["--planner", name, "-o", str(path), "--force", "--json", "--quiet", "--cache", str(cache)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=name == "auto")
        if done.returncode:
            continue
        shape = _shape(path)
        if shape not in kinds:
            kinds.add(shape)
            answer = json.loads(done.stdout)
            found.append({"planner": answer["planner"], "path": str(path), "predicted_s": answer["predicted_step_s"]})
    return found


def _shape(path: Path) -> str:
    """What a plan does, whoever made it."""
    return repr([(queue.device, [segment.tasks for segment in queue.segments]) for queue in read_plan(path).devices])


def measure(case: Case, plans: Sequence[dict[str, Any]], rounds: int, seconds: float) -> dict[str, Any]:
    """Run plans in turns.

    Args:
        case: the model.
        plans: from :func:`predict`.
        rounds: most rounds.
        seconds: no round is begun later, but five there are.

    Returns:
        ``plans`` with ``measured_s`` (median), ``speedup`` (one device over the plan, median of rounds) and
        ``predicted_speedup``; ``rounds``, ``name``, ``batch``.
    """
    first = read_plan(Path(plans[0]["path"]))
    feeds = random_feeds([TensorInfo(n, s.dtype, s.shape) for n, s in first.inputs.items()], 0, int_high=100)
    with ExitStack() as stack:
        runners: dict[str, Callable[[], Any]] = {}
        for plan in plans:
            session = PlannedSession(Path(plan["path"]), model_path=case.path, allow_outside=True)
            runners[plan["path"]] = _runner(stack.enter_context(session), feeds)
        times = take_turns(runners, rounds, seconds)
    one = next(plan for plan in plans if plan["planner"] == ONE)
    rows = [
        {
            **plan,
            "measured_s": statistics.median(times[plan["path"]]),
            "speedup": statistics.median(a / b for a, b in zip(times[one["path"]], times[plan["path"]], strict=True)),
            "predicted_speedup": one["predicted_s"] / plan["predicted_s"],
        }
        for plan in plans
    ]
    return {"name": case.name, "batch": case.batch, "rounds": len(times[one["path"]]), "plans": rows}


def _runner(session: PlannedSession, feeds: dict[str, Any]) -> Callable[[], Any]:
    return lambda: session.run(None, feeds)


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau of predicted and measured values: agreeing pairs less the others, over all.

    Args:
        pairs: predicted and measured value of each plan.
    """
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in combinations(pairs, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs) if signs else 1.0


def errors(case: dict[str, Any]) -> list[float]:
    """Relative error of the predicted speed-up of each plan but the one-device one; the default plan's first."""
    return [abs(plan["predicted_speedup"] / plan["speedup"] - 1) for plan in case["plans"] if plan["planner"] != ONE]


def table(lines: Sequence[dict[str, Any]]) -> str:
    """One row a case, then the figures over all."""
    heading = (
        "model",
        "batch",
        "plan",
        "predicted",
        "measured",
        "error",
        "tau",
        "rounds",
        "others: predicted/measured",
    )
    text = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for case in lines:
        plan, others = case["plans"][0], case["plans"][1:]
        beside = ", ".join(f"{p['planner']} {p['predicted_speedup']:.2f}/{p['speedup']:.2f}" for p in others)
        error = abs(plan["predicted_speedup"] / plan["speedup"] - 1)
        text.append(
            f"| {case['name']} | {case['batch']} | {plan['planner']} | {plan['predicted_speedup']:.2f} "
            f"| {plan['speedup']:.2f} | {100 * error:.0f}% | {tau(case):.2f} | {case['rounds']} | {beside} |"
        )
    chosen = [abs(c["plans"][0]["predicted_speedup"] / c["plans"][0]["speedup"] - 1) for c in lines]
    every = [error for case in lines for error in errors(case)]
    text += ["", f"Default plans: {_spread(chosen)}. All plans but the one-device ones: {_spread(every)}."]
    taus = [tau(case) for case in lines]
    text.append(f"Kendall's tau: median {statistics.median(taus):.2f}, least {min(taus):.2f}.")
    return "\n".join(text) + "\n"


def tau(case: dict[str, Any]) -> float:
    """Order of a case's plans, predicted and measured."""
    return kendall([(1 / plan["predicted_speedup"], 1 / plan["speedup"]) for plan in case["plans"]])


def _spread(found: Sequence[float]) -> str:
    near = sum(error <= 0.12 for error in found)
    return f"error of the speed-up: median {100 * statistics.median(found):.1f}%, {near} of {len(found)} at most 12%"


def scatter(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Predicted against measured speed-up of every plan, as an SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6))
    axes = figure.subplots()
    for label, marker in (("default plans", "o"), ("other planners'", "x")):
        plans = [plan for case in lines for plan in (case["plans"][:1] if marker == "o" else case["plans"][1:])]
        plans = [plan for plan in plans if plan["planner"] != ONE]
        axes.plot([p["predicted_speedup"] for p in plans], [p["speedup"] for p in plans], marker, label=label)
    most = max(max(p["predicted_speedup"], p["speedup"]) for case in lines for p in case["plans"]) * 1.05
    axes.plot([0, most], [0, most], linewidth=0.5, color="black")
    axes.set(xlabel="predicted speed-up over one device", ylabel="measured", xlim=(0, most), ylim=(0, most))
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Command line; 1 if a case failed."""
    parser = argparse.ArgumentParser(description="Predicted against measured steps.")
    parser.add_argument("--models", type=Path, default=Path(".models"))
    parser.add_argument("--out", type=Path, default=Path(".models") / "fidelity", help="folder for plans and profiles")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="models whose name contains TEXT")
    parser.add_argument("--batch", type=int, action="append", default=[], help="batch sizes; all by default")
    parser.add_argument("--measured", type=Path, help="folder with profiles that the benchmark measured")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--report", type=Path, help="write the table there (.md), and the plot beside it (.svg)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "lines.jsonl"
    lines = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    done = {(line["name"], line["batch"]) for line in lines}
    failed = False
    for case in cases(options.models, options.models / "bench", options.only) if not options.report else ():
        if case.name not in MODELS or (case.name, case.batch) in done:
            continue
        if options.batch and case.batch not in options.batch:
            continue
        try:
            plans = predict(case, options.out, options.measured)
            found = measure(case, plans, options.rounds, options.seconds)
        except subprocess.CalledProcessError as error:
            print(f"{case.name}, batch {case.batch}: exit code {error.returncode}", file=sys.stderr)
            failed = True
            continue
        with store.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(table([found]).splitlines()[2], file=sys.stderr, flush=True)
    if options.report:
        write_text_atomically(options.report, table(lines))
        scatter(lines, options.report.with_suffix(".svg"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
