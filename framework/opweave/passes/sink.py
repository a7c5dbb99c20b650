"""Transposes sink behind elementwise operators, reductions, pads and joins, until they meet their opposite or a reader that
needs them. Models that were made channels-last have a pair of them around every convolution, and what stands between the
pairs cannot join the convolution.

Only transposes of what convolutions, pools and their like make: those of attention stand where its pattern wants them. And
only where every reader lets it pass, so that none is left behind to run as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opweave.graph import Graph, Node, Value
from opweave.passes.dead import remove_dead
from opweave.passes.rewrite import View, array_of
from opweave.read.names import Names
from opweave.types import TensorType, Type

_ELEMENTWISE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu "
    "Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh "
    "ThresholdedRelu Cast Not IsNaN IsInf Clip Add Sub Mul Div Pow Mod Max Min Sum Mean PRelu Equal Greater Less "
    "GreaterOrEqual LessOrEqual And Or Xor Where"
)
_REDUCTIONS = "ReduceMean ReduceMax ReduceMin ReduceSum ReduceProd ReduceL1 ReduceL2 ReduceSumSquare"
_PASSED = frozenset(f"{_ELEMENTWISE} {_REDUCTIONS} Pad Concat".split())
_MAPS = "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool Resize BatchNormalization"
_MOST_BYTES = 1 << 22  # of a constant that is transposed


@dataclass(frozen=True)
class _Moved:
    """A value that is `source` transposed by `perm`."""

    source: Value
    perm: tuple[int, ...]


def sink_transposes(graph: Graph, names: Names, is_top: bool = True) -> Graph:
    """The graph with the transposes of maps as late as they can be, in bodies too; the same object where none moved."""
    nodes = tuple(_in_bodies(n, names) for n in graph.nodes)
    if not all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        graph = replace(graph, nodes=nodes)
    if not any(_is(n, {"Transpose"}) for n in graph.nodes):
        return graph
    sweep = _Sweep(graph, names, is_top)
    made = sweep.nodes()
    return remove_dead(replace(graph, nodes=made), names) if sweep.moved else graph


def _in_bodies(node: Node, names: Names) -> Node:
    bodies = {k: sink_transposes(body, names, is_top=False) for k, body in node.bodies.items()}
    if all(bodies[k] is body for k, body in node.bodies.items()):
        return node
    return replace(node, attributes={**node.attributes, **bodies})


def _is(node: Node | None, op_types: Collection[str]) -> bool:
    return node is not None and not node.domain and node.op_type in op_types


class _Sweep:
    """One pass over the nodes in order; what sank stands in `_known` for its readers further on."""

    def __init__(self, graph: Graph, names: Names, is_top: bool) -> None:
        self._graph, self._names, self._view = graph, names, View(graph, names, is_top)
        self._known: dict[str, _Moved] = {}
        self._same: dict[str, Value] = {}  # values that are others, unchanged
        self._made: list[Node] = []
        self.moved = False

    def nodes(self) -> tuple[Node, ...]:
        for original in self._graph.nodes:
            inputs = tuple(self._same.get(v.name, v) if v is not None else v for v in original.inputs)
            node = replace(original, inputs=inputs)
            if not (self._transpose(node) if _is(node, {"Transpose"}) else self._sink(node)):
                self._made.append(node)
        return tuple(self._made)

    def _transpose(self, node: Node) -> bool:
        """Notes the transpose of a map, or of what one sank behind: then the two are one."""
        source, result = node.inputs[0], node.outputs[0]
        perm = _perm(node)
        if source is None or result is None or perm is None:
            return False
        before = self._known.get(source.name)
        if before is None:
            if _is(self._graph.producers.get(source.name), _MAPS.split()):
                self._known[result.name] = _Moved(source, perm)
            return False
        moved = _Moved(before.source, tuple(before.perm[p] for p in perm))
        if moved.perm == tuple(range(len(perm))):
            self._same[result.name] = moved.source
        else:
            self._known[result.name] = moved
        self._made.append(replace(node, inputs=(moved.source,), attributes={"perm": list(moved.perm)}))
        return True

    def _sink(self, node: Node) -> bool:
        moved = [self._known[v.name] for v in node.inputs if v is not None and v.name in self._known]
        if not moved or len(node.outputs) != 1 or node.outputs[0] is None or not _is(node, _PASSED):
            return False
        perm = moved[0].perm
        if any(m.perm != perm for m in moved) or not all(self._is_free(v) for v in node.inputs):
            return False
        below = self._below(node, perm)
        if below is None:
            return False
        self.moved = True
        self._put(below, node.outputs[0])
        return True

    def _is_free(self, value: Value | None) -> bool:
        """Nobody keeps the transpose from going."""
        if value is None or value.name not in self._known:
            return True
        readers = self._graph.readers.get(value.name, ())
        passes = all(_is(n, _PASSED) or _is(n, {"Transpose"}) for n in readers)
        return not self._view.is_output(value) and (len(readers) == 1 or passes)

    def _put(self, below: _Below, result: Value) -> None:
        """The node on the sources, and behind it the transpose, where one is left."""
        if below.perm == tuple(range(len(below.perm))):
            self._made.append(replace(below.node, outputs=(result,)))
            return
        source = Value(self._names.unique(result.name), _untransposed(result.type, below.perm))
        self._made.append(replace(below.node, outputs=(source,)))
        self._made.append(self._view.node("Transpose", [source], result, below.node.name, perm=list(below.perm)))
        self._known[result.name] = _Moved(source, below.perm)

    def _below(self, node: Node, perm: tuple[int, ...]) -> _Below | None:
        if node.op_type in _REDUCTIONS.split():
            return self._reduction(node, perm)
        if node.op_type == "Pad":
            return self._pad(node, perm)
        inputs = [self._operand(v, perm) for v in node.inputs]
        if any(i is _STUCK for i in inputs):
            return None
        made = replace(node, inputs=tuple(inputs))
        if node.op_type == "Concat":
            if any(v is None or v.name not in self._known for v in node.inputs):
                return None
            axis = perm[int(node.attributes.get("axis", 0)) % len(perm)]
            made = replace(made, attributes={**node.attributes, "axis": axis})
        return _Below(made, perm)

    def _operand(self, value: Value | None, perm: tuple[int, ...]) -> Value | None:
        """What the operand is before the transpose; `_STUCK` where that is not known."""
        if value is None or _is_single(value):
            return value
        if value.name in self._known:
            return self._known[value.name].source
        array = array_of(value, _MOST_BYTES)
        if array is None or array.ndim > len(perm):
            return _STUCK
        whole = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
        return self._view.constant(np.ascontiguousarray(whole.transpose(np.argsort(perm))), value.name)

    def _reduction(self, node: Node, perm: tuple[int, ...]) -> _Below | None:
        axes = array_of(node.inputs[1], 512) if len(node.inputs) == 2 else None
        if axes is None or axes.size == 0 or axes.ndim != 1:
            return None
        reduced = [perm[int(a) % len(perm)] for a in axes]
        inputs = (self._operand(node.inputs[0], perm), self._view.constant(np.array(sorted(reduced), np.int64), "axes"))
        if not node.attributes.get("keepdims", 1):
            left = [p for p in perm if p not in reduced]
            perm = tuple(sorted(left).index(p) for p in left)
        return _Below(replace(node, inputs=inputs), perm)

    def _pad(self, node: Node, perm: tuple[int, ...]) -> _Below | None:
        pads = array_of(node.inputs[1], 512) if len(node.inputs) > 1 else None
        if pads is None or pads.shape != (2 * len(perm),) or any(v is not None for v in node.inputs[3:]):
            return None
        if node.inputs[0] is None or node.inputs[0].name not in self._known:
            return None
        order = np.argsort(perm)
        moved = self._view.constant(np.concatenate([pads[: len(perm)][order], pads[len(perm) :][order]]), "pads")
        return _Below(replace(node, inputs=(self._operand(node.inputs[0], perm), moved, *node.inputs[2:])), perm)


@dataclass(frozen=True)
class _Below:
    """A node on what was not transposed yet; its result is to be transposed by `perm`."""

    node: Node
    perm: tuple[int, ...]


_STUCK = Value("")


def _perm(node: Node) -> tuple[int, ...] | None:
    """None where it is not written down; there the rank may be unknown."""
    perm = node.attributes.get("perm")
    if perm is None or sorted(perm) != list(range(len(perm))):
        return None
    return tuple(perm)


def _is_single(value: Value) -> bool:
    shape = value.tensor.static_shape if value.tensor is not None else None
    return shape is not None and math.prod(shape) == 1 and len(shape) <= 1


def _untransposed(kind: Type | None, perm: Sequence[int]) -> Type | None:
    if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) != len(perm):
        return kind
    shape = [kind.shape[i] for i in np.argsort(perm)]
    return TensorType(kind.dtype, tuple(shape))
