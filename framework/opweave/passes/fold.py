"""Nodes with constant inputs are computed once, weights too, as long as the result does not outgrow what it is made from.

Small ones are folded by `specialise`; here it is converted weights (int8 stored, float used), transposed ones and the like.
Q/DQ stays: devices want to see it with its operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opweave.errors import OpweaveError
from opweave.graph import Constant, Graph, Node, Value
from opweave.passes.rewrite import Rewrite, rewrite
from opweave.read.names import Names
from opweave.types import TensorType

_GROWTH = 8  # the result may be that many times its inputs: int8 to float64
_TOTAL = 2 << 30  # bytes of all results: constants of a huge declared shape cost their model nothing
_LIMIT = 1 << 30  # bytes of one constant that is a number throughout
_OPERATORS = frozenset(
    {"Add", "Cast", "CastLike", "Concat", "Div", "Flatten", "Gather", "Identity", "Mul", "Neg", "Reciprocal", "Reshape"}
    | {"Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze"}
)


def fold(graph: Graph, names: Names) -> Graph:
    """The graph with what is known computed, as far as the budget of bytes goes."""
    budget = _Budget(_TOTAL)
    return rewrite(graph, lambda node, _view: _folded(node, budget), names)


@dataclass
class _Budget:
    nbytes: int


def _folded(node: Node, budget: _Budget) -> Rewrite | None:
    """The result of a node whose inputs are all constants."""
    if not node.domain and node.op_type == "ConstantOfShape":
        return _filled(node)
    if node.domain or node.op_type not in _OPERATORS or len(node.outputs) != 1 or not node.inputs:
        return None
    inputs, result = [v for v in node.inputs if v is not None], node.outputs[0]
    if result is None or any(v.constant is None for v in inputs):
        return None
    read, written = sum(v.constant.nbytes for v in inputs if v.constant), _nbytes(result)
    if written is None or written > min(budget.nbytes, _GROWTH * read):
        return None
    budget.nbytes -= written
    from opweave.reference import evaluate

    try:
        (array,) = evaluate(node, [v.constant.array if v is not None and v.constant else None for v in node.inputs])
    except OpweaveError:
        return None  # the run reports it, should it come there
    if not isinstance(array, np.ndarray):
        return None
    value = Value(result.name, TensorType(result.tensor.dtype, array.shape) if result.tensor else None, Constant(array))
    return Rewrite(values={result.name: value})


def _filled(node: Node) -> Rewrite | None:
    """Weights that are one number, made when something first asks for them."""
    shape, result = node.inputs[0], node.outputs[0]
    if result is None or shape is None or shape.constant is None:
        return None
    kind, fill = result.tensor, np.asarray(node.attributes.get("value", np.zeros(1, np.float32)))
    if kind is None or kind.static_shape is None or not 0 < (kind.nbytes or 0) <= _LIMIT or fill.size != 1:
        return None
    sizes = kind.static_shape
    constant = Constant(lambda: np.full(sizes, fill.reshape(()), fill.dtype), kind.nbytes)
    return Rewrite(values={result.name: Value(result.name, kind, constant)})


def _nbytes(result: Value) -> int | None:
    """The size of the result where its whole type is known."""
    return result.tensor.nbytes if result.tensor is not None else None
