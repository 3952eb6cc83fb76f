"""One ONNX Runtime session for one segment.

Measured on ONNX Runtime 1.32, and why things are as they are:

- ``run_with_iobinding`` on the inner C objects costs 4-6 us, binding 2-3 us more, ``run`` of numpy arrays 17-25 us.
- Outputs are bound anew for every run: a binding that keeps its output buffers overwrites its last results.
- ``add_external_initializers`` hands weights to the optimiser as well (it folds batch norms into them) and copies them;
  ours can go afterwards. ``add_initializer`` reads them where they are (10 MiB added for three sessions over one 64 MiB
  weight, against 202 MiB), but only with pre-packing off, which costs speed; it wants the file that a stub names to
  exist, hence an empty one, and an optimiser that reads a weight fails on it. It is used where memory is short.
- All sessions share one CPU arena: six sessions of one matrix product need 34 MiB instead of 109, at the same speed.
- Threads that spin after a run disturb the device's next segment: ``force_spinning_stop`` ends that with the run. It
  costs: 4.6 instead of 3.1 ms for a step that begins on idle cores, so the only session of its cores goes without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _c

from planner.errors import ExecutionError
from planner.model.in_place import referring
from planner.model.types import Weight
from planner.partition.types import SegmentModel
from planner.runtime.devices import LocalDevice, available_memory_bytes
from planner.runtime.values import ORT_ERRORS, own, unwrap, wrap
from planner.units import format_size

STUB_LOCATION: Final = "fddps-weights"
_CPU: Final = _c.OrtDevice(_c.OrtDevice.cpu(), _c.OrtDevice.default_memory(), 0)
_FAILED_NODE: Final = re.compile(r"while running (\S+) node\. Name:'([^']*)'")
# Where what ONNX Runtime raises comes to the surface.
_OUR_CODE: Final = ("planner", "onnxruntime", "numpy", "ml_dtypes")
_OUT_OF_MEMORY: Final = re.compile(r"bad_alloc|[Ff]ailed to allocate memory|out of memory|OutOfMemory", re.IGNORECASE)
_NO_KERNEL: Final = re.compile(r"NOT_IMPLEMENTED.*implementation for (\S+) node")
_NO_OPERATOR: Final = re.compile(r"(\S+?)(?:\(-?\d+\))? is not a registered function/op|No Op registered for (\S+)")
_REQUESTED: Final = re.compile(r"requested buffer of size (\d+)")
# By default the arena doubles: a model of 16 GB would take 32 GB.
_CUDA_OPTIONS: Final = {"arena_extend_strategy": "kSameAsRequested"}
_shared_arena: list[bool] = []


class WeightStore:
    """Weights as ONNX Runtime values, one for each content (``Weight.key``), shared by all sessions of a plan."""

    def __init__(self) -> None:
        self._values: dict[str, ort.OrtValue] = {}
        self._lock = threading.Lock()

    def value(self, weight: Weight) -> ort.OrtValue:
        """The weight's value, over the memory that ``Weight.load`` gave."""
        if not weight.key:
            return wrap(weight.load())
        # Workers create their sessions at the same time; two must not load one weight twice.
        with self._lock:
            found = self._values.get(weight.key)
            if found is None:
                found = self._values[weight.key] = wrap(weight.load())
            return found


@contextlib.contextmanager
def stub_folder() -> Iterator[Path]:
    """A folder with the empty file that weight stubs name; needed while sessions are created, not after."""
    with tempfile.TemporaryDirectory(prefix="fddps-") as name:
        folder = Path(name)
        (folder / STUB_LOCATION).touch()
        yield folder


def cpu_options(cores: Sequence[int], *, spin: bool, alone: bool = False) -> ort.SessionOptions:
    """Session options for a group of cores; the calling thread is the first core's and pins itself.

    Args:
        cores: of the session's threads.
        spin: whether they may spin while they wait.
        alone: whether no other session runs on these cores.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = max(1, len(cores))
    options.inter_op_num_threads = 1
    # What goes wrong is raised, and reported once.
    options.log_severity_level = 4
    if len(cores) > 1:
        # Processors count from 1 here; exactly one group for each thread but the calling one.
        groups = ";".join(str(core + 1) for core in cores[1:])
        options.add_session_config_entry("session.intra_op_thread_affinities", groups)
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    if not alone:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    # Else a cut behind a DequantizeLinear lets a fusion requantise the activation: not the whole model's numbers.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return options


class SegmentSession:
    """One segment, ready to run on its device; used by that device's worker thread only.

    Args:
        segment: the segment's model.
        device: where it runs.
        weights: the plan's weights.
        stubs: see :func:`stub_folder`.
        share_weights: read weights where they are instead of copying them into a faster layout.
        alone: whether no other session runs on the device.
        host_outputs: outputs to leave in main memory whatever the device.

    Raises:
        ExecutionError: if ONNX Runtime refuses the model, falls back to another provider or runs out of memory.
    """

    def __init__(
        self,
        segment: SegmentModel,
        device: LocalDevice,
        weights: WeightStore,
        stubs: Path,
        *,
        share_weights: bool = False,
        alone: bool = False,
        host_outputs: frozenset[str] = frozenset(),
    ) -> None:
        self.id = segment.id
        self.device = device
        self._alone = alone
        self.inputs = tuple(info.name for info in segment.inputs)
        self.outputs = tuple(info.name for info in segment.outputs)
        # Neither strings nor sequences can be bound; they go through the slower run().
        values = (*segment.inputs, *segment.outputs)
        self._bindable = all(info.kind == "tensor" and info.dtype != "string" for info in values)
        # What ONNX Runtime reads in place has to live as long as the session.
        self._kept: list[ort.OrtValue] = []
        try:
            self._session = self._create(segment, weights, stubs, share_weights)
        except ORT_ERRORS as problem:
            raise execution_error(problem, segment.id, device, "could not be created") from None
        check_provider(self._session, device, f"segment {segment.id}")
        self._inner = self._session._sess
        self._bound_session = self._session.io_binding()
        self._binding = self._bound_session._iobinding
        on_gpu = device.type == "cuda"
        gpu = _c.OrtDevice(_c.OrtDevice.cuda(), _c.OrtDevice.default_memory(), device.index) if on_gpu else _CPU
        self._output_devices = [_CPU if name in host_outputs else gpu for name in self.outputs]
        self._synchronise = on_gpu

    def run(self, values: Sequence[Any], options: ort.RunOptions) -> list[Any]:
        """Run the segment.

        Args:
            values: one value an input; inner C values, numpy arrays for strings.
            options: of this run; its ``terminate`` ends the run early.

        Returns:
            One value an output.

        Raises:
            ExecutionError: if the run fails; names the operator if ONNX Runtime does.
        """
        try:
            return self._run_bound(values, options) if self._bindable else self._run_plain(values, options)
        except ORT_ERRORS as problem:
            if made_by_handler(problem):
                raise
            raise execution_error(problem, self.id, self.device, "failed") from None

    @property
    def inner(self) -> Any:
        """What ``InferenceSession`` wraps."""
        return self._inner

    def _run_bound(self, values: Sequence[Any], options: ort.RunOptions) -> list[Any]:
        binding = self._binding
        try:
            for name, value in zip(self.inputs, values, strict=True):
                binding.bind_ortvalue_input(name, value)
            for name, device in zip(self.outputs, self._output_devices, strict=True):
                binding.bind_output(name, device)
            self._inner.run_with_iobinding(binding, options)
            if self._synchronise:
                binding.synchronize_outputs()
            made = binding.get_outputs()
            return [made[position] for position in range(len(self.outputs))]
        finally:
            # A binding holds what is bound: memory would stay in use until the next step.
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()

    def _run_plain(self, values: Sequence[Any], options: ort.RunOptions) -> list[Any]:
        feeds = {name: unwrap(value) for name, value in zip(self.inputs, values, strict=True)}
        made = self._session.run(list(self.outputs), feeds, options)
        return [own(value) if _is_numeric(value) else value for value in made]

    def _create(
        self, segment: SegmentModel, weights: WeightStore, stubs: Path, share_weights: bool
    ) -> ort.InferenceSession:
        model, folder, given = referring(segment.model, segment.weights)
        if share_weights and given:
            # The file that their stubs name has to be in the folder.
            model, folder, given = segment.model, None, segment.weights
        options = self._options(folder or stubs, share_weights)
        values = {name: weights.value(weight) for name, weight in given.items()}
        if not share_weights:
            options.add_external_initializers(list(values), list(values.values()))
            return self._open(model, options)
        for name, value in values.items():
            options.add_initializer(name, value)
        try:
            session = self._open(model, options)
        except ORT_ERRORS:
            # An optimiser wanted to read a weight: this segment has to have copies.
            return self._create(segment, weights, stubs, share_weights=False)
        self._kept = list(values.values())
        return session

    def _open(self, model: bytes, options: ort.SessionOptions) -> ort.InferenceSession:
        return ort.InferenceSession(model, options, providers=providers(self.device), enable_fallback=0)

    def _options(self, stubs: Path, share_weights: bool) -> ort.SessionOptions:
        options = cpu_options(self.device.cores or (0,), spin=not self.device.shared, alone=self._alone)
        use_stubs(options, stubs)
        if share_weights:
            options.add_session_config_entry("session.disable_prepacking", "1")
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        return options


def providers(device: LocalDevice) -> list[Any]:
    """Execution providers for a device, in ONNX Runtime's form."""
    if device.type == "cuda":
        # A plan counts GPUs as NVML and nvidia-smi do. CUDA reads this when the first session starts it; by default it
        # counts from the fastest.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        return [("CUDAExecutionProvider", {"device_id": str(device.index), **_CUDA_OPTIONS}), "CPUExecutionProvider"]
    return ["CPUExecutionProvider"]


def use_stubs(options: ort.SessionOptions, stubs: Path) -> None:
    """Look for the files of external weights in the folder of empty ones."""
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(stubs))


def check_provider(session: ort.InferenceSession, device: LocalDevice, what: str) -> None:
    """Falling back from CUDA to CPU is silent: read back what the session really got.

    Raises:
        ExecutionError: if it is not the device that was asked for.
    """
    if device.type != "cuda":
        return
    got = session.get_providers()
    index = session.get_provider_options().get("CUDAExecutionProvider", {}).get("device_id")
    if got[0] != "CUDAExecutionProvider" or index != str(device.index):
        raise ExecutionError(
            f"ONNX Runtime fell back to {got[0]}",
            where=f"{what} on {device.name}",
            expected=f"CUDAExecutionProvider on CUDA device {device.index}",
            next_step="check the CUDA and cuDNN libraries, or check the results with --on cpu",
        )


def made_by_handler(problem: BaseException) -> bool:
    """Whether someone else's code raised it: a signal's handler runs between any two instructions of ours."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return trace is not None and name.partition(".")[0] not in _OUR_CODE


def execution_error(problem: BaseException, segment: str, device: LocalDevice, verb: str) -> ExecutionError:
    """What ONNX Runtime says, as one line that names segment, device, and operator or memory where it is told."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    where = f"segment {segment} on {device.name}"
    if isinstance(problem, MemoryError) or _OUT_OF_MEMORY.search(text):
        requested = _REQUESTED.search(text)
        need = format_size(int(requested[1])) if requested else "an unknown size"
        free = available_memory_bytes(device)
        return ExecutionError(
            f"out of memory: needs {need} more, {'unknown' if free is None else format_size(free)} available",
            where=where,
            expected=f"the plan's {format_size(device.memory_bytes)} to be free",
            next_step="free memory on the device, or plan again with a smaller --memory",
        )
    node = _FAILED_NODE.search(text)
    operator = f" in {node[1]} '{node[2]}'" if node else ""
    return ExecutionError(f"{verb}{operator}: {text[:600]}", where=where, next_step=_next_step(text, device))


def _next_step(text: str, device: LocalDevice) -> str:
    """What to do about an operator that ONNX Runtime does not have; nothing for other errors."""
    provider = "CUDA" if device.type == "cuda" else "CPU"
    if missing := _NO_KERNEL.search(text):
        return (
            f"this ONNX Runtime has no kernel for {missing[1]} of these types on {provider}: convert the model to "
            "types that it has one for (float32, say), or use another build of ONNX Runtime"
        )
    if unknown := _NO_OPERATOR.search(text):
        return (
            f"this ONNX Runtime does not know {unknown[1] or unknown[2]}, and fddps loads no libraries of custom "
            "operators: export the model without it, or with it as a function of standard operators"
        )
    return ""


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUST"


def _share_arena() -> None:
    """Register the CPU arena that all sessions of this process may share, once."""
    if not _shared_arena:
        info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
        # Harmless if the application registered one before us.
        _c.create_and_register_allocator(info, None)
        _shared_arena.append(True)
