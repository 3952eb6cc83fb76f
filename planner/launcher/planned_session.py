"""A plan that is ready to run, with the interface of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnxruntime as ort

from planner.errors import InputError, UsageError
from planner.graph.op_graph import TensorInfo
from planner.launcher.executor import Executor
from planner.launcher.steps import HandoverTiming, Request, SegmentTiming, StepResult
from planner.launcher.whole import Usual, WholeStep, usual
from planner.partition.segments import partition_plan
from planner.partition.types import PartitionedModel
from planner.plan.check import require_runnable
from planner.plan.files import plan_model_path, read_plan
from planner.plan.schema import Plan
from planner.runtime.devices import LocalDevice, LocalDevices, find_devices
from planner.runtime.feeds import random_feeds
from planner.runtime.values import dtype_of, element_type, ort_type, over, unwrap, wrap


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """An input or output, as ONNX Runtime describes it.

    Attributes:
        name: of the graph input or output.
        shape: one size a dimension; None where it depends on data.
        type: e.g. ``tensor(float)``.
    """

    name: str
    shape: list[int | None]
    type: str


class PlannedSession:
    """Runs a plan; use it like an ``onnxruntime.InferenceSession``, and close it (or use ``with``).

    Args:
        plan: a plan file, or a plan (then ``model_path`` is needed unless its path is right from the working folder).
        model_path: the model, if it is not where the plan says.
        on_cpu: run every device of the plan on this machine's cores: results count, times do not.
        device_map: plan device -> device to use instead, e.g. ``{"cuda:0": "cuda:2"}``.
        allow_outside: whether the plan may name a model outside its own folder, and the model data outside its own.
        timeout_s: a step that takes longer is called off, with an :class:`ExecutionError`; None: wait for ever.

    Raises:
        PlanError, ModelError: if the plan or its model cannot be read, or do not fit each other.
        UsageError: if ``device_map`` is wrong.
        ExecutionError: if a device is not there or a session cannot be created.
    """

    def __init__(
        self,
        plan: str | Path | Plan,
        *,
        model_path: str | Path | None = None,
        on_cpu: bool = False,
        device_map: Mapping[str, str] | None = None,
        allow_outside: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        loaded = plan if isinstance(plan, Plan) else read_plan(plan)
        require_runnable(loaded, "plan" if isinstance(plan, Plan) else str(plan))
        folder = Path() if isinstance(plan, Plan) else Path(plan).parent
        if model_path is None and not isinstance(plan, Plan):
            model_path = plan_model_path(loaded, plan, allow_outside=allow_outside)
        used = [queue.device for queue in loaded.devices if queue.segments]
        # Before anything is loaded: a missing GPU should be reported at once.
        devices = find_devices(loaded.cluster, used, on_cpu=on_cpu, device_map=device_map)
        path = Path(model_path) if model_path is not None else None
        model = partition_plan(loaded, folder, model_path=path, allow_outside=allow_outside)
        self._open(model, devices, timeout_s)
        self.allow_outside = allow_outside
        self._placing = (on_cpu, device_map)
        self.plan: Plan | None = loaded
        self.model_path: Path | None = path or folder / loaded.model.path

    @classmethod
    def from_partition(
        cls, model: PartitionedModel, devices: LocalDevices, *, timeout_s: float | None = None
    ) -> PlannedSession:
        """A session for a model that is partitioned already.

        Raises:
            ExecutionError: if a session cannot be created.
        """
        session = cls.__new__(cls)
        session._open(model, devices, timeout_s)
        session.allow_outside = False
        session._placing = (False, None)
        session.plan = None
        session.model_path = None
        return session

    def _open(self, model: PartitionedModel, devices: LocalDevices, timeout_s: float | None) -> None:
        self.model = model
        self.devices = devices
        self.warnings = devices.warnings
        self._inputs = {info.name: info for info in model.inputs}
        self._usual = {info.name: usual(info) for info in model.inputs}
        self._constants = {name: weight.load() for name, weight in model.constants.items()}
        self._timings: tuple[SegmentTiming, ...] | None = ()
        self._handovers: tuple[HandoverTiming, ...] = ()
        self._executor = Executor(model, devices.devices, timeout_s=timeout_s)
        self._whole = WholeStep.of(model, self._executor)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run one step.

        Args:
            output_names: which outputs, in which order; None or an empty list for all in the model's order.
            input_feed: input name -> numpy array or ``onnxruntime.OrtValue``; nothing is converted, copied or kept.
            run_options: accepted for compatibility; None only.

        Returns:
            One numpy array an output, in memory of its own; an output that is named twice is one array, twice.

        Raises:
            InputError: if a name, type or shape is wrong.
            ExecutionError: if a segment fails or the session is closed.
        """
        whole = self._whole  # close() may take it away meanwhile
        if whole is not None and run_options is None:
            values = whole.run(output_names, input_feed)
            if values is not None:
                self._timings, self._handovers = None, ()
                return values
        if run_options is not None:
            raise InputError("run options are not supported", expected="None")
        if not isinstance(input_feed, Mapping):
            raise InputError(f"a {type(input_feed).__name__}", expected="a mapping of input names to arrays")
        names = self._requested(output_names)
        result = self.step(input_feed)
        return [self._output(name, result, input_feed) for name in names]

    def run_many(
        self,
        output_names: Sequence[str] | None,
        requests: Iterable[Mapping[str, Any]],
        deliver: Callable[[list[Any]], None],
        *,
        in_flight: int = 2,
    ) -> None:
        """Run one step for each request, several at a time: a device begins the next while others are at the last.

        Args:
            output_names: as in :meth:`run`.
            requests: what to feed; taken one by one, as there is room for them.
            deliver: gets the outputs of each request, in the order of the requests, in the calling thread. Neither it
                nor ``requests`` may run this session.
            in_flight: most requests begun and not delivered.

        Raises:
            InputError: if a name, type or shape is wrong, or ``in_flight`` is no positive number.
            ExecutionError: if a segment fails or the session is closed; nothing more is delivered then.
        """
        if in_flight < 1:
            raise InputError(f"{in_flight} requests in flight", expected="1 or more")
        names = self._requested(output_names)
        open_feeds: deque[Mapping[str, Any]] = deque()

        def ask() -> Iterator[Request]:
            for feeds in requests:
                request = self._request(feeds)
                open_feeds.append(feeds)
                yield request

        def answer(result: StepResult) -> None:
            self._timings, self._handovers = result.timings, result.handovers
            feeds = open_feeds.popleft()
            deliver([self._output(name, result, feeds) for name in names])

        self._executor.run_many(ask(), answer, in_flight=in_flight)

    def step(self, input_feed: Mapping[str, Any], *, traced: bool = False) -> StepResult:
        """Run one step and return what the workers made, without copies; see :class:`StepResult`.

        Raises:
            InputError, ExecutionError: as :meth:`run`.
        """
        result = self._executor.run(self._request(input_feed), traced=traced)
        self._timings, self._handovers = result.timings, result.handovers
        return result

    def _request(self, input_feed: Mapping[str, Any]) -> Request:
        owners: Mapping[str, Any]
        if self._all_usual(input_feed):
            owners = {name: input_feed[name] for name in self._usual}
            return Request({name: over(value) for name, value in owners.items()}, owners)
        owners = self._checked(input_feed)
        return Request({n: v._get_c_value() if isinstance(v, ort.OrtValue) else v for n, v in owners.items()}, owners)

    def smoke(self, seed: int = 0) -> None:
        """Run one step on random inputs: what cannot run fails here, and first-run costs are paid.

        Raises:
            ExecutionError: if a segment fails.
        """
        self.step(random_feeds(self.model.inputs, seed))

    def plain_devices(self) -> list[LocalDevice]:
        """The plan's devices that do not consist of others, whether the plan uses them or not; none without a plan.

        Raises:
            ExecutionError: if one is not there.
        """
        if self.plan is None:
            return []
        names = [spec.name for spec in self.plan.cluster.devices if not spec.members]
        on_cpu, device_map = self._placing
        found = find_devices(self.plan.cluster, names, on_cpu=on_cpu, device_map=device_map)
        return [found.devices[name] for name in names]

    def reference_device(self) -> LocalDevice:
        """The plan's first plain device, whether the plan uses it or not: where the unsplit model is run.

        Raises:
            UsageError: if the session has no plan.
            ExecutionError: if it is not there.
        """
        if self.plan is None:
            raise UsageError("no device to compare with", expected="a session opened from a plan")
        cluster = self.plan.cluster
        first = next((spec.name for spec in cluster.devices if not spec.members), cluster.devices[0].name)
        if first in self.devices.devices:
            return self.devices.devices[first]
        on_cpu, device_map = self._placing
        return find_devices(cluster, [first], on_cpu=on_cpu, device_map=device_map).devices[first]

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Types and shapes of what to feed, in the model's order."""
        return self.model.inputs

    @property
    def timings(self) -> tuple[SegmentTiming, ...]:
        """When each segment of the last step ran; empty before the first."""
        whole = self._whole
        if self._timings is None and whole is not None:
            return whole.timings
        return self._timings or ()

    @property
    def handovers(self) -> tuple[HandoverTiming, ...]:
        """What went between devices in the last step, and when; empty before the first."""
        return self._handovers

    @property
    def weight_bytes(self) -> Mapping[str, int]:
        """Bytes of the distinct weights of each device, and of the segment models that have the small ones inside."""
        return self._executor.weight_bytes

    def get_inputs(self) -> list[ValueInfo]:
        """What to feed, in the model's order."""
        return [_described(info) for info in self.model.inputs]

    def get_outputs(self) -> list[ValueInfo]:
        """What :meth:`run` returns, in the model's order."""
        return [_described(info) for info in self.model.outputs]

    def close(self) -> None:
        """Stop the workers and free everything; may be called again."""
        self._timings = self.timings
        self._whole = None
        self._executor.close()

    def __enter__(self) -> PlannedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _all_usual(self, input_feed: Mapping[str, Any]) -> bool:
        """Whether the inputs are just the arrays that the plan is for."""
        if len(input_feed) != len(self._usual):
            return False
        return all(_is_usual(input_feed.get(name), wanted) for name, wanted in self._usual.items())

    def _requested(self, output_names: Sequence[str] | None) -> list[str]:
        known = [info.name for info in self.model.outputs]
        if isinstance(output_names, str):
            raise InputError(f"the text '{output_names}'", where="output names", expected="a list of names, or None")
        try:
            names = list(output_names or ())
        except (TypeError, ValueError):  # of numpy arrays, only the truth of short ones is known
            raise InputError(
                f"{output_names!r}"[:60], where="output names", expected="a list of names, or None"
            ) from None
        for name in names:
            if name not in known:
                raise InputError(f"the model has no output '{name}'", expected=_listed(known))
        return names or known

    def _output(self, name: str, result: StepResult, feeds: Mapping[str, Any]) -> Any:
        if name in result.values:
            return unwrap(result.values[name])
        if name in self.model.direct:
            value = feeds[self.model.direct[name]]
            return unwrap(value) if isinstance(value, ort.OrtValue) else value.copy()
        return self._constants[name].copy()

    def _checked(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as wrappers of ONNX Runtime (object arrays for strings), in the inputs' order."""
        missing = [name for name in self._inputs if name not in feeds]
        ignored = self.model.ignored
        unknown = [name for name in feeds if name not in self._inputs and name not in ignored]
        if missing:
            given = f"; given: {_listed(list(feeds))}" if feeds else ""
            wanted = f"values for {_listed(list(self._inputs))}"
            raise InputError(f"no value for {_listed(missing)}{given}", expected=wanted)
        if unknown:
            raise InputError(
                f"the model has no input {_listed(unknown)}", expected=_listed(list(self._inputs)) or "no inputs"
            )
        return {name: _feed(feeds[name], info) for name, info in self._inputs.items()}


def _feed(value: Any, info: TensorInfo) -> Any:
    if isinstance(value, ort.OrtValue):
        dtype, shape = element_type(value.data_type()), tuple(value.shape())
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        dtype, shape = dtype_of(value), tuple(value.shape)
    else:
        raise InputError(
            f"a {type(value).__name__}", where=f"input '{info.name}'", expected="a numpy array or an OrtValue"
        )
    if dtype != info.dtype:
        raise InputError(
            f"element type {dtype}",
            where=f"input '{info.name}'",
            expected=info.dtype,
            next_step=f"convert it, e.g. array.astype('{info.dtype}')",
        )
    if info.shape is not None and not _fits(shape, info.shape):
        raise InputError(
            f"shape {_shape_text(shape)}",
            where=f"input '{info.name}'",
            expected=_shape_text(info.shape),
            next_step="a plan is for fixed shapes: plan again for another one",
        )
    if isinstance(value, ort.OrtValue):
        return value
    if value.dtype.kind == "S":
        raise InputError("bytes", where=f"input '{info.name}'", expected="text", next_step="decode them")
    return value.astype(object) if dtype == "string" else wrap(value)


def _is_usual(value: Any, wanted: Usual | None) -> bool:
    return (
        wanted is not None
        and type(value) is np.ndarray
        and value.dtype == wanted[0]
        and value.shape == wanted[1]
        and value.flags.c_contiguous
    )


def _fits(shape: tuple[int, ...], planned: tuple[int | None, ...]) -> bool:
    return len(shape) == len(planned) and all(
        want is None or have == want for have, want in zip(shape, planned, strict=True)
    )


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if size is None else str(size) for size in shape) or "a scalar"


def _described(info: TensorInfo) -> ValueInfo:
    return ValueInfo(info.name, list(info.shape or ()), ort_type(info.dtype, info.kind))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
