"""Values as they cross between Python and the core: (array, dtype code), extension types as unsigned views; (object, 0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from opweave.dtypes import DType
from opweave.graph import Graph, Node
from opweave.reference import evaluate, evaluate_graph

Crossing: TypeAlias = tuple[Any, int]


def plain(array: Any) -> Any:
    """The array C-contiguous, and as unsigned integers where its type is an extension type."""
    array = np.asarray(array, order="C")
    return array.view(f"u{array.dtype.itemsize}") if DType.of(array.dtype).is_extension else array


def to_core(value: Any) -> Crossing:
    """A tensor of numbers as an array with its code; everything else as an object."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUST":
        return value, 0
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return plain(value), int(DType.of(value.dtype))


def from_core(crossing: Crossing | None) -> Any:
    """The value; None where it is omitted."""
    if crossing is None:
        return None
    value, code = crossing
    return value.view(DType(code).numpy) if code else value


class ReferenceCall:
    """An instruction that leaves the core: one node through the reference implementation."""

    def __init__(self, node: Node, captured: Sequence[str] = ()) -> None:
        self._node = node
        self._captured = captured

    def __call__(self, operands: Sequence[Crossing | None]) -> list[Crossing]:
        values = [from_core(o) for o in operands]
        count = len(self._node.inputs)
        outer = dict(zip(self._captured, values[count:], strict=True))
        results = list(evaluate(self._node, values[:count], outer))
        results += [None] * (len(self._node.outputs) - len(results))
        return [to_core(r) for r in results]


class FusedCall:
    """A fused node that its kernel refuses: the nodes that it stands for, through the reference implementation."""

    def __init__(self, node: Node, origins: Sequence[Node]) -> None:
        self._inputs = node.inputs
        present = {v.name: v for v in node.inputs if v is not None}
        outputs = tuple(v for v in node.outputs if v is not None)
        self._graph = Graph(node.name, tuple(present.values()), outputs, tuple(origins))

    def __call__(self, operands: Sequence[Crossing | None]) -> list[Crossing]:
        pairs = zip(self._inputs, operands, strict=True)
        results = evaluate_graph(self._graph, {v.name: from_core(o) for v, o in pairs if v is not None})
        return [to_core(results[v.name]) for v in self._graph.outputs]
