"""Planning time and memory on large layered random graphs, and the exponent by which time grows.

64 devices in 8 nodes, three edges a task, delays between nodes ten times as long, memory limits with a fifth to spare.
Each size runs ``fddps schedule`` in a process of its own, pinned to one core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

SIZES: Final = (10_000, 100_000, 1_000_000)
DEVICES: Final = 64
PER_NODE: Final = 8


def layered(tasks: int, seed: int = 0) -> dict[str, Any]:
    """A layered random graph: about as many tasks a layer as there are layers."""
    rng = random.Random(seed)
    width = max(int(math.sqrt(tasks)), 1)
    edges = [
        [max(0, (task // width - 1)) * width + rng.randrange(width), task, rng.randrange(1, 200)]
        for task in range(width, tasks)
        for _ in range(3)
    ]
    memory = [rng.randrange(1, 100) for _ in range(tasks)]
    return {
        "name": f"layered_{tasks}",
        "processors": DEVICES,
        "weights": [rng.randrange(1, 200) for _ in range(tasks)],
        "edges": edges,
        "memory": memory,
        "memory_limit": sum(memory) * 6 // (5 * DEVICES),
        "node_of": [device // PER_NODE for device in range(DEVICES)],
        "remote_factor": 10,
    }


def run(path: Path, planner: str) -> tuple[float, float, dict[str, Any]]:
    """(Seconds, peak MiB, answer) of one command."""
    command = [sys.executable, "-m", "planner.cli.main", "schedule", str(path), "--planner", planner, "-q"]
    before = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - before
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return seconds, peak, json.loads(done.stdout)


def main() -> None:
    """Command line: one table row a size."""
    from tests.schedule.bare_checker import bare_problems

    parser = argparse.ArgumentParser(description="Scheduling large graphs.")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--size", type=int, action="append", default=[])
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    taken: list[tuple[int, float]] = []
    print("| tasks | planner | s | peak MiB | makespan over work / devices |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="fddps-") as folder:
        path = Path(folder) / "tasks.jsonl"
        for size in options.size or SIZES:
            line = layered(size)
            path.write_text(json.dumps(line) + "\n")
            seconds, peak, answer = run(path, options.planner)
            problems = bare_problems(line, answer)
            if problems:
                raise SystemExit(f"{size}: {problems[:3]}")
            taken.append((size, seconds))
            ratio = answer["makespan"] * DEVICES / sum(line["weights"])
            print(f"| {size:,} | {options.planner} | {seconds:.1f} | {peak:.0f} | {ratio:.3f} |", flush=True)
    for (small, first), (large, second) in pairwise(taken):
        print(f"growth from {small:,} to {large:,}: n^{math.log(second / first) / math.log(large / small):.2f}")


if __name__ == "__main__":
    main()
