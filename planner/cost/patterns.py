"""Formulas written out in small operators that ONNX Runtime replaces by one.

A matcher gets the position of a telling operator, and returns candidate sets of positions, largest first.
"""

from __future__ import annotations

from planner.cost.wiring import Wiring


def gelu(wiring: Wiring, erf: int) -> list[list[int]]:
    """``x * 0.5 * (1 + erf(x / sqrt 2))`` in either order of the factors, and the bias Add in front of it."""
    ops = wiring.graph.ops
    scale = wiring.made_by(ops[erf].inputs[0], "Div", "Mul")
    plus = wiring.next(erf, "Add")
    product = None if plus is None else wiring.next(plus, "Mul")
    if scale is None or plus is None or product is None or not wiring.has_weight(plus):
        return []
    sources = wiring.variable_inputs(scale)
    if len(sources) != 1:
        return []
    source = sources[0]
    other = next((name for name in ops[product].inputs if name != ops[plus].outputs[0]), "")
    half = wiring.made_by(other, "Mul")
    after = wiring.next(product, "Mul")
    if other == source and after is not None and wiring.has_weight(after):
        members = [scale, erf, plus, product, after]
    elif half is not None and wiring.variable_inputs(half) == [source] and wiring.has_weight(half):
        members = [scale, erf, plus, product, half]
    else:
        return []
    bias = wiring.made_by(source, "Add")
    if bias is not None and wiring.has_weight(bias):
        return [[bias, *members], members]
    return [members]


def quick_gelu(wiring: Wiring, sigmoid: int) -> list[list[int]]:
    """``x * sigmoid(a x)``, with or without the factor."""
    ops = wiring.graph.ops
    product = wiring.next(sigmoid, "Mul")
    if product is None:
        return []
    source = ops[sigmoid].inputs[0]
    others = [name for name in ops[product].inputs if name != ops[sigmoid].outputs[0]]
    if others == [source]:
        return [[sigmoid, product]]
    scale = wiring.made_by(source, "Mul")
    if scale is not None and wiring.has_weight(scale) and wiring.variable_inputs(scale) == others:
        return [[scale, sigmoid, product]]
    return []


def layer_norm(wiring: Wiring, div: int) -> list[list[int]]:
    """``(x - mean) / sqrt(mean((x - mean)^2) + eps)``, with scale, bias, and the residual Add in front of it."""
    ops = wiring.graph.ops
    if len(ops[div].inputs) != 2:
        return []
    centred = wiring.made_by(ops[div].inputs[0], "Sub")
    root = wiring.made_by(ops[div].inputs[1], "Sqrt")
    plus = None if root is None else wiring.made_by(ops[root].inputs[0], "Add")
    if centred is None or root is None or plus is None or len(wiring.variable_inputs(plus)) != 1:
        return []
    variance = wiring.made_by(wiring.variable_inputs(plus)[0], "ReduceMean")
    square = None if variance is None else wiring.made_by(ops[variance].inputs[0], "Pow", "Mul")
    mean = wiring.made_by(ops[centred].inputs[1], "ReduceMean")
    if variance is None or square is None or mean is None:
        return []
    squared = list(dict.fromkeys(wiring.variable_inputs(square)))
    source = ops[centred].inputs[0]
    if squared != [ops[centred].outputs[0]] or ops[mean].inputs[0] != source:
        return []
    members = [mean, centred, square, variance, plus, root, div]
    scale = wiring.next(div, "Mul")
    if scale is not None and wiring.has_weight(scale):
        members.append(scale)
        bias = wiring.next(scale, "Add")
        if bias is not None and wiring.has_weight(bias):
            members.append(bias)
    residual = wiring.made_by(source, "Add")
    if residual is not None:
        return [[residual, *members], members]
    return [members]
