"""The step of a plan of one segment on the CPU: one call of ONNX Runtime's, from arrays to arrays.

Small models take less time than the Python around them. A step begins on idle cores, where code is not in the caches,
so what counts is how many functions and lines there are: through the executor, its worker and the segment's session
they cost 0.2 ms of a step of 0.5 ms, here less than ``InferenceSession.run`` does. So :meth:`WholeStep.run` is one flat
function, against our habit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import sched_getaffinity, sched_setaffinity
from time import perf_counter_ns
from typing import Any

from numpy import ndarray

from planner.graph.op_graph import TensorInfo
from planner.launcher.executor import HERE_NS, Executor
from planner.launcher.steps import SegmentTiming
from planner.partition.types import PartitionedModel
from planner.runtime.session import execution_error, made_by_handler
from planner.runtime.values import FOREIGN_TYPES, ORT_ERRORS, numpy_dtype

Usual = tuple[Any, tuple[int | None, ...]]


class WholeStep:
    """Runs the only segment of a plan in the calling thread.

    Where ONNX Runtime has threads of its own on the device's other cores, the calling thread is pinned to the first one
    meanwhile, unless the device has all cores that the thread may use which opens the session: to be moved to a core
    costs 0.06 to 0.13 ms (measured on two idle cores, medians of 150 to 400 steps in turns). Where ONNX Runtime has
    none, there is no other thread to keep clear of.

    Args:
        executor: has the session, and knows whether steps are short enough.
        outputs: names of the model's outputs.
        inputs: of each input the name, and what its array has to be.
    """

    __slots__ = (
        "_all",
        "_core",
        "_end_ns",
        "_executor",
        "_inputs",
        "_lock",
        "_options",
        "_segment",
        "_session",
        "_start_ns",
    )

    def __init__(self, executor: Executor, outputs: Sequence[str], inputs: Sequence[tuple[str, Usual]]) -> None:
        worker = executor.only_worker
        self._executor = executor
        self._segment = worker.only_session
        self._session = worker.only_session.inner
        self._options = worker.run_options
        cores = set(worker.device.cores)
        self._core = set(worker.device.cores[:1]) if len(cores) > 1 and cores != sched_getaffinity(0) else set()
        self._inputs = [(name, dtype, shape) for name, (dtype, shape) in inputs]
        self._all = list(outputs)
        self._lock = executor.lock
        self._start_ns = self._end_ns = 0

    @classmethod
    def of(cls, model: PartitionedModel, executor: Executor) -> WholeStep | None:
        """For a model of one segment on the CPU that makes all outputs of all inputs, plain arrays all of them."""
        if len(model.segments) != 1 or not executor.may_run_here or executor.only_worker.device.type != "cpu":
            return None
        made = {info.name for info in model.segments[0].outputs}
        read = {info.name for info in model.segments[0].inputs}
        inputs = [(info.name, found) for info in model.inputs if info.name in read and (found := usual(info))]
        if len(inputs) < len(model.inputs) or not all(is_plain(info) and info.name in made for info in model.outputs):
            return None
        return cls(executor, [info.name for info in model.outputs], inputs)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any] | None:
        """Run one step.

        Args:
            output_names: which outputs, in order; None or none for all.
            feeds: one array an input.

        Returns:
            The outputs; None, and nothing was done, if the step has to take the long way: the inputs or the names
            have to be looked at more closely, steps take long, or the session is closed.

        Raises:
            ExecutionError: if the segment fails.
        """
        if output_names is None:
            output_names = self._all
        elif type(output_names) is not list or not output_names or not all(n in self._all for n in output_names):
            return None
        if type(feeds) is not dict or len(feeds) != len(self._inputs):
            return None
        for name, dtype, shape in self._inputs:
            value = feeds.get(name)
            if type(value) is not ndarray or value.dtype != dtype or value.shape != shape:
                return None
        executor = self._executor
        with self._lock:
            if executor.last_ns > HERE_NS:
                return None
            self._options.terminate = False
            before = sched_getaffinity(0) if self._core else None
            try:
                if before:
                    sched_setaffinity(0, self._core)
                start_ns = perf_counter_ns()
                made: list[Any] = self._session.run(output_names, feeds, self._options)
                end_ns = perf_counter_ns()
            except ORT_ERRORS as problem:
                if made_by_handler(problem):
                    raise
                if isinstance(problem, OSError):
                    # Its core was taken away: the long way says so.
                    return None
                raise execution_error(problem, self._segment.id, self._segment.device, "failed") from None
            finally:
                if before:
                    sched_setaffinity(0, before)
            executor.last_ns = end_ns - start_ns
            self._start_ns, self._end_ns = start_ns, end_ns
        return made

    @property
    def timings(self) -> tuple[SegmentTiming, ...]:
        """When the segment ran last."""
        return (SegmentTiming(self._segment.id, self._segment.device.name, self._start_ns, self._end_ns),)


def is_plain(info: TensorInfo) -> bool:
    """Whether numpy and ONNX Runtime exchange such values without our help."""
    return info.kind == "tensor" and info.dtype != "string" and info.dtype not in FOREIGN_TYPES


def usual(info: TensorInfo) -> Usual | None:
    """The numpy type and the shape of an input whose value needs no further look if it has just these."""
    return (numpy_dtype(info.dtype), info.shape) if is_plain(info) and info.shape is not None else None
