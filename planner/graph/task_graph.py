"""The schedulable DAG as arrays: what the schedulers work on.

Tasks are numbered in a topological order. One edge a (producer, consumer, tensor); a tensor is sent once per
consuming device, however many of its consumers run there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class TaskGraph:
    """Tasks with their costs, and the data edges between them.

    Attributes:
        names: one a task; the order is topological.
        compute_ns: [tasks, devices] cost of each task on each device.
        edge_src: [edges] producer.
        edge_dst: [edges] consumer; edges are sorted by (edge_src, edge_dst, edge_tensor).
        edge_tensor: [edges] which tensor; indexes ``tensor_bytes``.
        tensor_bytes: [tensors] size of each tensor that some edge carries.
        weight_bytes: [tasks] weights the task keeps resident on its device. Tasks may share weights: see ``weight_id``.
        weight_id: [tasks] tasks with the same non-negative id on one device hold their weights once; -1 for none
            shared.
        output_bytes: [tasks] bytes of all outputs (activations).
        allowed: [tasks, devices] where a task may run; None: anywhere.
        weights_only: whether memory limits are for ``weight_bytes`` alone: the bytes of tensors only say how long they
            take then.
        together: [tasks] tasks of the same non-negative number run on one device; None: no such wish.
    """

    names: tuple[str, ...]
    compute_ns: I64
    edge_src: I32
    edge_dst: I32
    edge_tensor: I32
    tensor_bytes: I64
    weight_bytes: I64
    weight_id: I32
    output_bytes: I64
    allowed: npt.NDArray[np.bool_] | None = None
    together: I64 | None = None
    weights_only: bool = False

    @property
    def num_tasks(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @property
    def num_devices(self) -> int:
        """Number of devices that ``compute_ns`` has columns for."""
        return int(self.compute_ns.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class CommCosts:
    """Transfer costs between devices, for the schedulers: ``latency_ns[s, d] + nbytes * ns_per_mib[s, d] / 2**20``.

    Attributes:
        latency_ns: [devices, devices], zero on the diagonal.
        ns_per_mib: [devices, devices] nanoseconds per MiB, zero on the diagonal.
    """

    latency_ns: I64
    ns_per_mib: I64


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Placement, order and times.

    Attributes:
        device: [tasks] index of the device.
        start_ns: [tasks] start.
        finish_ns: [tasks] finish.
    """

    device: I32
    start_ns: I64
    finish_ns: I64

    @property
    def makespan_ns(self) -> int:
        """Latest finish; 0 for an empty graph."""
        return int(self.finish_ns.max()) if len(self.finish_ns) else 0
