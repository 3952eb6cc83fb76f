"""Profiled networks of msr-fiddle/dnn-partitioning as bare task graphs: a foreign check.

Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020.

Operator costs on an accelerator and on a CPU, memory and colocation are theirs; the graphs are not in this repository:
give their folder with ``--graphs``. Every schedule goes through the independent checker, pinned to one core. Delays are
computed again from the sizes, at the 2**31 bytes a second that their latency graphs imply: other graphs of theirs have
delays in another unit. Two things differ from their model: a transfer counts once whatever its ends are (theirs goes
through the CPU's memory, so that one between accelerators counts twice), and it hinders no other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from planner.errors import InfeasibleError
from planner.schedule.bare import parse_bare
from planner.schedule.bounds import lower_bound_ns
from tests.schedule.bare_checker import bare_problems
from tools.optima import schedulers

_BYTES_A_MS = 2**31 / 1000
_PLANNERS = ("one-device", "heft", "etf", "m-etf", "m-sct", "dcp", "mp-dps", "fastt", "fd-dps", "auto", "auto:thorough")


def bare_line(name: str, graph: dict[str, Any], accelerators: int, cpus: int) -> dict[str, Any]:
    """A graph of theirs in our format; milliseconds and bytes.

    Args:
        name: of the instance.
        graph: theirs.
        accelerators: how many, each with the memory that the graph names.
        cpus: how many devices without a limit.

    Raises:
        ValueError: if an operator runs on a CPU only, and there is none.
    """
    nodes = graph["nodes"]
    if not cpus and not all(node["supportedOnFpga"] for node in nodes):
        raise ValueError(f"{name}: some operators run on a CPU only")
    number = {node["id"]: position for position, node in enumerate(nodes)}
    limit = graph["maxSizePerFPGA"]
    # More than everything needs: no limit.
    endless = sum(node["size"] for node in nodes) + 1
    kinds = [0] * accelerators + [1] * cpus
    # What the accelerator cannot run takes longer there than everything on a CPU.
    never = 1 + sum(node["cpuLatency"] for node in nodes)
    return {
        "name": name,
        "processors": len(kinds),
        "kinds": kinds,
        "weights": [
            [node["fpgaLatency"] if node["supportedOnFpga"] else never for node in nodes],
            [node["cpuLatency"] for node in nodes],
        ],
        "edges": [
            [number[edge["sourceId"]], number[edge["destId"]], edge["size"] / _BYTES_A_MS] for edge in graph["edges"]
        ],
        "memory": [node["size"] for node in nodes],
        "memory_limit": [limit if kind == 0 else endless for kind in kinds],
        # Operators without a class go where they like.
        "together": [node.get("colorClass") for node in nodes],
    }


def main() -> None:
    """Command line: print one table row a graph and planner."""
    parser = argparse.ArgumentParser(description="Schedules of profiled networks.")
    parser.add_argument("--graphs", type=Path, required=True, help="folder of the JSON files")
    parser.add_argument("--pattern", default="*.json", help="of the files to take")
    parser.add_argument("--planner", action="append", default=[], help="a planner; auto:thorough for an effort")
    parser.add_argument("--accelerators", type=int, help="instead of the number that each graph names")
    parser.add_argument("--cpus", type=int, default=1, help="CPU devices beside them")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    planners = schedulers(options.planner or _PLANNERS)
    files = [(path.stem, json.loads(path.read_text("utf-8"))) for path in sorted(options.graphs.glob(options.pattern))]
    if not files:
        parser.error(f"no {options.pattern} in {options.graphs}")
    lines = [bare_line(name, given, options.accelerators or given["maxFPGAs"], options.cpus) for name, given in files]
    # Kernels are compiled on first use: each planner sees the smallest graph once, untimed.
    warm = parse_bare(min(lines, key=lambda line: len(line["memory"])))
    for scheduler in planners.values():
        with contextlib.suppress(InfeasibleError):
            scheduler(warm.graph, warm.comm, memory_limit=warm.memory_limit)
    print("| graph | tasks | planner | ms | over bound | s |\n|---|---|---|---|---|---|")
    gains: dict[str, list[float]] = {}
    for line in lines:
        found: dict[str, float] = {}
        for name, scheduler in planners.items():
            problem = parse_bare(line)
            begin = time.perf_counter()
            try:
                schedule = scheduler(problem.graph, problem.comm, memory_limit=problem.memory_limit)
            except InfeasibleError:
                print(f"| {line['name']} | {len(problem.order)} | {name} | - | does not fit | |", flush=True)
                continue
            taken = time.perf_counter() - begin
            answer = problem.answer(schedule)
            problems = bare_problems(line, answer)
            if problems:
                raise AssertionError(f"{line['name']} by {name}: {problems[:3]}")
            found[name] = answer["makespan"]
            over = answer["makespan"] / (lower_bound_ns(problem.graph) / problem.scale)
            figures = f"{answer['makespan']:.2f} | {over:.3f} | {taken:.2f}"
            print(f"| {line['name']} | {len(problem.order)} | {name} | {figures} |", flush=True)
        _note(gains, found)
    for name, ratios in gains.items():
        print(f"{name} over auto: geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")


def _note(gains: dict[str, list[float]], found: dict[str, float]) -> None:
    """Add each planner's time over that of ``auto``."""
    for name, taken in found.items():
        if "auto" in found and name != "auto":
            gains.setdefault(name, []).append(taken / found["auto"])


if __name__ == "__main__":
    main()
