"""Requests a second: a plan that has several in flight, beside replicas of the unsplit model, one a device."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from planner.errors import ExecutionError, UsageError
from planner.graph.op_graph import Array
from planner.launcher.planned_session import PlannedSession
from planner.launcher.unsplit import UnsplitSession, rebuilt
from planner.partition.segments import load_plan_model
from planner.runtime.devices import LocalDevice
from planner.runtime.idle import pause_until_idle
from planner.runtime.threads import run_in_threads
from planner.units import NS_PER_S

ROUNDS: Final = 3
# What noise makes of two equal throughputs.
_EQUAL: Final = 0.02


@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests a second, medians of some rounds taken in turns.

    Attributes:
        requests: of each round.
        in_flight: most requests that the plan had begun and not answered.
        planned_per_s: the plan.
        replicas: number of the unsplit model's sessions, one a device, each busy with a request of its own.
        replicas_per_s: all of these; None if they do not run (``why``).
        one_device_per_s: the first of these alone; None if it does not run.
        why: why there are no replicas.
    """

    requests: int
    in_flight: int
    planned_per_s: float
    replicas: int
    replicas_per_s: float | None
    one_device_per_s: float | None
    why: str = ""

    @property
    def choose(self) -> str:
        """``plan`` or ``replicas``: what serves more requests; the plan, which answers each sooner, if equal."""
        rival = self.replicas_per_s
        return "replicas" if rival is not None and rival > self.planned_per_s * (1 + _EQUAL) else "plan"

    def as_json(self) -> dict[str, Any]:
        """What ``fddps apply --json`` prints."""
        return {
            "requests": self.requests,
            "in_flight": self.in_flight,
            "planned_per_s": self.planned_per_s,
            "replicas": self.replicas,
            "replicas_per_s": self.replicas_per_s,
            "one_device_per_s": self.one_device_per_s,
            "choose": self.choose,
        }


def measure_throughput(
    session: PlannedSession, feeds: Mapping[str, Array], *, requests: int, in_flight: int
) -> Throughput:
    """Run requests through a plan, and through replicas of the unsplit model, in turns.

    Args:
        session: of a plan file.
        feeds: of every request.
        requests: of each round.
        in_flight: most requests begun and not answered; no more than there are.

    Raises:
        UsageError: if the session has no plan.
        ExecutionError: if the plan fails.
    """
    devices = session.plain_devices()
    in_flight = min(in_flight, requests)

    def planned() -> None:
        session.run_many(None, itertools.repeat(feeds, requests), _forget, in_flight=in_flight)

    runs: dict[str, tuple[Callable[[], None], int]] = {"planned": (planned, requests)}
    why = ""
    try:
        replicas = _replicas(session, devices)
    except ExecutionError as problem:
        why = str(problem)
    else:
        share = max(requests // len(devices), 1)
        runs["replicas"] = (lambda: _serve(replicas, feeds, requests), requests)
        runs["one"] = (lambda: _serve(replicas[:1], feeds, share), share)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS + 1):
        for name, (run, count) in runs.items():
            pause_until_idle()
            start_ns = time.perf_counter_ns()
            run()
            # The first round warms up.
            if turn > 0:
                rates[name].append(count * NS_PER_S / max(time.perf_counter_ns() - start_ns, 1))
    middle = {name: median(found) for name, found in rates.items()}
    return Throughput(
        requests,
        in_flight,
        middle["planned"],
        len(devices),
        middle.get("replicas"),
        middle.get("one"),
        why,
    )


def _forget(_: list[Any]) -> None:
    """Answers are not kept."""


def _replicas(session: PlannedSession, devices: Sequence[LocalDevice]) -> list[UnsplitSession]:
    """The unsplit model on each device.

    Raises:
        UsageError: if the session has no plan.
        ExecutionError: if one cannot be created, for want of memory perhaps.
    """
    plan, path = session.plan, session.model_path
    if plan is None or path is None:
        raise UsageError("a partitioned model without its plan", expected="a session of a plan file")
    model = load_plan_model(plan, path, allow_outside=session.allow_outside)
    source = rebuilt(model)
    return [UnsplitSession(source, device) for device in devices]


def _serve(replicas: Sequence[UnsplitSession], feeds: Mapping[str, Array], requests: int) -> None:
    """Each replica takes the next request when it has answered its last one."""
    numbers = itertools.count()
    problems: list[BaseException] = []

    def work(replica: UnsplitSession) -> None:
        try:
            while next(numbers) < requests and not problems:
                replica.step(feeds)
        except BaseException as problem:
            problems.append(problem)

    run_in_threads([partial(work, replica) for replica in replicas], lambda: problems.append(KeyboardInterrupt()))
    if problems:
        raise problems[0]
