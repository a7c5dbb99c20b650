"""Layer and root-mean-square normalisation that exporters write as several nodes."""

from __future__ import annotations

from dataclasses import dataclass

from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View, array_of, is_near, scalar_of, split_scalar


@dataclass(frozen=True)
class _Normal:
    """(x - mean) / sqrt(variance + epsilon), or the same without the mean."""

    x: Value
    epsilon: float
    centred: bool


def layer_normalization(node: Node, view: View) -> Rewrite | None:
    """normal(x) * scale + bias over the last axis is LayerNormalization."""
    if node.domain or node.op_type != "Add" or len(node.inputs) != 2 or node.outputs[0] is None:
        return None
    for bias, product in (node.inputs, node.inputs[::-1]):
        scaled = view.producer(product, "Mul")
        pair = _scaled_normal(scaled, view) if scaled is not None and _is_vector(bias) else None
        if pair is not None and pair[0].centred and _same_size(pair[1], bias):
            normal, scale = pair
            inputs = [normal.x, scale, bias]
            attributes = {"axis": -1, "epsilon": normal.epsilon}
            return Rewrite([view.node("LayerNormalization", inputs, node.outputs[0], node.name, **attributes)])
    return None


def rms_normalization(node: Node, view: View) -> Rewrite | None:
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis is RMSNormalization."""
    if node.domain or node.op_type != "Mul" or node.outputs[0] is None:
        return None
    pair = _scaled_normal(node, view)
    if pair is None or pair[0].centred:
        return None
    normal, scale = pair
    attributes = {"axis": -1, "epsilon": normal.epsilon}
    return Rewrite([view.node("RMSNormalization", [normal.x, scale], node.outputs[0], node.name, **attributes)])


def _scaled_normal(node: Node, view: View) -> tuple[_Normal, Value] | None:
    if len(node.inputs) != 2:
        return None
    for scale, value in (node.inputs, node.inputs[::-1]):
        normal = _normal(value, view) if _is_vector(scale) else None
        if normal is not None and scale is not None:
            return normal, scale
    return None


def _is_vector(value: Value | None) -> bool:
    """A constant of rank 1 that is as long as the last axis: a single element would only be spread over it."""
    shape = value.tensor.static_shape if value is not None and value.constant is not None and value.tensor else None
    return shape is not None and len(shape) == 1 and shape[0] > 1


def _same_size(a: Value, b: Value | None) -> bool:
    return b is not None and a.tensor is not None and b.tensor is not None and a.tensor.shape == b.tensor.shape


def _normal(value: Value | None, view: View) -> _Normal | None:
    """Numerator over the root of its own mean square."""
    node = view.producer(value, "Div", "Mul")
    if node is None or len(node.inputs) != 2:
        return None
    for numerator, root in _over_roots(node, view):
        total = view.producer(root.inputs[0], "Add") if root is not None else None
        parts = split_scalar(total) if total is not None else None
        if numerator is None or parts is None or not _is_mean_square(parts[0], numerator, view):
            continue
        epsilon = scalar_of(parts[1])
        centred = _centred(numerator, view)
        if epsilon is not None and epsilon >= 0:
            return _Normal(centred or numerator, epsilon, centred is not None)
    return None


def _over_roots(node: Node, view: View) -> list[tuple[Value | None, Node | None]]:
    """The ways to read a node as numerator / sqrt(...), or as numerator * (1 / sqrt(...))."""
    if node.op_type == "Div":
        return [(node.inputs[0], view.producer(node.inputs[1], "Sqrt"))]
    found: list[tuple[Value | None, Node | None]] = []
    for numerator, factor in (node.inputs, node.inputs[::-1]):
        inverse = view.producer(factor, "Reciprocal", "Div")
        if inverse is not None and inverse.op_type == "Reciprocal":
            found.append((numerator, view.producer(inverse.inputs[0], "Sqrt")))
        elif inverse is not None and scalar_of(inverse.inputs[0]) == 1:
            found.append((numerator, view.producer(inverse.inputs[1], "Sqrt")))
    return found


def _is_mean_square(value: Value, x: Value, view: View) -> bool:
    mean = view.producer(value, "ReduceMean")
    if mean is None or not _over_last_axis(mean):
        return False
    square = view.producer(mean.inputs[0], "Pow", "Mul")
    if square is None or square.inputs[0] is None:
        return False
    if square.op_type == "Pow":
        return _same(square.inputs[0], x, view) and is_near(square.inputs[1], 2.0, 1e-6)
    return _same(square.inputs[0], x, view) and square.inputs[1] is not None and _same(square.inputs[1], x, view)


def _same(a: Value, b: Value, view: View) -> bool:
    """The same value, or two nodes that subtract the same (exporters write the difference twice)."""
    if a == b:
        return True
    first, second = view.producer(a, "Sub"), view.producer(b, "Sub")
    return first is not None and second is not None and first.inputs == second.inputs


def _centred(value: Value, view: View) -> Value | None:
    """x where value = x - mean(x)."""
    node = view.producer(value, "Sub")
    mean = view.producer(node.inputs[1], "ReduceMean") if node is not None else None
    if node is None or mean is None or mean.inputs[0] != node.inputs[0] or not _over_last_axis(mean):
        return None
    return node.inputs[0]


def _over_last_axis(node: Node) -> bool:
    axes = array_of(node.inputs[1] if len(node.inputs) > 1 else None, 64)
    if axes is None or axes.size != 1 or node.attributes.get("keepdims", 1) != 1:
        return False
    axis, source = int(axes.reshape(-1)[0]), node.inputs[0]
    rank = source.tensor.rank if source is not None and source.tensor is not None else None
    return axis == -1 or (rank is not None and axis == rank - 1)
