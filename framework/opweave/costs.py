"""Analytic cost of a node: the larger of its arithmetic and its memory traffic, by the figures of a `DeviceInfo`.

A dimension that is not known yet counts as `UNKNOWN_DIM`: the cost model needs an order of magnitude, not a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opweave.dtypes import DType
from opweave.graph import Node, Value
from opweave.types import TensorType

if TYPE_CHECKING:
    from opweave.provider import DeviceInfo

UNKNOWN_DIM = 16
UNKNOWN_RANK = 2
NODE_SECONDS = 0.3e-6  # what one more instruction costs whatever it does

# Operations per output element; what is not named costs 1.
_PER_ELEMENT = {
    "Exp": 8, "Log": 8, "Sigmoid": 10, "Tanh": 12, "Erf": 12, "Gelu": 14, "Softmax": 12, "LogSoftmax": 12, "Pow": 20,
    "Sin": 12, "Cos": 12, "Sqrt": 4, "Div": 4, "LayerNormalization": 8, "RMSNormalization": 6, "Mish": 24, "Swish": 11,
    "BatchNormalization": 2, "InstanceNormalization": 8, "GroupNormalization": 8, "Softplus": 16, "FastGelu": 14,
}  # fmt: skip
_FREE = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size"}


def roofline(node: Node, info: DeviceInfo) -> float:
    """Predicted seconds of `node` on a device: launch excluded, bodies of control flow counted once."""
    if node.bodies:
        return NODE_SECONDS + sum(roofline(inner, info) for body in node.bodies.values() for inner in body.nodes)
    if node.op_type in _FREE:
        return NODE_SECONDS
    rate = _rate(node, info)
    return NODE_SECONDS + max(flops(node) / rate, traffic(node) / info.bandwidth)


def flops(node: Node) -> float:
    """Arithmetic operations of one run of the node (a multiply-add counts two)."""
    count = _COUNTERS.get(node.op_type)
    if count is not None:
        return float(count(node))
    return float(_PER_ELEMENT.get(node.op_type, 1) * max((elements(v) for v in _present(node)), default=1))


def traffic(node: Node) -> float:
    """Bytes read and written by one run of the node."""
    return float(sum(nbytes(v) for v in _present(node)))


def elements(value: Value | None) -> int:
    """Elements of a value, unknown dimensions guessed."""
    return math.prod(dims(value))


def nbytes(value: Value | None) -> int:
    """Bytes of a value, unknown dimensions guessed; 4 bytes an element where the type is not known."""
    tensor = value.tensor if value is not None else None
    return elements(value) * (max(tensor.dtype.itemsize, 1) if tensor is not None else 4)


def dims(value: Value | None) -> tuple[int, ...]:
    """The shape with every unknown dimension guessed."""
    tensor: TensorType | None = value.tensor if value is not None else None
    if tensor is None or tensor.shape is None:
        return (UNKNOWN_DIM,) * UNKNOWN_RANK
    return tuple(d if isinstance(d, int) else UNKNOWN_DIM for d in tensor.shape)


def _present(node: Node) -> Iterable[Value]:
    yield from (v for v in node.inputs if v is not None)
    yield from node.writes()


def _rate(node: Node, info: DeviceInfo) -> float:
    tensors = [v.tensor for v in (*node.writes(), *node.reads()) if v.tensor is not None]
    dtype = tensors[0].dtype if tensors else DType.FLOAT32
    return info.flops.get(dtype) or info.flops.get(DType.FLOAT32) or max(info.flops.values(), default=1e9)


def _input(node: Node, index: int) -> tuple[int, ...]:
    return dims(node.inputs[index]) if index < len(node.inputs) else (UNKNOWN_DIM,) * UNKNOWN_RANK


def _output(node: Node) -> int:
    return elements(node.outputs[0])


def _matmul(node: Node) -> int:
    return 2 * _output(node) * (_input(node, 0) or (1,))[-1]


def _gemm(node: Node) -> int:
    a = _input(node, 0)
    return 2 * _output(node) * a[0 if node.attributes.get("transA") else -1]


def _conv(node: Node) -> int:
    return 2 * _output(node) * math.prod(_input(node, 1)[1:])


def _conv_transpose(node: Node) -> int:
    return 2 * math.prod(_input(node, 0)) * math.prod(_input(node, 1)[1:])


def _qlinear_conv(node: Node) -> int:
    return 2 * _output(node) * math.prod(_input(node, 3)[1:])


def _recurrent(node: Node) -> int:
    steps, batch = (*_input(node, 0), 1, 1)[:2]
    return 2 * steps * batch * (math.prod(_input(node, 1)) + math.prod(_input(node, 2)))


def _attention(node: Node) -> int:
    q, k = _input(node, 0), _input(node, 1)
    return 4 * math.prod(q) * (k[-2] if len(k) > 1 else UNKNOWN_DIM)


_COUNTERS: dict[str, Callable[[Node], int]] = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvInteger": _conv,
    "QLinearConv": _qlinear_conv,
    "ConvTranspose": _conv_transpose,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "DynamicQuantizeLSTM": _recurrent,
    "Attention": _attention,
}
