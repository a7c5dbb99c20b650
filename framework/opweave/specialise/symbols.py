"""Integer tensors that are known in part: the shape of a value with symbols, and what models compute from it.

Only what exporters write to build target shapes: elements are picked, joined and reshaped; arithmetic is followed where
it leaves an element as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from opweave.graph import Node, Value
from opweave.specialise.rules import Contradiction, broadcast
from opweave.specialise.scope import Dims, small_data
from opweave.types import Dim, Shape

_LIMIT = 64


Known: TypeAlias = Mapping[str, Dims]


def dims_of(value: Value | None, known: Known) -> Dims | None:
    """What is known of the elements of a value: those of a small integer constant, or propagated ones."""
    if value is None:
        return None
    if value.name in known:
        return known[value.name]
    data = small_data(value)
    if data is None or data.ndim > 1 or data.size > _LIMIT or data.dtype.kind not in "iu":
        return None
    return Dims(tuple(int(x) for x in data.ravel()), data.ndim == 1)


def propagate(node: Node, known: Known) -> Dims | None:
    """What is known of the elements of the node's first output."""
    if node.domain or not node.inputs or node.op_type not in _RULES:
        return None
    return _RULES[node.op_type](node, known)


def _shape(node: Node, _known: Known) -> Dims | None:
    value = node.inputs[0]
    shape = value.tensor.shape if value is not None and value.tensor else None
    if shape is None:
        return None
    rank, end = len(shape), node.attributes.get("end")
    bounds = [
        min(max(b + rank if b < 0 else b, 0), rank)
        for b in (node.attributes.get("start", 0), rank if end is None else end)
    ]
    return Dims(shape[bounds[0] : bounds[1]])


def _same_items(node: Node, known: Known) -> Dims | None:
    """Cast, Identity: elements and rank stay."""
    return dims_of(node.inputs[0], known)


def _unsqueeze(node: Node, known: Known) -> Dims | None:
    found = dims_of(node.inputs[0], known)
    axes = small_data(node.inputs[1]) if len(node.inputs) > 1 else None
    return Dims(found.items) if found and not found.vector and axes is not None and axes.size == 1 else None


def _squeeze(node: Node, known: Known) -> Dims | None:
    found = dims_of(node.inputs[0], known)
    return Dims(found.items, vector=False) if found and found.vector and len(found.items) == 1 else None


def _reshape(node: Node, known: Known) -> Dims | None:
    found, target = dims_of(node.inputs[0], known), small_data(node.inputs[1])
    return Dims(found.items, vector=target.size == 1) if found and target is not None and target.size < 2 else None


def _gather(node: Node, known: Known) -> Dims | None:
    found, indices = dims_of(node.inputs[0], known), small_data(node.inputs[1])
    if found is None or not found.vector or indices is None or indices.ndim > 1:
        return None
    count = len(found.items)
    places = [int(i) for i in indices.ravel()]
    if any(not -count <= i < count for i in places):
        return None
    return Dims(tuple(found.items[i] for i in places), indices.ndim == 1)


def _concat(node: Node, known: Known) -> Dims | None:
    parts = [dims_of(v, known) for v in node.inputs]
    items: list[Dim] = []
    for part in parts:
        if part is None or not part.vector:
            return None
        items += part.items
    return Dims(tuple(items)) if len(items) <= _LIMIT else None


def _slice(node: Node, known: Known) -> Dims | None:
    found = dims_of(node.inputs[0], known)
    bounds = [small_data(v) for v in node.inputs[1:]]
    if found is None or not found.vector or any(b is None for b in bounds):
        return None
    numbers = [int(b[0]) for b in bounds if b is not None and b.size == 1]
    if len(numbers) != len(bounds) or len(numbers) < 2 or (len(numbers) > 2 and numbers[2] not in (0, -1)):
        return None
    step = numbers[3] if len(numbers) > 3 else 1
    return Dims(found.items[numbers[0] : numbers[1] : step]) if step > 0 else None


_Combine: TypeAlias = Callable[[Dim, Dim], Dim]


def _elementwise(combine: _Combine) -> Callable[[Node, Known], Dims | None]:
    def rule(node: Node, known: Known) -> Dims | None:
        a, b = (dims_of(v, known) for v in node.inputs[:2])
        if a is None or b is None or 1 not in (len(a.items), len(b.items), 1 if len(a.items) == len(b.items) else 0):
            return None
        count = max(len(a.items), len(b.items))
        left, right = (x.items * count if len(x.items) == 1 else x.items for x in (a, b))
        return Dims(tuple(combine(x, y) for x, y in zip(left, right, strict=True)), a.vector or b.vector)

    return rule


def _add(x: Dim, y: Dim) -> Dim:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    return y if x == 0 else x if y == 0 else None


def _subtract(x: Dim, y: Dim) -> Dim:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    return x if y == 0 else None


def _multiply(x: Dim, y: Dim) -> Dim:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return y if x == 1 else x if y == 1 else None


def _divide(x: Dim, y: Dim) -> Dim:
    if isinstance(x, int) and isinstance(y, int) and y > 0 and x >= 0:
        return x // y
    return x if y == 1 else None


_RULES: Mapping[str, Callable[[Node, Known], Dims | None]] = {
    "Shape": _shape,
    "Cast": _same_items,
    "Identity": _same_items,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Add": _elementwise(_add),
    "Sub": _elementwise(_subtract),
    "Mul": _elementwise(_multiply),
    "Div": _elementwise(_divide),
}


def target_shape(node: Node, known: Known) -> Shape | None:
    """The output shape of Reshape, Expand or ConstantOfShape from a target that is known in part."""
    position = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}.get(node.op_type)
    if node.domain or position is None or len(node.inputs) <= position:
        return None
    target = dims_of(node.inputs[position], known)
    if target is None or not target.vector:
        return None
    if node.op_type == "ConstantOfShape":
        return target.items
    first = node.inputs[0]
    source = first.tensor.shape if first is not None and first.tensor else None
    if node.op_type == "Expand":
        return _expanded(source, target.items)
    return _reshaped(source, target.items, bool(node.attributes.get("allowzero", 0)))


def _expanded(source: Shape | None, target: tuple[Dim, ...]) -> Shape | None:
    try:
        return broadcast(source, target)
    except Contradiction:
        return None


def _reshaped(source: Shape | None, target: tuple[Dim, ...], keep_zero: bool) -> Shape:
    shape = list(target)
    for i, size in enumerate(target):
        if size == 0 and not keep_zero:
            shape[i] = source[i] if source is not None and i < len(source) else None
    if shape.count(-1) == 1 and source is not None:
        shape[shape.index(-1)] = _quotient(source, [d for d in shape if d != -1])
    return tuple(None if d == -1 else d for d in shape)


def _quotient(whole: Sequence[Dim], parts: Sequence[Dim]) -> Dim:
    """The size that is left: symbols that stand on both sides cancel."""
    left, over = list(whole), []
    for part in parts:
        if isinstance(part, str) and part in left:
            left.remove(part)
        else:
            over.append(part)
    symbols = [d for d in left if not isinstance(d, int)]
    if any(not isinstance(d, int) for d in over) or len(symbols) > 1:
        return None
    total, divisor = _product(left), _product(over)
    if symbols:
        return symbols[0] if total == divisor else None
    return total // divisor if divisor and total % divisor == 0 else None


def _product(sizes: Sequence[Dim]) -> int:
    total = 1
    for size in sizes:
        total *= size if isinstance(size, int) else 1
    return total
