"""What the launcher costs: time for each segment and each hand-over, and the memory of a process that runs a plan.

Segments of one tiny operator, so that the launcher is what takes time: a chain on one device against the same sessions
called one after the other (``run_with_iobinding`` on kept bindings, the least that ONNX Runtime takes), in turns, and a
chain whose devices alternate, where the receiver always waits. Memory: peak resident sizes of processes that do nothing
but run a model some times, as one session on one core, or as a plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.launcher.planned_session import PlannedSession
from planner.launcher.steps import HandoverTiming, SegmentTiming
from planner.plan.files import read_plan
from tests.launcher.helpers import chain, cpus

LENGTH: Final = 40
STEPS: Final = 400
# Tensors too small to take time: 64 bytes.
SIZE: Final = 16
_ONE_SESSION: Final = """
import json, sys, numpy as np, onnxruntime as ort
model, feeds, runs = sys.argv[1:]
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
feeds = dict(np.load(feeds))
for _ in range(int(runs)):
    session.run(None, feeds)
"""
_PLANNED: Final = """
import sys, numpy as np
from planner.launcher.planned_session import PlannedSession
plan, model, feeds, runs = sys.argv[1:]
feeds = dict(np.load(feeds))
with PlannedSession(plan, model_path=model, allow_outside=True) as session:
    for _ in range(int(runs)):
        session.run(None, feeds)
"""
_PEAK: Final = """
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


def segments() -> dict[str, float]:
    """Microseconds that a segment takes more than its session's run, in the caller's thread and in a worker."""
    x = np.arange(SIZE, dtype=np.float32)
    found: dict[str, float] = {}
    for where, timeout_s in (("caller", None), ("worker", 60.0)):
        with PlannedSession.from_partition(chain(LENGTH, 1, SIZE), cpus(1), timeout_s=timeout_s) as session:
            (worker,) = session._executor._workers
            bare = []
            for inner in worker._sessions:
                bound = inner._session.io_binding()
                for name in inner.inputs:
                    bound.bind_cpu_input(name, x)
                for name in inner.outputs:
                    bound.bind_output(name)
                bare.append((inner._session, bound))
            extra = []
            for _ in range(STEPS):
                begin = time.perf_counter_ns()
                session.step({"x": x})
                middle = time.perf_counter_ns()
                for own, bound in bare:
                    own.run_with_iobinding(bound)
                end = time.perf_counter_ns()
                extra.append((middle - begin - (end - middle)) / LENGTH / 1000)
        found[where] = statistics.median(extra)
    return found


def handovers() -> list[float]:
    """Microseconds of hand-overs to a device that waits: from when the sender lets go to when the receiver has it."""
    x = np.arange(SIZE, dtype=np.float32)
    with PlannedSession.from_partition(chain(LENGTH, 2, SIZE), cpus(2)) as session:
        return [taken for _ in range(STEPS) for taken in waited(session, x)]


def waited(session: PlannedSession, x: Any) -> list[float]:
    """Hand-overs of one step, in microseconds; those whose receiver was busy do not count before it was free."""
    result = session.step({"x": x} if isinstance(x, np.ndarray) else x)
    return [cost(handover, result.timings) for handover in result.handovers]


def cost(handover: HandoverTiming, timings: Sequence[SegmentTiming]) -> float:
    """Microseconds of one hand-over after it was sent and its receiver had nothing else to do."""
    busy = [t.end_ns for t in timings if t.device == handover.dst and t.end_ns <= handover.end_ns]
    return (handover.end_ns - max([handover.start_ns, *busy])) / 1000


def memory(plan: Path, model: Path, runs: int) -> dict[str, Any]:
    """Peak resident MiB of a process for one session, and of one for the plan; and the plan's weights by device.

    Raises:
        subprocess.CalledProcessError: if one fails.
    """
    read = read_plan(plan)
    generator = np.random.default_rng(0)
    feeds = plan.with_suffix(".npz")
    values = {}
    for name, spec in read.inputs.items():
        shape = tuple(size or 1 for size in spec.shape)
        floats = spec.dtype.startswith("float")
        values[name] = generator.random(shape, dtype=np.float32) if floats else generator.integers(0, 2, shape)
        values[name] = values[name].astype(spec.dtype)
    np.savez(feeds, **values)
    peaks = {
        "one_session": _peak(_ONE_SESSION, model, feeds, runs),
        "planned": _peak(_PLANNED, plan, model, feeds, runs),
    }
    with PlannedSession(plan, model_path=model, allow_outside=True) as session:
        weights = {name: round(size / 2**20, 1) for name, size in session.weight_bytes.items()}
    return {"plan": plan.stem, "planner": read.planner, **peaks, "weights": weights}


def _peak(script: str, *arguments: Any) -> float:
    command = [sys.executable, "-c", script + _PEAK, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return round(int(done.stdout) / 1024, 1)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="What the launcher costs.")
    parser.add_argument("--plan", nargs=2, action="append", type=Path, default=[], metavar=("PLAN", "MODEL"))
    parser.add_argument("--runs", type=int, default=5, help="steps of each process whose memory is measured")
    options = parser.parse_args()
    taken = sorted(handovers())
    print(
        json.dumps(
            {
                "us_per_segment": {where: round(value, 1) for where, value in segments().items()},
                "us_per_handover": {
                    "median": round(statistics.median(taken), 1),
                    "p99": round(taken[int(0.99 * len(taken))], 1),
                    "of": len(taken),
                },
            }
        )
    )
    for plan, model in options.plan:
        print(json.dumps(memory(plan, model, options.runs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
