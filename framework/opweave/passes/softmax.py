"""The old Softmax, which saw a matrix, is the new one over the last axis where that was its row."""

from __future__ import annotations

from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View


def flat_softmax(node: Node, view: View) -> Rewrite | None:
    """Reshape(Softmax(Flatten(x, last axis)), Shape(x)) needs neither Flatten nor Reshape."""
    if node.domain or node.op_type != "Reshape" or node.outputs[0] is None or len(node.inputs) != 2:
        return None
    softmax = view.producer(node.inputs[0], "Softmax", "LogSoftmax", "Hardmax")
    flat = view.producer(softmax.inputs[0], "Flatten") if softmax is not None else None
    shape = view.producer(node.inputs[1], "Shape")
    if softmax is None or flat is None or shape is None or shape.inputs != flat.inputs or shape.attributes:
        return None
    x = flat.inputs[0]
    if x is None or not _is_last(flat, x) or softmax.attributes.get("axis", -1) not in (-1, 1):
        return None
    return Rewrite([view.node(softmax.op_type, [x], node.outputs[0], node.name, axis=-1)])


def _is_last(flat: Node, x: Value) -> bool:
    rank = x.tensor.rank if x.tensor is not None else None
    axis = flat.attributes.get("axis", 1)
    return rank is not None and rank > 0 and axis in (-1, rank - 1)
