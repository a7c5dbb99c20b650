"""Types through the operators that have bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from opweave.dtypes import DType
from opweave.graph import Graph, Node, Value
from opweave.specialise.scope import Scope, small_data, without_shapes
from opweave.types import Dim, OptionalType, SequenceType, TensorType, Type

_ROUNDS = (4, 2, 1)
"""How often types are widened before shapes are given up, by depth: loops in loops must not multiply without end."""


def _body(body: Graph, inputs: Sequence[Type | None], scope: Scope, loops: int = 0) -> tuple[Graph, Scope]:
    """The body for inputs of these types (declared ones where None), and what is known inside."""
    from opweave.specialise.forward import forward

    inner = scope.body(loops)
    typed = tuple(
        replace(v, type=t if t is not None else without_shapes(v.type))
        for v, t in zip(body.inputs, [*inputs, *[None] * len(body.inputs)], strict=False)
    )
    inner.values.update((v.name, v) for v in typed)
    nodes, outputs = forward(body, inner)
    return replace(body, inputs=typed, outputs=outputs, nodes=nodes), inner


def captured(body: Graph, scope: Scope) -> Graph:
    """A body whose input types are not known: only what it captures is."""
    return _body(body, [], scope)[0]


def join(a: Type | None, b: Type | None) -> Type | None:
    """A type that holds values of both; None where there is none."""
    if a == b or a is None or b is None:
        return a if a == b else None
    match a, b:
        case TensorType(), TensorType() if a.dtype == b.dtype:
            if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
                return TensorType(a.dtype)
            return TensorType(a.dtype, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))
        case SequenceType(), SequenceType():
            element = join(a.element, b.element)
            return None if element is None else SequenceType(element)
        case OptionalType(), OptionalType():
            element = join(a.element, b.element)
            return None if element is None else OptionalType(element)
    return None


def _finished(node: Node, scope: Scope, bodies: Mapping[str, Graph], types: Sequence[Type | None]) -> Node:
    outputs = tuple(None if v is None else scope.write(v, t) for v, t in zip(node.outputs, types, strict=False))
    return replace(node, outputs=outputs, attributes={**node.attributes, **bodies})


def _if(node: Node, scope: Scope) -> Node:
    bodies = {name: _body(node.attributes[name], [], scope)[0] for name in ("then_branch", "else_branch")}
    pairs = zip(bodies["then_branch"].outputs, bodies["else_branch"].outputs, strict=False)
    return _finished(node, scope, bodies, [join(a.type, b.type) for a, b in pairs])


def _stable(
    body: Graph,
    leading: Sequence[Type],
    carried: list[Type | None],
    trailing: Sequence[Type | None],
    scope: Scope,
    at: int,
) -> tuple[Graph, list[Type | None]]:
    """The body with carried types that its own results keep, found by widening them; results start at output `at`."""
    for _ in range(_ROUNDS[scope.loops] if scope.loops < len(_ROUNDS) else 0):
        made, _ = _body(body, [*leading, *carried, *trailing], scope, loops=1)
        wider = [join(t, v.type) for t, v in zip(carried, made.outputs[at:], strict=False)]
        if wider == carried:
            return made, carried
        carried = wider
    carried = [without_shapes(t) for t in carried]
    return _body(body, [*leading, *carried, *trailing], scope, loops=1)[0], carried


def _loop(node: Node, scope: Scope) -> Node:
    body: Graph = node.attributes["body"]
    initial = [v.type if v else None for v in node.inputs[2:]]
    leading = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]
    made, carried = _stable(body, leading, initial, [], scope, 1)
    length = _trip_count(node, made)
    scans = [_stacked(v, length, 0) for v in made.outputs[1 + len(carried) :]]
    return _finished(node, scope, {"body": made}, [*carried, *scans])


def _trip_count(node: Node, body: Graph) -> Dim:
    """The number of iterations where only the limit ends the loop."""
    limit, start = small_data(node.inputs[0] if node.inputs else None), node.inputs[1] if len(node.inputs) > 1 else None
    going = body.outputs[0]
    always = going.name == body.inputs[1].name or _is_true(going)
    if limit is None or limit.size != 1 or not always or not (start is None or _is_true(start)):
        return None
    return max(int(limit.reshape(())), 0)


def _is_true(value: Value) -> bool:
    data = small_data(value)
    return data is not None and data.size == 1 and bool(np.all(data))


def _stacked(value: Value, length: Dim, axis: int) -> Type | None:
    kind = value.tensor
    if kind is None or kind.shape is None:
        return kind
    shape = list(kind.shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, length)
    return TensorType(kind.dtype, tuple(shape))


def _scan(node: Node, scope: Scope) -> Node:
    body: Graph = node.attributes["body"]
    if node.version == 8:
        return _finished(node, scope, {"body": captured(body, scope)}, [None] * len(node.outputs))
    count = int(node.attributes["num_scan_inputs"])
    states = len(node.inputs) - count
    axes = [int(a) for a in node.attributes.get("scan_input_axes") or [0] * count]
    items = [_item(v.type if v else None, a) for v, a in zip(node.inputs[states:], axes, strict=True)]
    initial = [v.type if v else None for v in node.inputs[:states]]
    made, carried = _stable(body, [], initial, [t for t, _ in items], scope, 0)
    length = next((n for _, n in items if isinstance(n, int)), next((n for _, n in items if n is not None), None))
    out_axes = node.attributes.get("scan_output_axes") or [0] * (len(made.outputs) - states)
    scans = [_stacked(v, length, int(a)) for v, a in zip(made.outputs[states:], out_axes, strict=True)]
    return _finished(node, scope, {"body": made}, [*carried, *scans])


def _item(sequence: Type | None, axis: int) -> tuple[Type | None, Dim]:
    """The type of one slice along `axis`, and how many there are."""
    if (
        not isinstance(sequence, TensorType)
        or not sequence.shape
        or not -len(sequence.shape) <= axis < len(sequence.shape)
    ):
        return without_shapes(sequence), None
    shape = list(sequence.shape)
    length = shape.pop(axis)
    return TensorType(sequence.dtype, tuple(shape)), length


def _sequence_map(node: Node, scope: Scope) -> Node:
    kinds = [v.type if v else None for v in node.inputs]
    made, _ = _body(node.attributes["body"], [t.element if isinstance(t, SequenceType) else t for t in kinds], scope)
    types = [None if v.type is None else SequenceType(v.type) for v in made.outputs]
    return _finished(node, scope, {"body": made}, types)


OPERATORS: Mapping[str, Callable[[Node, Scope], Node]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
