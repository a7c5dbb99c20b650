"""Scaled dot-product attention (Vaswani et al. 2017) that exporters write as products around a Softmax is Attention.

Only where all is certain: four dimensions, sizes that are known not to broadcast, and nothing else that reads the scores;
so mostly in a graph whose sizes are known. The transposition of the keys is undone: Attention takes them as rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View, scalar_of, split_scalar
from opweave.types import Dim, TensorType

_TRANSPOSED = [0, 1, 3, 2]
_FROM_ROWS = [0, 2, 3, 1]  # (batch, sequence, heads, size) to transposed keys
_HEADS_FIRST = [0, 2, 1, 3]


@dataclass(frozen=True)
class _Scores:
    """scale * query @ transposed + mask."""

    query: Value
    transposed: Value
    scale: float
    mask: Value | None


def attention(node: Node, view: View) -> Rewrite | None:
    """softmax(scale * Q K^T + mask) V."""
    if node.domain or node.op_type != "MatMul" or node.outputs[0] is None:
        return None
    softmax = _sole(node.inputs[0], node, view, "Softmax")
    value = node.inputs[1]
    if softmax is None or value is None or not _over_last(softmax):
        return None
    scores = _scores(softmax, view)
    if scores is None or not all(_is_four(v) for v in (scores.query, scores.transposed, value)):
        return None
    keys = _keys(scores, view)
    if keys is None or not _agree(scores, value):
        return None
    nodes, key = keys
    inputs = [scores.query, key, value, scores.mask]
    made = view.node("Attention", inputs[: 4 if scores.mask else 3], node.outputs[0], node.name, scale=scores.scale)
    return Rewrite([*nodes, made])


def _sole(value: Value | None, reader: Node, view: View, *op_types: str) -> Node | None:
    """The producer of a value that only `reader` reads."""
    if value is None or view.only_reader(value) is not reader:
        return None
    return view.producer(value, *op_types)


def _over_last(softmax: Node) -> bool:
    value = softmax.inputs[0]
    rank = value.tensor.rank if value is not None and value.tensor is not None else None
    return rank == 4 and softmax.attributes.get("axis", -1) in (-1, 3)


def _scores(softmax: Node, view: View) -> _Scores | None:
    source = _sole(softmax.inputs[0], softmax, view, "Add", "Mul", "Div", "MatMul")
    if source is None or source.op_type != "Add" or len(source.inputs) != 2:
        return _product(source, view, None)
    for value, mask in (source.inputs, source.inputs[::-1]):
        found = _product(_sole(value, source, view, "Mul", "Div", "MatMul"), view, mask)
        if found is not None and mask is not None and _is_four(found.transposed) and _is_mask(mask, found):
            return found
    return None


def _product(node: Node | None, view: View, mask: Value | None) -> _Scores | None:
    """The product of queries and keys, whatever scales stand behind and before it."""
    scale = 1.0
    while node is not None and node.op_type in ("Mul", "Div"):
        scaled = _without_scale(node)
        if scaled is None:
            return None
        value, factor = scaled
        node, scale = _sole(value, node, view, "Mul", "Div", "MatMul"), scale * factor
    if node is None:
        return None
    query, transposed = node.inputs
    if query is None or transposed is None:
        return None
    query, first = _unscaled(query, view)
    transposed, second = _unscaled(transposed, view)
    return _Scores(query, transposed, scale * first * second, mask)


def _without_scale(node: Node) -> tuple[Value, float] | None:
    if node.op_type == "Div":
        number = scalar_of(node.inputs[1])
        return (node.inputs[0], 1 / number) if node.inputs[0] is not None and number else None
    pair = split_scalar(node)
    number = scalar_of(pair[1]) if pair is not None else None
    return (pair[0], number) if pair is not None and number is not None else None


def _unscaled(value: Value, view: View) -> tuple[Value, float]:
    """What a scaling by a constant was applied to, and the constant."""
    node = view.producer(value, "Mul", "Div")
    scaled = _without_scale(node) if node is not None else None
    return scaled if scaled is not None and _is_four(scaled[0]) else (value, 1.0)


def _keys(scores: _Scores, view: View) -> tuple[list[Node], Value] | None:
    """Keys as rows: what was transposed, or the transposition of another order."""
    node = view.producer(scores.transposed, "Transpose")
    source = node.inputs[0] if node is not None else None
    if node is None or source is None:
        return None
    perm = node.attributes.get("perm")
    if perm == _TRANSPOSED:
        return [], source
    if perm == _FROM_ROWS:
        key = view.value(Value(f"{source.name}_heads", _permuted(source)))
        return [view.node("Transpose", [source], key, f"{node.name}_heads", perm=_HEADS_FIRST)], key
    return None


def _permuted(rows: Value) -> TensorType | None:
    """The type of keys with their heads in front."""
    if rows.tensor is None or rows.tensor.shape is None or len(rows.tensor.shape) != 4:
        return None
    return TensorType(rows.tensor.dtype, tuple(rows.tensor.shape[axis] for axis in _HEADS_FIRST))


def _is_four(value: Value) -> bool:
    return value.tensor is not None and value.tensor.rank == 4 and value.tensor.dtype.is_float


def _is_mask(mask: Value, scores: _Scores) -> bool:
    """Of the type of the scores, with two to four dimensions, the last of which is that of the keys."""
    shape = mask.tensor.shape if mask.tensor is not None else None
    query, keys = scores.query.tensor, scores.transposed.tensor
    if shape is None or mask.tensor is None or query is None or keys is None or keys.shape is None:
        return False
    return mask.tensor.dtype is query.dtype and 2 <= len(shape) <= 4 and _same((shape[-1], keys.shape[-1]))


def _agree(scores: _Scores, value: Value) -> bool:
    """Batch and heads are the same everywhere: the products would broadcast them, Attention does not."""
    shapes = [
        v.tensor.shape for v in (scores.query, scores.transposed, value) if v.tensor is not None and v.tensor.shape
    ]
    return all(_same([shape[axis] for shape in shapes]) for axis in (0, 1))


def _same(sizes: Sequence[Dim]) -> bool:
    return None not in sizes and len(set(sizes)) == 1
