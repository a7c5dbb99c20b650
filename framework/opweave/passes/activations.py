"""Activations that exporters write as several nodes: GELU, Swish, HardSwish."""

from __future__ import annotations

import math

from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View, is_near, scalar_of, split_scalar


def gelu(node: Node, view: View) -> Rewrite | None:
    """0.5 * x * (1 + erf(x / sqrt 2)) or its tanh form is Gelu, in whatever order the factors stand."""
    if node.domain or node.op_type != "Mul" or node.outputs[0] is None:
        return None
    factors = _factors(node, view, depth=2)
    halves = [v for v in factors if is_near(v, 0.5)]
    rest = [v for v in factors if scalar_of(v) is None]
    if len(halves) != 1 or len(rest) != 2 or len(factors) != 3:
        return None
    for x, gate in (rest, rest[::-1]):
        form = _gate(gate, x, view)
        if form is not None:
            return Rewrite([view.node("Gelu", [x], node.outputs[0], node.name, approximate=form)])
    return None


def _factors(node: Node, view: View, depth: int) -> list[Value]:
    """The operands of a product of products; an inner product counts only where nothing else reads it."""
    found: list[Value] = []
    for value in node.inputs:
        inner = view.producer(value, "Mul") if depth else None
        if value is not None and inner is not None and view.only_reader(value) is node:
            found += _factors(inner, view, depth - 1)
        elif value is not None:
            found.append(value)
    return found


def _gate(gate: Value, x: Value, view: View) -> str | None:
    """Whether `gate` is 1 + erf(x / sqrt 2) ("none") or 1 + tanh(...) ("tanh")."""
    parts = _sum_with(view.producer(gate, "Add"), 1.0)
    erf = view.producer(parts, "Erf") if parts is not None else None
    if erf is not None and _is_scaled(erf.inputs[0], x, view, math.sqrt(0.5)):
        return "none"
    tanh = view.producer(parts, "Tanh") if parts is not None else None
    if tanh is not None and _is_tanh_argument(tanh.inputs[0], x, view):
        return "tanh"
    return None


def _sum_with(node: Node | None, number: float) -> Value | None:
    pair = split_scalar(node) if node is not None else None
    return pair[0] if pair is not None and is_near(pair[1], number) else None


def _is_scaled(value: Value | None, x: Value, view: View, factor: float) -> bool:
    """Whether value = x * factor."""
    node = view.producer(value, "Mul", "Div")
    if node is None:
        return False
    if node.op_type == "Div":
        return node.inputs[0] == x and is_near(node.inputs[1], 1 / factor)
    pair = split_scalar(node)
    return pair is not None and pair[0] == x and is_near(pair[1], factor)


def _is_tanh_argument(value: Value | None, x: Value, view: View) -> bool:
    """Whether value = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    node = view.producer(value, "Mul")
    pair = split_scalar(node) if node is not None else None
    if pair is None or not is_near(pair[1], math.sqrt(2 / math.pi)):
        return False
    total = view.producer(pair[0], "Add")
    if total is None or x not in total.inputs:
        return False
    cubic = total.inputs[1] if total.inputs[0] == x else total.inputs[0]
    product = view.producer(cubic, "Mul")
    if product is None:
        return False
    scaled = split_scalar(product)
    return scaled is not None and is_near(scaled[1], 0.044715) and _is_cube(scaled[0], x, view)


def _is_cube(value: Value, x: Value, view: View) -> bool:
    node = view.producer(value, "Pow", "Mul")
    if node is None:
        return False
    if node.op_type == "Pow":
        return node.inputs[0] == x and is_near(node.inputs[1], 3.0)
    factors = _factors(node, view, depth=1)
    return len(factors) == 3 and all(v == x for v in factors)


def swish(node: Node, view: View) -> Rewrite | None:
    """x * sigmoid(alpha * x) is Swish; x * HardSigmoid(x) with slope 1/6 and offset 1/2 is HardSwish."""
    if node.domain or node.op_type != "Mul" or len(node.inputs) != 2 or node.outputs[0] is None:
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        producer = view.producer(gate, "Sigmoid", "HardSigmoid")
        if producer is None or x is None:
            continue
        if producer.op_type == "Sigmoid":
            alpha = _alpha(producer.inputs[0], x, view)
            if alpha is None:
                continue
            attributes = {} if alpha == 1 else {"alpha": alpha}
            return Rewrite([view.node("Swish", [x], node.outputs[0], node.name, **attributes)])
        if producer.inputs[0] != x:
            continue
        slope, offset = producer.attributes.get("alpha", 0.2), producer.attributes.get("beta", 0.5)
        if abs(slope - 1 / 6) < 1e-6 and offset == 0.5:
            return Rewrite([view.node("HardSwish", [x], node.outputs[0], node.name)])
    return None


def _alpha(value: Value | None, x: Value, view: View) -> float | None:
    """The factor in value = factor * x."""
    if value == x:
        return 1.0
    node = view.producer(value, "Mul")
    pair = split_scalar(node) if node is not None else None
    return scalar_of(pair[1]) if pair is not None and pair[0] == x else None


def hard_swish(node: Node, view: View) -> Rewrite | None:
    """x * clip(x + 3, 0, 6) / 6 is HardSwish."""
    if node.domain or node.op_type not in ("Mul", "Div") or node.outputs[0] is None:
        return None
    product = _over_six(node, view)
    if product is None or len(product) != 2:
        return None
    for x, gate in (product, product[::-1]):
        if _is_clipped(gate, x, view):
            return Rewrite([view.node("HardSwish", [x], node.outputs[0], node.name)])
    return None


def _over_six(node: Node, view: View) -> list[Value] | None:
    """The two factors of a product divided by six."""
    if node.op_type == "Div":
        inner = view.producer(node.inputs[0], "Mul")
        if inner is None or not is_near(node.inputs[1], 6.0, 1e-6):
            return None
        return [v for v in inner.inputs if v is not None]
    factors = _factors(node, view, depth=1)
    sixths = [v for v in factors if is_near(v, 1 / 6, 1e-6)]
    if len(sixths) == 1 and len(factors) == 3:
        return [v for v in factors if v is not sixths[0]]
    for x, gate in (node.inputs, node.inputs[::-1]):
        divided = view.producer(gate, "Div")
        inner_gate = divided.inputs[0] if divided is not None and is_near(divided.inputs[1], 6.0, 1e-6) else None
        if x is not None and inner_gate is not None:
            return [x, inner_gate]
    return None


def _is_clipped(gate: Value, x: Value, view: View) -> bool:
    clip = view.producer(gate, "Clip")
    if clip is None or len(clip.inputs) != 3 or scalar_of(clip.inputs[1]) != 0 or scalar_of(clip.inputs[2]) != 6:
        return False
    return _sum_with(view.producer(clip.inputs[0], "Add"), 3.0) == x
