"""Our HEFT beside that of the package anrg-saga: seconds and makespan on the same graphs.

Layered random graphs, three edges a task, as in ``tools.scale``. The two take turns in one process, pinned to one core.
Each starts from its own graph objects, which are made beforehand. Both schedules go through the independent checker.
Seconds are of processor time: what else runs on the machine hardly counts. anrg-saga is in the extra ``saga``.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, TypeVar

from planner.schedule.bare import BareProblem, parse_bare
from planner.schedule.heft import heft
from tests.schedule.bare_checker import bare_problems
from tools.scale import layered

TASKS: Final = 1_000
PROCESSORS: Final = (8, 16)
SHAPES: Final = ("equal", "speeds", "nodes")
_SPEEDS: Final = (1, 2, 3, 4)
# Every speed divides it: all times are whole numbers, so that neither side rounds.
_COST: Final = 12
# The mean time of a unit of cost on the four speeds is 6.25: delays are as long as tasks.
_DELAY: Final = 6
_REMOTE: Final = 4

T = TypeVar("T")


def instance(shape: str, tasks: int, processors: int, seed: int) -> dict[str, Any]:
    """A bare task graph that both sides can express: speeds of processors and of links, no memory.

    Args:
        shape: ``equal`` processors, four ``speeds`` of them, or the same in two ``nodes`` with slower links between.
        tasks: their number.
        processors: a multiple of four.
        seed: of costs and edges.
    """
    line = layered(tasks, seed)
    found = {
        "name": f"{shape} {processors} #{seed}",
        "processors": processors,
        "weights": line["weights"],
        "edges": line["edges"],
    }
    if shape != "equal":
        found["weights"] = [[_COST * cost // speed for cost in line["weights"]] for speed in _SPEEDS]
        found["kinds"] = [processor % len(_SPEEDS) for processor in range(processors)]
        found["edges"] = [[src, dst, _DELAY * delay] for src, dst, delay in line["edges"]]
    if shape == "nodes":
        found["node_of"] = [2 * processor // processors for processor in range(processors)]
        found["remote_factor"] = _REMOTE
    return found


def to_saga(line: Mapping[str, Any]) -> tuple[Any, Any]:
    """(Network, task graph) of anrg-saga: cost over speed of a processor, size over speed of a link.

    Raises:
        ValueError: if the kinds do not differ by a speed alone.
    """
    from saga import Network, TaskGraph

    count = line["processors"]
    rows = line["weights"] if isinstance(line["weights"][0], list) else [line["weights"]]
    kinds = line.get("kinds", [0] * count)
    speeds = [_speed(rows[0], row) for row in rows]
    node_of = line.get("node_of", [0] * count)
    links = [
        (str(a), str(b), 1.0 if node_of[a] == node_of[b] else 1 / line["remote_factor"])
        for a in range(count)
        for b in range(a)
    ]
    # Of several edges between two tasks the longest decides; saga holds one.
    longest: dict[tuple[int, int], float] = {}
    for src, dst, delay in line["edges"]:
        longest[src, dst] = max(delay, longest.get((src, dst), 0))
    network = Network.create([(str(p), float(speeds[kinds[p]])) for p in range(count)], links)
    tasks = [(str(task), float(cost)) for task, cost in enumerate(rows[0])]
    return network, TaskGraph.create(tasks, [(str(src), str(dst), float(d)) for (src, dst), d in longest.items()])


def _speed(slow: list[int], other: list[int]) -> Fraction:
    """How many times as fast one kind is as another."""
    ratios = {Fraction(a, b) for a, b in zip(slow, other, strict=True) if a and b}
    if len(ratios) != 1 or any(bool(a) != bool(b) for a, b in zip(slow, other, strict=True)):
        raise ValueError("saga's tasks have one cost, and its processors one speed")
    return ratios.pop()


def from_saga(schedule: Any, tasks: int) -> dict[str, Any]:
    """A schedule of anrg-saga as an answer of ``fddps schedule``; the makespan is the one that it claims."""
    placed = {task.name: task for on_node in schedule.mapping.values() for task in on_node}
    # What is in `placed` besides are a source and a sink without a cost, which saga adds.
    columns = [placed[str(task)] for task in range(tasks)]
    return {"makespan": schedule.makespan, "tasks": [[int(task.node), task.start, task.end] for task in columns]}


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """(Seconds of processor time, result)."""
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def compare(line: Mapping[str, Any], rounds: int) -> Iterator[tuple[float, float, float, float]]:
    """(Saga's seconds, ours, saga's makespan, ours) of each round.

    Raises:
        AssertionError: if a schedule is wrong.
    """
    from saga.schedulers import HeftScheduler
    from saga.schedulers.cpop import upward_rank

    problem: BareProblem = parse_bare(line)
    network, graph = to_saga(line)
    for _ in range(rounds):
        # saga keeps the ranks of a graph that it has seen.
        upward_rank.cache_clear()
        theirs_s, theirs = timed(functools.partial(HeftScheduler().schedule, network, graph))
        ours_s, ours = timed(functools.partial(heft, problem.graph, problem.comm))
        answers = from_saga(theirs, len(problem.order)), problem.answer(ours)
        for whose, answer in zip(("saga", "ours"), answers, strict=True):
            problems = bare_problems(line, answer)
            if problems:
                raise AssertionError(f"{line['name']}, {whose}: {problems[:3]}")
        yield theirs_s, ours_s, answers[0]["makespan"], answers[1]["makespan"]


def main() -> None:
    """Command line: print one table row an instance."""
    parser = argparse.ArgumentParser(description="Our HEFT beside anrg-saga's.")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--processors", type=int, action="append", default=[], help="a multiple of four")
    parser.add_argument("--shape", action="append", default=[], choices=SHAPES)
    parser.add_argument("--seeds", type=int, default=3, help="graphs of each shape and number of processors")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not os.environ.get("PYTHONHASHSEED", "").isdigit():
        parser.error("set PYTHONHASHSEED=0: saga tries processors in the order of a set of strings, which decides ties")
    # It warns of every graph that has several sources.
    logging.disable(logging.WARNING)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Compiles our kernels: not counted.
    list(compare(instance("nodes", 50, 4, 0), 1))
    speedups, lengths = [], []
    print("| instance | saga s | ours s | ratio | saga makespan | ours makespan | ours / saga |")
    print("|---|---|---|---|---|---|---|")
    for shape in options.shape or SHAPES:
        for processors in options.processors or PROCESSORS:
            for seed in range(options.seeds):
                line = instance(shape, options.tasks, processors, seed)
                theirs_s, ours_s, theirs, ours = zip(*compare(line, options.rounds), strict=True)
                ratio = statistics.median(a / b for a, b in zip(theirs_s, ours_s, strict=True))
                speedups.append(ratio)
                lengths.append(ours[0] / theirs[0])
                print(
                    f"| {line['name']} | {statistics.median(theirs_s):.2f} | {statistics.median(ours_s):.5f} "
                    f"| {ratio:.0f} | {theirs[0]:.0f} | {ours[0]:.0f} | {lengths[-1]:.4f} |",
                    flush=True,
                )
    print(f"seconds: least ratio {min(speedups):.0f}, median {statistics.median(speedups):.0f}")
    print(
        f"makespan of {len(lengths)}: ours shorter on {sum(x < 1 for x in lengths)}, equal on "
        f"{sum(x == 1 for x in lengths)}, longer on {sum(x > 1 for x in lengths)}; ours / saga: "
        f"geometric mean {statistics.geometric_mean(lengths):.4f}, most {max(lengths):.4f}"
    )


if __name__ == "__main__":
    main()
