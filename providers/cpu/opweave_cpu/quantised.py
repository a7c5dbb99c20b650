"""Products of dequantised operands (Q/DQ) computed on the integers: MatMulIntegerToFloat of com.microsoft.

(za, zb zero points; sa, sb scales) sum (qa - za) sa (qb - zb) sb = sa sb sum (qa - za)(qb - zb), the sum being exact.
"""

from __future__ import annotations

from dataclasses import replace

from opweave.dtypes import DType
from opweave.graph import Constant, Graph, Node, Value
from opweave.passes.dead import remove_dead
from opweave.passes.rewrite import Rewrite, View, names_of, rewrite
from opweave.reference import evaluate
from opweave.types import TensorType

_BYTES = (DType.UINT8, DType.INT8)


def integer_products(graph: Graph) -> Graph:
    """The graph with MatMul of two dequantised operands, and a bias behind it, made products of integers.

    Weights of other operators are dequantised once, here, rather than in every call.
    """
    names = names_of(graph)
    products = rewrite(rewrite(graph, _product, names), _with_bias, names)
    return rewrite(remove_dead(products, names), _weights, names)


def _product(node: Node, view: View) -> Rewrite | None:
    if node.domain or node.op_type != "MatMul" or len(node.inputs) != 2:
        return None
    left, right = (view.producer(v, "DequantizeLinear") for v in node.inputs)
    if left is None or right is None or not _is_flat(left) or not (_is_flat(right) or _is_by_column(right)):
        return None
    a, b = _operands(left), _operands(right)
    inputs = (a[0], b[0], a[1], b[1], a[2], b[2])
    made = replace(
        node, op_type="MatMulIntegerToFloat", domain="com.microsoft", version=1, inputs=inputs, attributes={}
    )
    return Rewrite([made])


def _with_bias(node: Node, view: View) -> Rewrite | None:
    """The vector that is added to a product goes into it."""
    if node.domain or node.op_type != "Add" or len(node.inputs) != 2:
        return None
    for value, bias in (node.inputs, node.inputs[::-1]):
        product = view.graph.producers.get(value.name) if value is not None else None
        if product is None or product.operator != "com.microsoft.MatMulIntegerToFloat" or len(product.inputs) != 6:
            continue
        if value is not None and view.only_reader(value) is node and _is_row(bias, value):
            return Rewrite([replace(product, inputs=(*product.inputs, bias), outputs=node.outputs)])
    return None


def _weights(node: Node, _view: View) -> Rewrite | None:
    """A dequantised constant."""
    result = node.outputs[0] if node.outputs else None
    if node.domain or node.op_type != "DequantizeLinear" or result is None:
        return None
    if any(v is not None and v.constant is None for v in node.inputs):
        return None
    (array,) = evaluate(node, [v.constant.array if v is not None and v.constant else None for v in node.inputs])
    type_ = TensorType(DType.of(array.dtype), array.shape)
    return Rewrite(values={result.name: Value(result.name, type_, Constant(array))})


def _operands(node: Node) -> tuple[Value | None, Value | None, Value | None]:
    return node.inputs[0], node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None


def _is_plain(node: Node) -> bool:
    quantised, scale, _ = _operands(node)
    if quantised is None or scale is None or quantised.tensor is None or scale.tensor is None:
        return False
    rank = quantised.tensor.rank
    return (
        quantised.tensor.dtype in _BYTES
        and scale.tensor.dtype is DType.FLOAT32
        and rank is not None
        and rank >= 2
        and node.attributes.get("output_dtype", 0) in (0, int(DType.FLOAT32))
        and not node.attributes.get("block_size", 0)
    )


def _is_flat(node: Node) -> bool:
    """One scale for the whole tensor."""
    scale = node.inputs[1]
    return _is_plain(node) and scale is not None and scale.tensor is not None and scale.tensor.rank == 0


def _is_by_column(node: Node) -> bool:
    """A matrix with a scale for each of its columns."""
    quantised, scale, zero = _operands(node)
    if not _is_plain(node) or quantised is None or scale is None or quantised.tensor is None or scale.tensor is None:
        return False
    shape, scales = quantised.tensor.static_shape, scale.tensor.static_shape
    if shape is None or len(shape) != 2 or scales != shape[1:] or node.attributes.get("axis", 1) not in (1, -1):
        return False
    return zero is None or (zero.tensor is not None and zero.tensor.static_shape == scales)


def _is_row(bias: Value | None, product: Value) -> bool:
    """A vector as long as a row of the product."""
    if bias is None or bias.tensor is None or product.tensor is None or not product.tensor.shape:
        return False
    shape = bias.tensor.static_shape
    return bias.tensor.dtype is DType.FLOAT32 and shape is not None and shape == product.tensor.shape[-1:]
