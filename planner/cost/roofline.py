"""Roofline estimate of a fused group.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009: attainable rate = min(peak, intensity x bandwidth); as a time, max(flops / peak,
bytes / bandwidth). On top: attainable percentage of the peak by operator family, and an overhead a kernel. A matrix
product with n outputs uses the fraction n / (n + fill_elements) of a GPU: halving a small one saves less than half.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.cluster.sheets import DataSheet
from planner.cost.flops import RNN_OPS, family, is_view, op_bytes, op_flops
from planner.graph.op_graph import OpContext
from planner.units import NS_PER_S

_MATRIX_FAMILIES = ("conv", "matmul", "rnn")


def group_work_ns(ops: Sequence[OpContext], sheet: DataSheet) -> int:
    """Estimated time of operators that run as one fused group, without the kernel's overhead.

    Followers add their operations, but only values that cross the group's border count as bytes.

    Args:
        ops: in topological order.
        sheet: the device's data sheet.

    Returns:
        Nanoseconds; 0 if every operator is a view.
    """
    working = [op for op in ops if not is_view(op)]
    if not working:
        return 0
    compute = sum(compute_ns(op, sheet) for op in working)
    return max(compute, _ceil(group_bytes(ops) * NS_PER_S, sheet.bytes_per_s))


def group_ns(ops: Sequence[OpContext], sheet: DataSheet) -> int:
    """Estimated time of a fused group: work and one kernel's overhead; 0 if every operator is a view."""
    if all(is_view(op) for op in ops):
        return 0
    return group_work_ns(ops, sheet) + sheet.launch_ns


def group_bytes(ops: Sequence[OpContext]) -> int:
    """Bytes that a fused group reads from outside and leaves behind.

    Which inner values are read elsewhere is not known here: values that the group itself reads count as inner.
    """
    if len(ops) == 1:
        return op_bytes(ops[0])
    # A view's output is its input under another name.
    source: dict[str, str] = {}
    for op in ops:
        if is_view(op) and op.op.inputs:
            root = source.get(op.op.inputs[0], op.op.inputs[0])
            source.update((name, root) for name in op.op.writes)
    working = [op for op in ops if not is_view(op)]
    made = {name for op in working for name in op.op.writes}
    read = {source.get(name, name) for op in working for name in op.op.reads}
    total = 0
    seen: set[str] = set()
    for op in working:
        for info in (*op.inputs, *op.outputs):
            if info is None:
                continue
            name = source.get(info.name, info.name)
            if name not in seen and not (name in made and name in read):
                seen.add(name)
                total += info.nbytes
    return total


def compute_ns(op: OpContext, sheet: DataSheet) -> int:
    """Estimated time of an operator's arithmetic alone, on a device that it may not fill."""
    flops = op_flops(op)
    if family(op) in _MATRIX_FAMILIES and sheet.fill_elements:
        flops += flops * sheet.fill_elements // _parallel_outputs(op)
    return _at_rate(op, flops, sheet)


def arithmetic_ns(op: OpContext, sheet: DataSheet) -> int:
    """What it would be if the operator filled the device."""
    return _at_rate(op, op_flops(op), sheet)


def _at_rate(op: OpContext, flops: int, sheet: DataSheet) -> int:
    if flops == 0:
        return 0
    group = family(op)
    return _ceil(flops * 100 * NS_PER_S, _peak(op, group, sheet) * sheet.efficiency[group])


def _parallel_outputs(op: OpContext) -> int:
    """Output elements that may be computed at the same time: of a recurrent operator, those of one step."""
    first, output = op.inputs[0], op.outputs[0] if op.outputs else None
    count = output.num_elements if output is not None else 1
    if op.op.op_type in RNN_OPS and first is not None and first.dims:
        count //= max(first.dims[0], 1)
    return max(count, 1)


def _peak(op: OpContext, group: str, sheet: DataSheet) -> int:
    """Peak for the operator's element type; what the device lacks runs as float32."""
    peaks = sheet.peak_flops
    dtype = _dtype(op)
    if group in _MATRIX_FAMILIES:
        if dtype == "float32" and "tf32" in peaks:
            # ONNX Runtime's CUDA provider uses TF32 by default (provider option use_tf32).
            return peaks["tf32"]
        if dtype == "bfloat16":
            return peaks.get("float16", peaks["float32"])
        if dtype in ("uint8", "int8"):
            return peaks.get("int8", peaks["float32"])
        if dtype.startswith("float8"):
            return peaks.get("float8", peaks.get("int8", peaks["float32"]))
        if dtype == "float64":
            return peaks.get("float64", max(peaks["float32"] // 2, 1))
        return peaks.get(dtype, peaks["float32"])
    # Tensor cores do matrix products only: everything else runs on the ordinary units.
    return max(peaks["float32"] // 2, 1) if dtype == "float64" else peaks["float32"]


def _dtype(op: OpContext) -> str:
    """Type that the arithmetic is done in: that of the first input, for quantised products too."""
    first = next((info for info in op.inputs if info is not None), None)
    return first.dtype if first is not None else "float32"


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
