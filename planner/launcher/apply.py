"""Run a plan, measure it and check it: what ``fddps apply`` does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from planner.errors import ExecutionError, InputError
from planner.graph.op_graph import Array
from planner.launcher.check import Checker
from planner.launcher.planned_session import PlannedSession
from planner.launcher.steps import HandoverTiming, SegmentTiming, StepResult
from planner.launcher.throughput import Throughput, measure_throughput
from planner.launcher.unsplit import UnsplitSession
from planner.launcher.verify import Comparison
from planner.plan.schema import Plan
from planner.runtime.feeds import DEFAULT_INT_HIGH, random_feeds
from planner.runtime.idle import pause_until_idle
from planner.runtime.values import FOREIGN_TYPES, SMALL_INTEGERS, dtype_of
from planner.units import NS_PER_S, to_s

_ONE_INPUT: Final = (
    "verified on one input, twice: of given inputs only floats are changed for the second, and here none changes; "
    "verify again with other --inputs"
)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How to run a plan.

    Attributes:
        model_path: the model, if it is not where the plan says.
        on_cpu: run every device on this machine's cores.
        device_map: plan device -> device to use instead.
        allow_outside: whether the plan may name a model outside its own folder.
        seed: of the random inputs.
        int_high: random integers are below this; by input name or for all.
        warmup: steps before measuring.
        repeat: measured steps.
        verify: compare with the unsplit model on two different inputs, and time it too, in turns.
        verify_deep: compare every value that crosses segments as well; implies ``verify``.
        requests: measure the throughput with so many successive requests; 0: do not.
        in_flight: most requests begun and not answered meanwhile.
        timeout_s: a step that takes longer is called off; None: wait for ever.
    """

    model_path: Path | None = None
    on_cpu: bool = False
    device_map: Mapping[str, str] | None = None
    allow_outside: bool = False
    seed: int = 0
    int_high: Mapping[str, int] | int = DEFAULT_INT_HIGH
    warmup: int = 1
    repeat: int = 10
    verify: bool = False
    verify_deep: bool = False
    requests: int = 0
    in_flight: int = 2
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """Median time of one segment."""

    segment: str
    device: str
    median_s: float


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """Load of one device.

    Attributes:
        name: plan device.
        busy_s: median over the steps of the time that its segments ran.
        peak_bytes: its weights, and the most bytes of values alive between its segments; what is alive only inside
            a segment, ONNX Runtime does not tell.
    """

    name: str
    busy_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """What one step did when, in nanoseconds from its start."""

    segments: tuple[SegmentTiming, ...]
    handovers: tuple[HandoverTiming, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ApplyResult:
    """What running a plan showed.

    Attributes:
        verified: None if not asked for.
        max_abs_diff: see :class:`Comparison`; None if not verified.
        max_rel_diff: see :class:`Comparison`; None if not verified.
        predicted_step_s: by the plan.
        step_s: median of the measured steps.
        one_device_step_s: median of the unsplit model's on the plan's first device; None if not verified.
        segments: in an order in which one thread could run them.
        devices: those that execute something.
        comparison: details of the verification; None if not asked for.
        outputs: of the first input, by name.
        warnings: one line each.
        timeline: the measured step of median length.
        throughput: None if not asked for.
    """

    verified: bool | None
    max_abs_diff: float | None
    max_rel_diff: float | None
    predicted_step_s: float
    step_s: float
    one_device_step_s: float | None
    segments: tuple[SegmentResult, ...]
    devices: tuple[DeviceResult, ...]
    comparison: Comparison | None
    outputs: Mapping[str, Any]
    warnings: tuple[str, ...]
    timeline: StepTimeline
    throughput: Throughput | None = None

    def as_json(self) -> dict[str, Any]:
        """What ``fddps apply --json`` prints."""
        devices = [
            {"name": device.name, "busy_s": device.busy_s, "peak_bytes": device.peak_bytes} for device in self.devices
        ]
        return {
            "verified": self.verified,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "predicted_step_s": self.predicted_step_s,
            "step_s": self.step_s,
            "one_device_step_s": self.one_device_step_s,
            "segments": len(self.segments),
            "devices": devices,
            "warnings": list(self.warnings),
            "throughput": self.throughput.as_json() if self.throughput else None,
        }


def run_plan(
    plan: str | Path | Plan, options: ApplyOptions | None = None, *, feeds: Mapping[str, Array] | None = None
) -> ApplyResult:
    """Open a plan, run it, measure it, and check it if asked to.

    Args:
        plan: a plan file, or a plan with ``options.model_path``.
        options: see there.
        feeds: inputs to use instead of random ones.

    Raises:
        FddpsError: as :class:`PlannedSession` and its ``run`` do. A failed verification is in the result.
    """
    options = options or ApplyOptions()
    if options.repeat < 1 or options.warmup < 0:
        raise InputError("a step has to be measured at least once", expected="repeat >= 1 and warm-up >= 0")
    with PlannedSession(
        plan,
        model_path=options.model_path,
        on_cpu=options.on_cpu,
        device_map=options.device_map,
        allow_outside=options.allow_outside,
        timeout_s=options.timeout_s,
    ) as session:
        known = [info.name for info in session.inputs]
        for name in () if isinstance(options.int_high, int) else options.int_high:
            if name not in known:
                raise InputError(
                    f"the model has no input '{name}'", where="--int-high", expected=f"one of {', '.join(known)}"
                )
        given = feeds if feeds is not None else random_feeds(session.inputs, options.seed, int_high=options.int_high)
        return measure(session, given, options, own_feeds=feeds is not None)


def measure(
    session: PlannedSession, feeds: Mapping[str, Array], options: ApplyOptions, *, own_feeds: bool = False
) -> ApplyResult:
    """Run, measure and check an open session; see :func:`run_plan`.

    Args:
        session: with a plan.
        feeds: first input.
        options: of these, what concerns the devices is the session's already.
        own_feeds: ``feeds`` are the user's: the second input of a verification is made from them.
    """
    names = [info.name for info in session.get_outputs()]
    # The smoke step: what cannot run fails here, before anything is reported.
    try:
        outputs = dict(zip(names, session.run(None, feeds), strict=True))
    except ExecutionError as problem:
        if own_feeds or problem.next_step or not any(info.dtype in ("int32", "int64") for info in session.inputs):
            raise
        next_step = "random integers may be at fault: limit them with --int-high NAME=N, or give --inputs"
        raise ExecutionError(
            problem.what, where=problem.where, expected=problem.expected, next_step=next_step
        ) from None
    peaks = session.step(feeds, traced=True).peak_bytes
    comparison = None
    unsplit = None
    warnings = session.warnings
    if options.verify or options.verify_deep:
        second, unchanged = _second(session, feeds, options, own_feeds)
        checker = Checker(session, deep=options.verify_deep)
        comparison = checker.compare(feeds).merged(checker.compare(second))
        unsplit = checker.unsplit
        warnings = (*warnings, *checker.warnings, *unchanged)
    steps, unsplit_ns = _time(session, unsplit, feeds, options)
    middle = sorted(steps, key=lambda step: step.took_ns)[len(steps) // 2]
    predicted = session.plan.predictions.step_ns if session.plan is not None else 0
    return ApplyResult(
        verified=comparison.verified if comparison else None,
        max_abs_diff=comparison.max_abs_diff if comparison else None,
        max_rel_diff=comparison.max_rel_diff if comparison else None,
        predicted_step_s=to_s(predicted),
        step_s=_median_s([step.took_ns for step in steps]),
        one_device_step_s=_median_s(unsplit_ns) if unsplit_ns else None,
        segments=_segment_results(steps, session),
        devices=tuple(
            DeviceResult(name, _busy_s(steps, name), weights + peaks[name])
            for name, weights in session.weight_bytes.items()
        ),
        comparison=comparison,
        outputs=outputs,
        warnings=warnings,
        timeline=middle.timeline(),
        throughput=measure_throughput(session, feeds, requests=options.requests, in_flight=options.in_flight)
        if options.requests
        else None,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """One measured step."""

    start_ns: int
    took_ns: int
    result: StepResult

    def timeline(self) -> StepTimeline:
        start = self.start_ns
        segments = (replace(t, start_ns=t.start_ns - start, end_ns=t.end_ns - start) for t in self.result.timings)
        handovers = (replace(t, start_ns=t.start_ns - start, end_ns=t.end_ns - start) for t in self.result.handovers)
        return StepTimeline(tuple(segments), tuple(handovers))


def _time(
    session: PlannedSession, unsplit: UnsplitSession | None, feeds: Mapping[str, Array], options: ApplyOptions
) -> tuple[list[_Step], list[int]]:
    """Planned and unsplit steps in turns, so that a machine that slows down slows both.

    By the way that callers of :meth:`PlannedSession.run` take, each step when the process is idle, as where finalists
    are timed: what was predicted is this.
    """
    steps: list[_Step] = []
    unsplit_ns: list[int] = []
    for turn in range(-options.warmup, options.repeat):
        pause_until_idle()
        start_ns = time.perf_counter_ns()
        session.run(None, feeds)
        took_ns = time.perf_counter_ns() - start_ns
        if turn >= 0:
            steps.append(_Step(start_ns, took_ns, StepResult({}, session.timings, {}, session.handovers)))
        if unsplit is not None:
            pause_until_idle()
            start_ns = time.perf_counter_ns()
            unsplit.step(feeds)
            if turn >= 0:
                unsplit_ns.append(time.perf_counter_ns() - start_ns)
    return steps, unsplit_ns


def _segment_results(steps: Sequence[_Step], session: PlannedSession) -> tuple[SegmentResult, ...]:
    times = zip(*([t.end_ns - t.start_ns for t in step.result.timings] for step in steps), strict=True)
    return tuple(
        SegmentResult(segment.id, segment.device, _median_s(taken))
        for segment, taken in zip(session.model.segments, times, strict=True)
    )


def _busy_s(steps: Sequence[_Step], device: str) -> float:
    """Median time that a device's segments ran."""
    return _median_s([sum(t.end_ns - t.start_ns for t in s.result.timings if t.device == device) for s in steps])


def _second(
    session: PlannedSession, feeds: Mapping[str, Array], options: ApplyOptions, own_feeds: bool
) -> tuple[Mapping[str, Array], tuple[str, ...]]:
    """Another input, so that a plan that returns constants, or results of an earlier run, is found out.

    Of the user's own only floats are changed: other integers might not be valid ids, lengths or positions.

    Returns:
        The input, and a warning if nothing in it could be changed.
    """
    if not own_feeds:
        return random_feeds(session.inputs, options.seed + 1, int_high=options.int_high), ()
    halved = {name: value * value.dtype.type(0.5) for name, value in feeds.items() if _is_float(value)}
    # By their bytes: zeros stay what they are, and nothing equals NaN.
    if feeds and all(value.tobytes() == feeds[name].tobytes() for name, value in halved.items()):
        return feeds, (_ONE_INPUT,)
    return {**feeds, **halved}, ()


def _is_float(value: Array) -> bool:
    return value.dtype.kind in "fc" or (dtype_of(value) in FOREIGN_TYPES and dtype_of(value) not in SMALL_INTEGERS)


def _median_s(times_ns: Sequence[int]) -> float:
    return statistics.median(times_ns) / NS_PER_S
