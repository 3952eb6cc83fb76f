"""Schedulers against task graphs with a known optimum; every schedule goes through the independent checker.

The instances are not ours and not in this repository: give the folder with ``--benchmarks``. Writes a table of share
of optimal schedules, mean ratio to the optimum and seconds an instance, pinned to one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.graph.task_graph import Schedule
from planner.schedule.auto import auto
from planner.schedule.bare import BareProblem, parse_bare
from planner.schedule.planners import PLANNERS
from tests.schedule.bare_checker import bare_problems

KNOWN: Final = ((200, 4), (1_000, 8), (10_000, 16))
CCRS: Final = ("0.1", "1", "5")
SEEDS: Final = range(1, 6)
Instance = tuple[str, dict[str, Any], int]


def instances(folder: Path, kind: str) -> Iterator[Instance]:
    """(Name, line, optimum) of the public collections: ``with`` or ``without`` communication."""
    path = folder / f"optimal_schedules_{kind}_communication.jsonl"
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        optimum = line.pop("optimal_length")
        lengths = optimum if isinstance(optimum, dict) else {line["processors"]: optimum}
        for processors, length in lengths.items():
            yield f"{line['name']}@{processors}", {**line, "processors": int(processors)}, int(length)


def constructed(folder: Path, tasks: int, processors: int, ccr: str) -> Iterator[Instance]:
    """Instances whose optimum is known by construction."""
    for seed in SEEDS:
        script = [sys.executable, str(folder / "make_known_optimum.py"), str(tasks), str(processors), ccr, str(seed)]
        line = json.loads(subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True).stdout)
        yield line["name"], line, int(line.pop("optimal_length"))


def schedulers(names: Sequence[str]) -> dict[str, Callable[..., Schedule]]:
    """Planners by name; ``auto:thorough`` is one with its effort."""
    found: dict[str, Callable[..., Schedule]] = {}
    for name in names:
        base, _, effort = name.partition(":")
        planner = PLANNERS[base].on_tasks
        if planner is None:
            raise SystemExit(f"{base} needs a model")
        found[name] = partial(auto, effort=effort) if base == "auto" and effort else planner
    return found


def measure(chosen: Sequence[Instance], scheduler: Callable[..., Schedule]) -> tuple[list[float], list[float]]:
    """Ratio to the optimum, and seconds, of each instance.

    Raises:
        AssertionError: if a schedule is wrong, or better than the optimum.
    """
    ratios, seconds = [], []
    for name, line, optimum in chosen:
        problem: BareProblem = parse_bare(line)
        begin = time.perf_counter()
        schedule = scheduler(problem.graph, problem.comm, memory_limit=problem.memory_limit)
        seconds.append(time.perf_counter() - begin)
        answer = problem.answer(schedule)
        problems = bare_problems(line, answer)
        if problems or answer["makespan"] < optimum:
            raise AssertionError(f"{name}: {problems or 'below the optimum'}")
        ratios.append(answer["makespan"] / optimum if optimum else 1.0)
    return ratios, seconds


def main() -> None:
    """Command line: print one table row a scheduler and collection."""
    parser = argparse.ArgumentParser(description="Schedules against known optima.")
    parser.add_argument("--benchmarks", type=Path, required=True, help="folder with the instances")
    parser.add_argument("--planner", action="append", default=[], help="a planner; auto:thorough for an effort")
    parser.add_argument("--collection", action="append", default=[], help="with, without, or TASKSxPROCESSORS")
    parser.add_argument("--every", type=int, default=1, help="take every N-th instance only")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    collections: dict[str, Callable[[], Iterator[Instance]]] = {
        kind: partial(instances, options.benchmarks, kind) for kind in ("with", "without")
    }
    for tasks, processors in KNOWN:
        for ccr in CCRS:
            collections[f"{tasks}x{processors} CCR {ccr}"] = partial(
                constructed, options.benchmarks, tasks, processors, ccr
            )
    warm = parse_bare({"processors": 2, "weights": [1, 2, 3], "edges": [[0, 1, 1]]})
    print("| instances | planner | optimal | mean ratio | worst | s mean | s most |\n|---|---|---|---|---|---|---|")
    for name, make in collections.items():
        if options.collection and not any(name.startswith(wanted) for wanted in options.collection):
            continue
        chosen = list(make())[:: options.every]
        for planner, scheduler in schedulers(options.planner or ["heft", "dcp", "fd-dps", "auto"]).items():
            scheduler(warm.graph, warm.comm, memory_limit=None)
            ratios, seconds = measure(chosen, scheduler)
            optimal = sum(ratio == 1 for ratio in ratios)
            print(
                f"| {name} ({len(ratios)}) | {planner} | {100 * optimal / len(ratios):.1f}% "
                f"| {statistics.fmean(ratios):.5f} | {max(ratios):.3f} "
                f"| {statistics.fmean(seconds):.3f} | {max(seconds):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
