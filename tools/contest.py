"""A plan against ONNX Runtime's own modes on the unsplit model, in turns within one process.

ONNX Runtime's threads spin after a run, 60 to 80 ms on two cores here, and disturb what is measured next: before every
step there is a pause until this process is idle. Single medians spread on a busy machine, so contestants take turns, in
a new order every round, and ratios within a round are what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort

from planner.graph.op_graph import Array, TensorInfo
from planner.launcher.planned_session import PlannedSession
from planner.launcher.unsplit import rebuilt
from planner.launcher.verify import compare_outputs
from planner.partition.segments import load_plan_model
from planner.plan.files import read_plan
from planner.runtime.feeds import random_feeds
from planner.runtime.idle import pause_until_idle
from planner.runtime.values import wrap

MODES: Final = ("one_thread", "all_threads", "parallel")


def ort_session(model: bytes, weights: Mapping[str, Any], mode: str, cores: int) -> ort.InferenceSession:
    """The unsplit model in one of ONNX Runtime's own modes."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = cores if mode == "all_threads" else 1
    if mode == "parallel":
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = cores
    options.add_external_initializers(list(weights), list(weights.values()))
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def contest(
    plan_path: Path, model_path: Path, rounds: int, seconds: float, inputs: Path | None = None
) -> dict[str, Any]:
    """Median step of each contestant, and the medians of the ratios within a round.

    Args:
        plan_path: the plan.
        model_path: its model.
        rounds: most rounds to run.
        seconds: stop after this long, but not before five rounds.
        inputs: file (.npz) of what to run on; random values otherwise.
    """
    plan = read_plan(plan_path)
    loaded = load_plan_model(plan, model_path)
    feeds = random_feeds([TensorInfo(n, s.dtype, s.shape) for n, s in plan.inputs.items()], 0, int_high=100)
    if inputs is not None:
        with np.load(inputs) as given:
            feeds = dict(given)
    source, handles = rebuilt(loaded, ())
    weights = {name: wrap(weight.load()) for name, weight in handles.items()}
    cores = len(os.sched_getaffinity(0))
    sessions = {mode: ort_session(source, weights, mode, cores) for mode in MODES}
    with PlannedSession(plan, model_path=model_path, allow_outside=True) as planned:
        runners: dict[str, Callable[[], Any]] = {
            "planned": lambda: planned.run(None, feeds),
            **{mode: _runner(session, feeds) for mode, session in sessions.items()},
        }
        comparison = compare_outputs(
            [info.name for info in planned.get_outputs()], runners["planned"](), runners["one_thread"]()
        )
        times = take_turns(runners, rounds, seconds)
    result: dict[str, Any] = {name: statistics.median(taken) for name, taken in times.items()}
    for mode in MODES:
        ratios = [other / own for other, own in zip(times[mode], times["planned"], strict=True)]
        result[f"{mode}_over_planned"] = statistics.median(ratios)
    best = [min(values) / own for *values, own in zip(*(times[m] for m in MODES), times["planned"], strict=True)]
    result["best_over_planned"] = statistics.median(best)
    result["best_mode"] = min(MODES, key=lambda mode: float(result[mode]))
    result["best_mode_over_planned"] = result[f"{result['best_mode']}_over_planned"]
    result["rounds"] = len(times["planned"])
    result["verified"] = comparison.verified
    result["max_rel_diff"] = comparison.max_rel_diff
    return result


def _runner(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> Callable[[], Any]:
    wanted = {value.name: feeds[value.name] for value in session.get_inputs()}
    return lambda: session.run(None, wanted)


def take_turns(runners: Mapping[str, Callable[[], Any]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each contestant's steps; seeded shuffling, so that none always follows the same one."""
    names = list(runners)
    for name in names:
        runners[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    shuffle = random.Random(0).shuffle
    begin = time.perf_counter()
    for turn in range(rounds):
        if turn >= 5 and time.perf_counter() - begin > seconds:
            break
        shuffle(names)
        for name in names:
            pause_until_idle()
            start = time.perf_counter()
            runners[name]()
            times[name].append(time.perf_counter() - start)
    return times


def main() -> None:
    """Command line: print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--inputs", type=Path, help="file (.npz) of inputs, in place of random ones")
    options = parser.parse_args()
    print(json.dumps(contest(options.plan, options.model, options.rounds, options.seconds, options.inputs)))


if __name__ == "__main__":
    main()
