"""The benchmark: real models planned for the CPU devices here, run, and compared with ONNX Runtime's own modes.

Writes ``tests/bench/RESULTS.md`` as it goes, from ``RESULTS.jsonl`` beside it, which keeps every row with the commit
that it measured. Every case is planned and run in processes of its own; within one, all contestants take turns (see
``contest``). Figures are of one machine: compare rows of one table, not tables of two.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from planner.cluster.cpu import cpu_model_name
from planner.plan.atomic import write_text_atomically
from tests.models import LIGHT_MODELS, light_path, reweight
from tools.large import save_decoder
from tools.package_inputs import PACKAGE_MODELS, package_batches, package_inputs

RESULTS: Final = Path("tests/bench/RESULTS.md")
BATCHES: Final = (1, 8)
# Made by `make models`; a file that is not there is left out, and named in the results.
MADE: Final = (
    "timm_resnet50",
    "timm_inception_v3",
    "timm_densenet121",
    "timm_efficientnet_b0",
    "timm_pnasnet_mobile",
    "keras_NASNetMobile",
    "recurrent_ptb_lstm_unrolled",
    "transformers_bert_base_dynamic",
    "transformers_gpt2_dynamic",
    "timm_pnasnet5large",
)
# Run last: an hour.
LARGE: Final = (
    "timm_vit_base_patch16_224",
    "timm_inception_v4",
    "timm_resnet200",
    "transformers_llama_small",
    "recurrent_ptb_lstm",
    "recurrent_gnmt",
    "timm_nasnetalarge",
)
# Exported with a batch size that cannot be changed: run at that one.
BAKED: Final = {"recurrent_ptb_lstm_unrolled": 8, "recurrent_ptb_lstm": 8, "recurrent_gnmt": 4}
SEQUENCE: Final = 128
# Below, a fraction of a millisecond of Python that is not in the caches is what the ratios show.
SHORT_S: Final = 0.004
DECODER: Final = "decoder of Llama 7B's size"


@dataclass(frozen=True, slots=True)
class Case:
    """One model at one batch size, with the options of ``fddps plan`` that it needs.

    Attributes:
        name: in the tables.
        path: the model.
        batch: its batch size.
        options: of ``fddps plan``.
        inputs: file of the inputs to run it on, where random ones fail.
    """

    name: str
    path: Path
    batch: int
    options: tuple[str, ...]
    inputs: Path | None = None

    @property
    def label(self) -> str:
        """The name, fit to be a file's."""
        return f"{self.name.replace('/', '-')}-{self.batch}"


def cases(models: Path, out: Path, only: Sequence[str]) -> Iterator[Case]:
    """Every case whose model is there or can be made from the onnx package."""
    for name in (*MADE, *(f"light_{light}" for light in LIGHT_MODELS), *LARGE):
        path = _model_path(name, models, out)
        if _wanted(name, only) and path.exists():
            for batch in _batches(name):
                yield Case(name, path, batch, _options(name, batch))
    for name in PACKAGE_MODELS:
        path = models / f"{name}.onnx"
        if _wanted(name, only) and path.exists():
            for batch in package_batches(name, BATCHES):
                inputs = out / f"{name.replace('/', '-')}-{batch}.npz"
                np.savez(inputs, **package_inputs(name, batch))
                yield Case(name, path, batch, ("--inputs", str(inputs)), inputs)


def _model_path(name: str, models: Path, out: Path) -> Path:
    """Where a model is; those of the onnx package get their weights here."""
    if not name.startswith("light_"):
        return models / f"{name}.onnx"
    path = out / f"{name}.onnx"
    if not path.exists():
        reweight(light_path(name.removeprefix("light_")), path, seed=0)
    return path


def _batches(name: str) -> tuple[int, ...]:
    return (BAKED[name],) if name in BAKED else BATCHES


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def _options(name: str, batch: int) -> tuple[str, ...]:
    if name in BAKED:
        return ()
    if not name.endswith("_dynamic"):
        return ("--batch", str(batch))
    return ("--input-shape", f"input_ids={batch}x{SEQUENCE}")


def run_case(case: Case, out: Path, devices: Sequence[str], seconds: float) -> dict[str, Any]:
    """Plan cold (no cached costs), run the contest, and return one row.

    Raises:
        subprocess.CalledProcessError: if a step fails.
    """
    plan = out / f"{case.label}.yaml"
    cache = out / f"{case.label}.profile.yaml"
    cache.unlink(missing_ok=True)
    command = ["-m", "tools.measured", "plan", str(case.path), *devices, *case.options, "-o", str(plan), "--json"]
    begin = time.perf_counter()
    planned = json.loads(_python([*command, "--cache", str(cache), "--quiet"]))
    cold_s = time.perf_counter() - begin
    given = ["--inputs", str(case.inputs)] if case.inputs else []
    result = json.loads(_python(["-m", "tools.contest", str(plan), str(case.path), "--seconds", str(seconds), *given]))
    return {**planned, **result, "cold_s": cold_s, "name": case.name, "batch": case.batch}


def _python(arguments: Sequence[str]) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


HEADING: Final = (
    "model",
    "batch",
    "plan by",
    "predicted one device",
    "measured 1 thread",
    "predicted plan",
    "measured plan",
    "speed-up predicted",
    "measured",
    "all threads",
    "parallel",
    "plan over ORT's best mode",
    "plan over best of round",
    "rounds",
    "largest relative difference",
    "cold plan s",
    "planning s",
    "peak MiB",
    "commit",
)
# What a row is made of; the answers of the commands have more.
RUN_FIELDS: Final = (
    "name",
    "batch",
    "planner",
    "one_device_step_s",
    "predicted_step_s",
    "one_thread",
    "planned",
    "all_threads",
    "parallel",
    "one_thread_over_planned",
    "best_mode_over_planned",
    "best_over_planned",
    "rounds",
    "max_rel_diff",
    "verified",
    "cold_s",
    "planning_s",
    "peak_bytes",
    "commit",
    "machine",
)


def row(r: dict[str, Any]) -> tuple[str, ...]:
    """One table row; times in milliseconds."""

    def ms(value: float) -> str:
        return f"{value * 1000:.1f}"

    one = r["one_device_step_s"]
    return (
        r["name"],
        str(r["batch"]),
        r["planner"],
        ms(one),
        ms(r["one_thread"]),
        ms(r["predicted_step_s"]),
        ms(r["planned"]),
        f"{one / r['predicted_step_s']:.2f}",
        f"{r['one_thread_over_planned']:.2f}",
        ms(r["all_threads"]),
        ms(r["parallel"]),
        f"{r['best_mode_over_planned']:.2f}",
        f"{r['best_over_planned']:.2f}",
        str(r["rounds"]),
        f"{r['max_rel_diff']:.1e}" + ("" if r["verified"] else " WRONG"),
        f"{r['cold_s']:.1f}",
        f"{r['planning_s']:.1f}",
        f"{r['peak_bytes'] / 2**20:.0f}",
        r["commit"],
    )


PLANNED_HEADING: Final = (
    "model",
    "batch",
    "plan by",
    "predicted plan",
    "predicted one device",
    "planning s",
    "peak MiB",
    "commit",
)
PLANNED_FIELDS: Final = (
    "name",
    "batch",
    "planner",
    "predicted_step_s",
    "one_device_step_s",
    "planning_s",
    "peak_bytes",
    "commit",
    "machine",
)


def plan_for_gpus(case: Case, out: Path) -> dict[str, Any]:
    """Plan a model for four V100s from data sheets, pinned to one core; peak memory is that of this command alone.

    Raises:
        subprocess.CalledProcessError: if it fails.
    """
    target = ["-o", str(out / f"{case.label}-4-v100.yaml"), "--json", "--quiet"]
    arguments = ["plan", str(case.path), "--gpus", "4", "--profile", "v100-sxm2-16gb", *case.options, *target]
    answer = json.loads(_python(["-m", "tools.measured", "--one-core", *arguments]))
    return {**answer, "name": case.name, "batch": case.batch}


def planned_row(r: dict[str, Any]) -> tuple[str, ...]:
    """One table row; times in milliseconds."""
    one = r["one_device_step_s"]
    return (
        r["name"],
        str(r["batch"]),
        r["planner"],
        f"{r['predicted_step_s'] * 1000:.2f}",
        "-" if one is None else f"{one * 1000:.2f}",
        f"{r['planning_s']:.1f}",
        f"{r['peak_bytes'] / 2**20:.0f}",
        r["commit"],
    )


EXPLANATION: Final = (
    "Times are milliseconds, medians of the rounds; contestants take turns in one process, each when it is idle.",
    "Speed-ups are over the unsplit model on one thread; those measured, and the ratio to the best of ONNX Runtime's",
    "own modes (1 thread, all threads, parallel: the one of least median), are medians of the ratios within a round.",
    "`plan over best of round` compares with the least of the three times in each round, whichever mode that is, which",
    "favours those three where times spread: a plan that is the very same session reads 0.9 to 1.0 there.",
    "`largest relative difference`: of the plan's outputs to those of one thread, to the largest magnitude of each",
    "output. `cold plan` is the whole command with nothing cached, `planning` what is left without profiling, `peak`",
    "its largest resident memory. Every step begins on idle cores with cold caches: one of a few milliseconds takes",
    "two to ten times what it takes in a loop, which is what profiling measures. `commit`: the code of a row.",
)


def report(rows: Sequence[dict[str, Any]], planned: Sequence[dict[str, Any]], failed: Sequence[str]) -> str:
    """The text of the results file: one part a machine.

    Args:
        rows: of plans that were run.
        planned: of plans for four V100s.
        failed: what was not measured on this machine, one line each.
    """
    lines = [
        "# Results",
        "",
        "Made by `make bench`; `python -m tools.bench --only NAME` measures some rows again.",
        *EXPLANATION,
    ]
    for machine in dict.fromkeys(row_["machine"] for row_ in (*rows, *planned)):
        lines += _part(machine, *([r for r in each if r["machine"] == machine] for each in (rows, planned)))
        lines.extend(f"Missing: {text}  " for text in failed if machine == _machine())
    return "\n".join(lines) + "\n"


def _part(machine: str, rows: Sequence[dict[str, Any]], planned: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of one machine."""
    lines = ["", f"## {machine}", ""]
    if rows:
        lines += ["| " + " | ".join(HEADING) + " |", "|" + "---|" * len(HEADING)]
        lines += ["| " + " | ".join(row(r)) + " |" for r in rows] + [""]
    for batch in sorted({r["batch"] for r in rows}):
        for what, short in (("", False), (f", steps under {SHORT_S * 1000:.0f} ms", True)):
            chosen = [r for r in rows if r["batch"] == batch and (r["one_thread"] < SHORT_S) == short]
            lines.extend(_in_short(f"Batch {batch}, {len(chosen)} models{what}", chosen) if chosen else ())
    if planned:
        lines += [
            "Planning for four V100s from data sheets, pinned to one core (predictions only: nothing was run):",
            "",
            "| " + " | ".join(PLANNED_HEADING) + " |",
            "|" + "---|" * len(PLANNED_HEADING),
            *("| " + " | ".join(planned_row(r)) + " |" for r in planned),
            "",
        ]
    return lines


def _in_short(what: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Geometric means and errors of some rows."""
    errors = sorted(
        abs(r["one_device_step_s"] / r["predicted_step_s"] / r["one_thread_over_planned"] - 1) for r in rows
    )
    mode = [r["best_mode_over_planned"] for r in rows]
    best = [r["best_over_planned"] for r in rows]
    text = (
        f"{what}: geometric mean speed-up over one thread {_mean(r['one_thread_over_planned'] for r in rows):.2f}, "
        f"over ONNX Runtime's best mode {_mean(mode):.2f} (least {min(mode):.2f}), over the best of each round "
        f"{_mean(best):.2f} (least {min(best):.2f}); error of the predicted speed-up: median "
        f"{errors[len(errors) // 2] * 100:.1f}%, largest {errors[-1] * 100:.1f}%."
    )
    return [text, ""]


def _mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _machine() -> str:
    """What rows have to have in common to be compared."""
    return f"{cpu_model_name()}, {len(os.sched_getaffinity(0))} cores, ONNX Runtime {onnxruntime.__version__}"


def _commit() -> str:
    """The commit of this code; with a plus if the planner was changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True, check=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "../planner"], check=False).returncode
    return head.stdout.strip() + ("+" if changed else "")


def main() -> int:
    """Command line; 1 if a case failed."""
    parser = argparse.ArgumentParser(description="Plan and run real models on CPU devices.")
    parser.add_argument("--models", type=Path, default=Path(".models"))
    parser.add_argument("--out", type=Path, default=Path(".models") / "bench", help="folder for plans and profiles")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="models whose name contains TEXT")
    parser.add_argument("--batch", type=int, action="append", default=[], help="batch sizes; all by default")
    parser.add_argument("--cpus", default="2", help="devices, as in fddps plan")
    parser.add_argument("--seconds", type=float, default=12.0, help="of the contest of one case")
    parser.add_argument("--planning-only", action="store_true", help="the table of plans for four V100s only")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    every = list(cases(options.models, options.out, ()))
    store = _Store(
        options.results.with_suffix(".jsonl"), every, fresh=not (options.only or options.batch or options.planning_only)
    )
    expected = (*MADE, *LARGE, *PACKAGE_MODELS)
    absent = [f"{n}: not made" for n in expected if not (options.models / f"{n}.onnx").exists()]
    failed = False

    def attempt(kind: str, name: str, batch: int, make: Callable[[], dict[str, Any]]) -> None:
        nonlocal failed
        try:
            store.keep(kind, name, batch, make())
        except subprocess.CalledProcessError as error:
            failed = True
            store.fail(kind, name, batch, f"exit code {error.returncode}")
        text = report(store.rows("run"), store.rows("planned"), [*absent, *store.failures()])
        write_text_atomically(options.results, text)

    wanted = [case for case in every if _wanted(case.name, options.only)]
    wanted = [case for case in wanted if case.batch in options.batch or not options.batch]
    for case in wanted if not options.planning_only else ():
        make = partial(run_case, case, options.out, ["--cpus", options.cpus], options.seconds)
        attempt("run", case.name, case.batch, make)
    for case in wanted:
        if case.batch == _batches(case.name)[0]:
            attempt("planned", case.name, case.batch, partial(plan_for_gpus, case, options.out))
    if _wanted(DECODER, options.only):
        decoder = save_decoder(options.out / "decoder")
        attempt("planned", DECODER, 1, partial(plan_for_gpus, Case(DECODER, decoder, 1, ()), options.out))
    return 1 if failed else 0


class _Store:
    """All rows measured so far, so that some can be measured again: JSON lines beside the report, in order."""

    def __init__(self, path: Path, every: Sequence[Case], *, fresh: bool) -> None:
        self._path = path
        self._order = [f"{case.name} {case.batch}" for case in every] + [f"{DECODER} 1"]
        # By what is said, on which machine, and the case.
        self._kept: dict[tuple[str, str, str], dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row_ = json.loads(line)
            if not (fresh and row_["machine"] == _machine()):
                self._kept[row_.pop("kind"), row_["machine"], f"{row_['name']} {row_['batch']}"] = row_
        self._order = list(dict.fromkeys([*self._order, *(case for _, _, case in self._kept)]))

    def keep(self, kind: str, name: str, batch: int, row_: dict[str, Any]) -> None:
        """Add or replace a row, and show it."""
        row_ = {**row_, "commit": _commit(), "machine": _machine()}
        fields = RUN_FIELDS if kind == "run" else PLANNED_FIELDS
        self._put(kind, {field: row_[field] for field in fields})
        print(" | ".join(row(row_) if kind == "run" else planned_row(row_)), file=sys.stderr, flush=True)

    def fail(self, kind: str, name: str, batch: int, why: str) -> None:
        """Note that a row could not be measured; an older one of the same name is not true any more."""
        failed = f"{name}, batch {batch}, {kind}: {why}"
        self._put(kind, {"name": name, "batch": batch, "machine": _machine(), "failed": failed})

    def _put(self, kind: str, row_: dict[str, Any]) -> None:
        self._kept[kind, _machine(), f"{row_['name']} {row_['batch']}"] = row_
        rows = [{"kind": kind, **row_} for kind in ("run", "planned") for row_ in self._all(kind)]
        write_text_atomically(self._path, "".join(f"{json.dumps(row_)}\n" for row_ in rows))

    def failures(self) -> list[str]:
        """What failed and what was not run on this machine, one line each."""
        here = {(kind, case): row_ for (kind, machine, case), row_ in self._kept.items() if machine == _machine()}
        failed = [row_["failed"] for row_ in here.values() if "failed" in row_]
        runs = [case for case in self._order if not case.startswith(DECODER)]
        absent = [", batch ".join(case.rsplit(" ", 1)) for case in runs if ("run", case) not in here]
        return failed + [f"{case}: not measured" for case in absent]

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Rows by machine, in the order of the cases."""
        return [row_ for row_ in self._all(kind) if "failed" not in row_]

    def _all(self, kind: str) -> list[dict[str, Any]]:
        machines = dict.fromkeys(machine for _, machine, _ in self._kept)
        keys = [(kind, machine, case) for machine in machines for case in self._order]
        return [self._kept[key] for key in keys if key in self._kept]


if __name__ == "__main__":
    sys.exit(main())
