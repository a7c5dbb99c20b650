"""Elementwise operators fused into one `opweave.Tape`: which nodes, in which groups, and how a group is written down.

A group grows from its last node towards the inputs, and takes a producer only when nothing outside the group reads its
result. One value leaves a group, so it is convex by construction. Shapes must be those of the group's result: a small
operand that is broadcast (a squeeze-and-excite gate, say) is not computed over and over at full size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opweave.dtypes import DType
from opweave.graph import Graph, Node, Value

# Operators by what they read and write: F is float32, B is bool, one letter an input, then the result.
_FORMS = {
    "FF": "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu "
    "Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh "
    "ThresholdedRelu",
    "FFF": "Add Sub Mul Div Pow Mod Max Min Sum",
    "FFB": "Equal Greater Less GreaterOrEqual LessOrEqual",
    "FB": "IsNaN IsInf",
    "BBB": "And Or Xor Equal",
    "BB": "Not",
    "BFFF": "Where",
}
_LETTERS = {DType.FLOAT32: "F", DType.BOOL: "B"}
_ACCEPTED = {(op, form) for form, names in _FORMS.items() for op in names.split()}
_CASTS = {"FF", "FB", "BF", "BB"}

MOST_INPUTS = 10
MOST_STEPS = 48


def _letter(value: Value | None) -> str:
    tensor = value.tensor if value is not None else None
    return _LETTERS.get(tensor.dtype, "?") if tensor is not None else "?"


def _is_scalar(value: Value | None) -> bool:
    return value is None or (value.tensor is not None and value.tensor.shape == ())


def fusible(node: Node) -> bool:
    """Whether a tape can hold the node: a float32 or bool operator whose attributes are numbers or text."""
    if node.domain or len(node.outputs) != 1 or not node.inputs:
        return False
    result = _letter(node.outputs[0])
    if not all(isinstance(v, (int, float, str)) for v in node.attributes.values()):
        return False
    if node.op_type == "Clip":
        return _letter(node.inputs[0]) == "F" == result and all(map(_is_scalar, node.inputs[1:]))
    form = "".join(map(_letter, node.inputs)) + result
    if node.op_type == "Cast":
        return form in _CASTS
    return (node.op_type, form) in _ACCEPTED


def group_elementwise(graph: Graph) -> list[tuple[Node, ...]]:
    """Disjoint groups of at least two fusible nodes, each in topological order with its only visible result last."""
    order = {id(node): i for i, node in enumerate(graph.nodes)}
    kept = {v.name for v in graph.outputs}
    taken: set[int] = set()
    groups = []
    for root in reversed(graph.nodes):
        if id(root) in taken or not fusible(root):
            continue
        group = _grow(graph, root, taken, kept)
        if len(group) > 1:
            taken.update(map(id, group))
            groups.append(tuple(sorted(group, key=lambda node: order[id(node)])))
    return groups[::-1]


def _grow(graph: Graph, root: Node, taken: set[int], kept: set[str]) -> list[Node]:
    group, inside = [root], {id(root)}
    shape = _shape(root.outputs[0])
    external = {v.name: v for v in root.reads()}

    def joins(value: Value) -> bool:
        producer = graph.producers.get(value.name)
        return (
            producer is not None
            and value.name not in kept
            and id(producer) not in taken
            and shape is not None
            and _shape(value) == shape
            and all(id(reader) in inside for reader in graph.readers[value.name])
            and len(external | {v.name: v for v in producer.reads()}) - 1 <= MOST_INPUTS
            and fusible(producer)
        )

    while len(group) < MOST_STEPS and (value := next(filter(joins, external.values()), None)):
        producer = graph.producers[value.name]
        group.append(producer)
        inside.add(id(producer))
        external = {k: v for k, v in external.items() if k != value.name} | {v.name: v for v in producer.reads()}
    return group


def _shape(value: Value | None) -> tuple[Any, ...] | None:
    """A shape that equals another only when the two surely agree."""
    tensor = value.tensor if value is not None else None
    return None if tensor is None or tensor.shape is None or None in tensor.shape else tensor.shape


def _external(group: Iterable[Node]) -> list[Value]:
    """Values that the group reads and does not make, each once."""
    nodes = list(group)
    made = {v.name for n in nodes for v in n.writes()}
    return list({v.name: v for n in nodes for v in n.reads() if v.name not in made}.values())


def build(group: Sequence[Node]) -> tuple[dict[str, Any], list[Value], Value]:
    """Attributes, inputs and result of the `opweave.Tape` that does the work of a group in topological order."""
    inputs = _external(group)
    number = {v.name: i for i, v in enumerate(inputs)}
    attributes: dict[str, Any] = {"ops": [n.op_type for n in group]}
    program: list[int] = []
    for step, node in enumerate(group):
        operands = [-1 if v is None else number[v.name] for v in node.inputs]
        program += operands + [-1] * (3 - len(operands))
        attributes |= {f"{step}.{name}": value for name, value in node.attributes.items()}
        number |= {v.name: len(inputs) + step for v in node.writes()}
    attributes["program"] = program
    result = group[-1].outputs[0]
    assert result is not None
    return attributes, inputs, result
