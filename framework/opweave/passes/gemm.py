"""A matrix product with a constant matrix, and the vector added to it, are one Gemm."""

from __future__ import annotations

from opweave.dtypes import DType
from opweave.graph import Node, Value
from opweave.passes.rewrite import Rewrite, View

_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)


def gemm(node: Node, view: View) -> Rewrite | None:
    """MatMul(x, W) + b, x of rank 2 and b as long as a row."""
    if node.domain or node.op_type != "Add" or len(node.inputs) != 2 or node.outputs[0] is None:
        return None
    for bias, product in (node.inputs, node.inputs[::-1]):
        matmul = view.producer(product, "MatMul")
        if matmul is None or product is None or view.only_reader(product) is not node:
            continue
        x, weights = matmul.inputs
        if _is_matrix(x) and _fits(weights, bias):
            return Rewrite([view.node("Gemm", [x, weights, bias], node.outputs[0], node.name)])
    return None


def _is_matrix(value: Value | None) -> bool:
    return value is not None and value.tensor is not None and value.tensor.rank == 2 and value.tensor.dtype in _FLOATS


def _fits(weights: Value | None, bias: Value | None) -> bool:
    """A constant matrix and a constant vector that has an element for each of its columns."""
    if weights is None or bias is None or weights.constant is None or bias.constant is None:
        return False
    columns = weights.tensor.static_shape if weights.tensor else None
    length = bias.tensor.static_shape if bias.tensor else None
    return columns is not None and length is not None and len(columns) == 2 and length == columns[1:]
