"""Which operators ONNX Runtime executes as one kernel.

A description of what its graph optimiser does at ORT_ENABLE_ALL, made from its public sources (version 1.32:
``core/optimizer``: conv_bn_fusion, conv_add_fusion, conv_mul_fusion, conv_activation_fusion, conv_add_act_fusion,
nchwc_transformer, matmul_add_fusion, matmul_transpose_fusion, matmul_scale_fusion, gemm_activation_fusion, gelu_fusion,
bias_gelu_fusion, quick_gelu_fusion, layer_norm_fusion, skip_layer_norm_fusion, qdq_transformer). It decides costs only:
what a session really fuses is ONNX Runtime's business.

Every group has one exit: values made inside are read only inside, except those of its last operator. A path that leaves
through the exit starts at the last operator in topological order and cannot come back, so every group is convex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.cost.flops import is_view
from planner.cost.patterns import gelu, layer_norm, quick_gelu
from planner.cost.wiring import Wiring
from planner.graph.op_graph import Op, OpContext, OpGraph

DeviceType = Literal["cpu", "cuda"]

_CPU_ACTIVATIONS = frozenset(("Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"))
# Channels a block: 8 with AVX2, 16 with AVX-512. Costs must not depend on the machine that plans.
_BLOCK = 8
_CUDA_ACTIVATIONS = frozenset(("Relu",))
_QUANTIZED = frozenset(
    (
        "Conv", "MatMul", "Gemm", "Add", "Mul", "AveragePool", "GlobalAveragePool", "MaxPool", "Concat", "Sigmoid",
        "LeakyRelu", "Softmax", "Resize", "Split", "Where", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten",
        "Gather", "Relu", "Clip",
    )
)  # fmt: skip


@dataclass(slots=True)
class _Group:
    """A group while it is built.

    Attributes:
        members: positions of operators, ascending once finished.
        stage: what may still follow: ``conv``, ``conv-sum``, ``matmul``, ``gemm``, ``transpose``, ``add`` or ``done``.
    """

    members: list[int]
    stage: str

    @property
    def exit(self) -> int:
        return max(self.members)


def fused_groups(graph: OpGraph, device_type: DeviceType) -> tuple[tuple[int, ...], ...]:
    """Partition of a graph's operators into the groups that ONNX Runtime runs as one kernel each.

    Args:
        graph: operators in topological order.
        device_type: which execution provider.

    Returns:
        Positions in ``graph.ops``, ascending in each group; groups ordered by their last operator; every operator in
        exactly one group. Every group is convex.
    """
    return _Fuser(graph, device_type).run()


class _Fuser:
    def __init__(self, graph: OpGraph, device_type: DeviceType) -> None:
        self._wiring = Wiring(graph)
        self._ops = graph.ops
        self._graph = graph
        self._cpu = device_type == "cpu"
        self._activations = _CPU_ACTIVATIONS if self._cpu else _CUDA_ACTIVATIONS
        self._groups: dict[int, _Group] = {}  # by every member

    def run(self) -> tuple[tuple[int, ...], ...]:
        for members in self._patterns():
            if all(member not in self._groups for member in members) and self._wiring.closed(members):
                self._add(_Group(sorted(members), "done"))
        for position, op in enumerate(self._ops):
            if position not in self._groups:
                self._add(_Group([position], _initial_stage(op)))
                self._grow(position, op)
        if self._cpu:
            self._join_dequantized()
        unique = {id(group): group for group in self._groups.values()}.values()
        return tuple(sorted((tuple(sorted(group.members)) for group in unique), key=lambda members: members[-1]))

    def _patterns(self) -> Iterator[list[int]]:
        """Sets of operators that become one fused operator, largest first where they overlap."""
        makers: dict[str, tuple[Callable[[Wiring, int], list[list[int]]], ...]] = {
            "Div": (layer_norm,),
            "Erf": (gelu,),
            "Sigmoid": (quick_gelu,),
        }
        for position, op in enumerate(self._ops):
            for maker in makers.get(op.op_type, ()):
                yield from maker(self._wiring, position)

    def _add(self, group: _Group) -> None:
        for member in group.members:
            self._groups[member] = group

    def _grow(self, position: int, op: Op) -> None:
        """Join the operator to the group of one producer, or producers to it."""
        context = self._graph.context(op)
        producers = self._wiring.producers_of(position)
        if is_view(context):
            # A view is one of its first input; the others (a Reshape's target) are not part of it.
            producers = [p for p in producers if op.inputs[:1] and op.inputs[0] in self._ops[p].writes]
        for producer in producers:
            group = self._groups[producer]
            # Values made before the exit are read inside the group already.
            if producer != group.exit or not self._wiring.closed((producer, position)):
                continue
            stage = self._next_stage(group, context, position)
            if stage:
                merged = self._groups[position]
                merged.members = group.members + merged.members
                merged.stage = stage
                self._add(merged)
                # A MatMul may take in a Transpose of either operand; everything else has one predecessor.
                if stage != "matmul":
                    return

    def _next_stage(self, group: _Group, context: OpContext, position: int) -> str:
        """Stage after the operator has joined the group; empty if it is not fused into it."""
        kind, stage = context.op.op_type, group.stage
        if context.op.domain:
            return ""
        if is_view(context):
            # ONNX Runtime removes Identity and inference Dropout; behind other views fusion ends.
            return stage if kind in ("Identity", "Dropout") else "done"
        if kind == "MatMul" and stage == "transpose":
            return "matmul"
        if stage in ("conv", "conv-sum") and self._activates(context):
            return "done"
        if stage == "conv":
            if _folds_into_conv(context):
                return "conv"
            if kind in ("Add", "Sum") and self._is_residual(group, context, position):
                return "conv-sum"
        if stage == "matmul":
            if kind in ("Mul", "Div") and _scalar_weight(context):
                return "matmul"
            if kind == "Add" and self._is_gemm_bias(group, context):
                return "gemm"
        if stage == "add" and kind == "LayerNormalization":
            return "done" if _is_skip(self._graph.context(self._ops[group.exit])) else ""
        if stage == "gemm" and self._cpu and self._activates(context):
            return "done"
        return "done" if self._cpu and kind == "QuantizeLinear" and self._is_dequantized(group) else ""

    def _activates(self, context: OpContext) -> bool:
        kind = context.op.op_type
        return kind in self._activations and (kind != "Clip" or all(context.weights[1:]))

    def _is_residual(self, group: _Group, context: OpContext, position: int) -> bool:
        """A sum of two equal shapes; CUDA fuses it only together with a Relu, CPU only in the blocked layout."""
        shapes = [info.dims for info in context.inputs if info is not None]
        if len(shapes) != 2 or shapes[0] != shapes[1] or any(context.weights):
            return False
        if self._cpu:
            return _is_blocked(self._graph.context(self._ops[group.members[0]]))
        after = self._wiring.only_reader(position)
        return after is not None and self._ops[after].op_type == "Relu"

    def _is_gemm_bias(self, group: _Group, context: OpContext) -> bool:
        """MatMul + Add becomes Gemm if the product is of two matrices and the bias broadcasts to it."""
        product = next((p for p in group.members if self._ops[p].op_type == "MatMul"), None)
        if product is None:
            return False
        inputs = self._graph.context(self._ops[product]).inputs
        flat = all(info is not None and len(info.dims) == 2 for info in inputs)
        return flat and all(info is not None and len(info.dims) <= 2 for info in context.inputs)

    def _is_dequantized(self, group: _Group) -> bool:
        """Whether all data that the group computes on comes out of DequantizeLinear."""
        first = self._ops[group.members[0]]
        if first.op_type not in _QUANTIZED:
            return False
        made = {name for member in group.members for name in self._ops[member].writes}
        sources = [name for member in group.members for name in self._ops[member].inputs if name and name not in made]
        return any(self._made_by(name) == "DequantizeLinear" for name in sources) and all(
            self._made_by(name) in ("DequantizeLinear", "") for name in sources
        )

    def _made_by(self, name: str) -> str:
        """Type of the operator that makes a value; empty for weights and inputs."""
        producer = self._wiring.maker.get(name)
        return "" if producer is None else self._ops[producer].op_type

    def _join_dequantized(self) -> None:
        """DequantizeLinear joins its only reader where that became one quantised kernel."""
        for position in range(len(self._ops) - 1, -1, -1):
            reader = self._wiring.only_reader(position)
            if self._ops[position].op_type != "DequantizeLinear" or reader is None:
                continue
            group = self._groups[reader]
            own = self._groups[position]
            quantized = any(self._ops[member].op_type == "QuantizeLinear" for member in group.members[1:])
            if quantized and own is not group and own.members == [position]:
                group.members = [position, *group.members]
                self._add(group)


def _initial_stage(op: Op) -> str:
    if op.domain:
        return "done"
    if op.op_type == "Transpose":
        perm = op.attr("perm")
        if perm is not None:
            rank = len(perm)
            swapped = (*range(rank - 2), rank - 1, rank - 2)
            return "transpose" if rank >= 2 and tuple(perm) == swapped else "done"
        return "done"
    return {"Conv": "conv", "MatMul": "matmul", "Gemm": "gemm", "Add": "add"}.get(op.op_type, "done")


def _is_blocked(conv: OpContext) -> bool:
    """Whether a Conv runs in MLAS's blocked channel layout (NCHWc) on CPU."""
    weight = conv.inputs[1]
    if weight is None or len(weight.dims) != 4 or weight.dtype != "float32" or not conv.weights[1]:
        return False
    groups = int(conv.op.attr("group", 1))
    made, read = weight.dims[:2]
    if groups == 1:
        return True
    if read == 1 and made == groups:
        return made % _BLOCK == 0
    return read % _BLOCK == 0 and made % groups == 0 and made // groups % _BLOCK == 0


def _folds_into_conv(context: OpContext) -> bool:
    """Batch normalisation, or a product or sum with one constant a channel: folded into weights and bias."""
    if context.op.op_type == "BatchNormalization":
        used = [name for name in context.op.outputs if name]
        return all(context.weights[1:5]) and len(used) == 1
    if context.op.op_type not in ("Add", "Mul"):
        return False
    constants = [info for info, weight in zip(context.inputs, context.weights, strict=True) if weight and info]
    output = context.outputs[0]
    if len(constants) != 1 or output is None or len(output.dims) < 3:
        return False
    # The constant lies along the channels if all dimensions but the second are 1.
    padded = (1,) * (len(output.dims) - len(constants[0].dims)) + constants[0].dims
    return all(size == 1 for axis, size in enumerate(padded) if axis != 1)


def _is_skip(add: OpContext) -> bool:
    """A residual Add that layer normalisation takes in: two equal shapes of rank 2 or 3, neither a weight."""
    shapes = [info.dims for info in add.inputs if info is not None]
    return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) in (2, 3) and not any(add.weights)


def _scalar_weight(context: OpContext) -> bool:
    pairs: Sequence[tuple[bool, int]] = [
        (weight, info.num_elements) for info, weight in zip(context.inputs, context.weights, strict=True) if info
    ]
    if context.op.op_type == "Div" and (len(pairs) != 2 or not pairs[1][0]):
        return False
    return any(weight and elements == 1 for weight, elements in pairs)
