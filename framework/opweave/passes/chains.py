"""Chains of nodes that move or convert data become one: Transpose, Reshape and its kin, Cast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opweave.dtypes import DType
from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View, array_of

_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def transpose_chain(node: Node, view: View) -> Rewrite | None:
    """Transpose(Transpose(x)) is one Transpose."""
    first = _before(node, view, "Transpose", "Transpose")
    outer, inner = node.attributes.get("perm"), first.attributes.get("perm") if first else None
    if first is None or outer is None or inner is None or len(outer) != len(inner):
        return None
    if any(not -len(inner) <= p < len(inner) for p in outer):
        return None
    perm = [inner[p] for p in outer]
    return Rewrite([replace(node, inputs=first.inputs, attributes={**node.attributes, "perm": perm})])


def reshape_chain(node: Node, view: View) -> Rewrite | None:
    """Reshape of a reshaped value needs only the last shape, unless that takes sizes over (a zero)."""
    if node.domain or node.op_type != "Reshape" or len(node.inputs) != 2:
        return None
    first = view.producer(node.inputs[0], *_RESHAPES)
    shape = array_of(node.inputs[1], 512)
    if first is None or first.inputs[0] is None or shape is None or (shape == 0).any():
        return None
    return Rewrite([replace(node, inputs=(first.inputs[0], node.inputs[1]))])


def cast_chain(node: Node, view: View) -> Rewrite | None:
    """A Cast to a type that holds every value of the one before needs no step in between."""
    first = _before(node, view, "Cast", "Cast")
    source = first.inputs[0] if first is not None else None
    if first is None or source is None or source.tensor is None:
        return None
    if not _is_lossless(source, first.attributes.get("to", 0)):
        return None
    return Rewrite([replace(node, inputs=(source,))])


def _is_lossless(source: Value, code: int) -> bool:
    if source.tensor is None or code not in DType.__members__.values():
        return False
    held, wider = source.tensor.dtype, DType(code)
    plain = not (
        held.is_extension or wider.is_extension or DType.STRING in (held, wider) or DType.BOOL in (held, wider)
    )
    if held in (DType.INT64, DType.UINT64) and wider.is_float:
        return False
    return plain and bool(np.can_cast(held.numpy, wider.numpy, "safe"))


def _before(node: Node, view: View, op_type: str, before: str) -> Node | None:
    if node.domain or node.op_type != op_type or not node.inputs:
        return None
    return view.producer(node.inputs[0], before)
