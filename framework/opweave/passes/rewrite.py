"""How passes change a graph: a match looks at one node and what surrounds it, and says what to put in its place.

A value that is replaced keeps its meaning, so matches that overlap stay right. What a pattern leaves without readers is
removed by the pass `dead`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from opweave.dtypes import DType
from opweave.graph import Array, Constant, Graph, Node, Value
from opweave.read.check import newest_version
from opweave.read.names import Names
from opweave.types import TensorType

_SCALAR_BYTES = 16


@dataclass(frozen=True)
class Rewrite:
    """`nodes` stand where the matched node stood; reads of the values named in `values` become reads of others."""

    nodes: Sequence[Node] = ()
    values: Mapping[str, Value] = field(default_factory=dict)


Match: TypeAlias = "Callable[[Node, View], Rewrite | None]"


class View:
    """One graph as a match sees it."""

    def __init__(self, graph: Graph, names: Names, is_top: bool) -> None:
        self.graph, self._names, self.is_top = graph, names, is_top
        self._outputs = {v.name for v in graph.outputs}

    def producer(self, value: Value | None, *op_types: str) -> Node | None:
        """The node of this graph that makes the value, where it is an ai.onnx operator of one of these types."""
        node = self.graph.producers.get(value.name) if value is not None else None
        if node is None or node.domain or (op_types and node.op_type not in op_types):
            return None
        return node

    def only_reader(self, value: Value) -> Node | None:
        """The one node that reads the value; None where there are several, or the graph gives the value out."""
        readers = self.graph.readers.get(value.name, ())
        return readers[0] if len(readers) == 1 and value.name not in self._outputs else None

    def is_used(self, value: Value) -> bool:
        """Whether anything reads the value."""
        return value.name in self._outputs or bool(self.graph.readers.get(value.name))

    def is_output(self, value: Value) -> bool:
        """Whether the graph gives the value out."""
        return value.name in self._outputs

    def constant(self, data: Any, hint: str) -> Value:
        """A new constant value."""
        array = np.asarray(data)
        return Value(self._names.unique(hint), TensorType(DType.of(array.dtype), array.shape), Constant(array))

    def value(self, like: Value) -> Value:
        """A new value of the same type."""
        return Value(self._names.unique(like.name), like.type)

    def node(self, op_type: str, inputs: Sequence[Value | None], output: Value, hint: str, **attributes: Any) -> Node:
        """A new node of ai.onnx in its newest form."""
        version = newest_version(op_type) or 0
        return Node(self._names.unique(hint), op_type, tuple(inputs), (output,), attributes, "", version)


def rewrite(graph: Graph, match: Match, names: Names, is_top: bool = True) -> Graph:
    """The graph with every match put in place, in bodies too; the same object where nothing matched."""
    view = View(graph, names, is_top)
    nodes: list[Node] = []
    values: dict[str, Value] = {}
    for original in graph.nodes:
        node = _in_bodies(original, match, names)
        found = match(node, view)
        nodes += [node] if found is None else _placed(node, found, view, values)
    if not values and len(nodes) == len(graph.nodes) and all(map(_is, nodes, graph.nodes)):
        return graph
    return substitute(replace(graph, nodes=tuple(nodes)), values)


def _is(a: Node, b: Node) -> bool:
    return a is b


def _in_bodies(node: Node, match: Match, names: Names) -> Node:
    if not node.bodies:
        return node
    bodies = {k: rewrite(body, match, names, is_top=False) for k, body in node.bodies.items()}
    if all(bodies[k] is body for k, body in node.bodies.items()):
        return node
    return replace(node, attributes={**node.attributes, **bodies})


def _placed(node: Node, found: Rewrite, view: View, values: dict[str, Value]) -> list[Node]:
    """The nodes that come in. A model's own output keeps its name: where it becomes another value, Identity makes it."""
    nodes = list(found.nodes)
    for name, value in found.values.items():
        old = next((v for v in node.writes() if v.name == name), None)
        if view.is_top and old is not None and view.is_output(old) and value.name != name:
            if node.op_type == "Identity" and not node.domain:
                return [node]
            nodes.append(view.node("Identity", [value], old, node.name))
        else:
            values[name] = value
    return nodes


def substitute(graph: Graph, values: Mapping[str, Value]) -> Graph:
    """The graph with reads of some values made reads of others; chains are followed."""
    if not values:
        return graph

    def change(value: Value | None) -> Value | None:
        while value is not None and value.name in values:
            other = values[value.name]
            if other.name == value.name:
                return other
            value = other
        return value

    return graph.map_values(change)


def names_of(graph: Graph) -> Names:
    """The names that a graph and its bodies use, of values and of nodes."""
    names = Names()
    pending = [graph]
    while pending:
        current = pending.pop()
        for value in current.values.values():
            names.reserve(value.name)
        for node in current.nodes:
            names.reserve(node.name)
            pending += node.bodies.values()
    return names


def array_of(value: Value | None, limit: int = 1 << 30) -> Array | None:
    """The data of a constant of at most `limit` bytes."""
    if value is None or value.constant is None or value.constant.nbytes > limit:
        return None
    return value.constant.array


def scalar_of(value: Value | None) -> float | None:
    """The number that a constant of one numeric element holds."""
    array = array_of(value, _SCALAR_BYTES)
    if array is None or array.size != 1 or array.dtype == object or array.dtype.kind == "c":
        return None
    return float(array.reshape(-1)[0])


def is_near(value: Value | None, number: float, tolerance: float = 1e-3) -> bool:
    """Whether a constant of one element is that number, to the precision that exporters write it with."""
    found = scalar_of(value)
    return found is not None and abs(found - number) <= tolerance * max(abs(number), 1e-6)


def split_scalar(node: Node) -> tuple[Value, Value] | None:
    """The inputs of a commutative node of two: (other, constant scalar)."""
    if len(node.inputs) != 2 or None in node.inputs:
        return None
    a, b = node.inputs
    if a is None or b is None:
        return None
    if scalar_of(b) is not None:
        return a, b
    return (b, a) if scalar_of(a) is not None else None
