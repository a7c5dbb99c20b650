"""Nodes that give back what they get: Identity, Dropout at inference, a Cast to the same type, a product with one ..."""

from __future__ import annotations

from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View, array_of, scalar_of

_OF_ONE = ("Concat", "Sum", "Max", "Min", "Mean")


def identity(node: Node, view: View) -> Rewrite | None:
    """Reads of the result become reads of the input."""
    source = node.inputs[0] if node.inputs else None
    if node.domain or source is None or not node.outputs or node.outputs[0] is None or not _is_identity(node, view):
        return None
    result = node.outputs[0]
    if source.constant is not None and view.is_top and view.is_output(result):
        return Rewrite(values={result.name: Value(result.name, source.type or result.type, source.constant)})
    return Rewrite(values={result.name: source})


def _is_identity(node: Node, view: View) -> bool:
    match node.op_type:
        case "Identity":
            return True
        case "Dropout":
            return _is_inference(node, view)
        case "Cast":
            value = node.inputs[0]
            return (
                value is not None and value.tensor is not None and node.attributes.get("to") == int(value.tensor.dtype)
            )
        case "Transpose":
            perm = node.attributes.get("perm")
            return perm is not None and list(perm) == list(range(len(perm)))
        case "Mul" | "Div" | "Pow":
            return _is_neutral(node, 1)
        case "Sub":
            return _is_neutral(node, 0)
        case "Pad":
            pads = array_of(node.inputs[1] if len(node.inputs) > 1 else None, 1024)
            return pads is not None and not pads.any()
    return node.op_type in _OF_ONE and len(node.inputs) == 1


def _is_neutral(node: Node, number: float) -> bool:
    """Whether the second operand is that number, and neither its type nor its shape changes the first."""
    first, second = node.inputs
    if first is None or second is None or scalar_of(second) != number or first.tensor is None or second.tensor is None:
        return False
    rank, other = first.tensor.rank, second.tensor.rank
    if first.tensor.dtype is not second.tensor.dtype or other is None:
        return False
    return other == 0 or (rank is not None and other <= rank)


def _is_inference(node: Node, view: View) -> bool:
    if any(v is not None and view.is_used(v) for v in node.outputs[1:]):
        return False
    training = node.inputs[2] if len(node.inputs) > 2 else None
    return training is None or scalar_of(training) == 0
