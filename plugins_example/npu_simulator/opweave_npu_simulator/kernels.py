"""What the NPU computes, in NumPy. Nodes come in the newest form of their ONNX operator, whatever the model's opset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from opweave.dtypes import DType
from opweave.graph import Node

Array: TypeAlias = np.ndarray[Any, Any]
Kernel: TypeAlias = Callable[..., Array]


def conv(node: Node, x: Array, w: Array, b: Array | None = None) -> Array:
    """2-D convolution as one product: every window of `x` becomes a row."""
    at = node.attributes
    (top, left, bottom, right), (step_y, step_x) = at.get("pads", [0] * 4), at.get("strides", [1, 1])
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    y: Array = np.einsum("nchwij,ocij->nohw", windows[:, :, ::step_y, ::step_x], w, optimize=True)
    return y if b is None else y + b[:, None, None]


def gemm(node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    """alpha * A B + beta * C."""
    at = node.attributes
    a, b = (a.T if at.get("transA", 0) else a), (b.T if at.get("transB", 0) else b)
    y: Array = np.float32(at.get("alpha", 1.0)) * (a @ b)
    return y if c is None else y + np.float32(at.get("beta", 1.0)) * c


KERNELS: Mapping[str, Kernel] = {
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": lambda _, a, b: np.matmul(a, b),
    "Add": lambda _, a, b: a + b,
    "Mul": lambda _, a, b: a * b,
    "Sub": lambda _, a, b: a - b,
    "Relu": lambda _, x: np.maximum(x, 0),
    "Sigmoid": lambda _, x: np.exp(-np.logaddexp(0, -x)),
    "GlobalAveragePool": lambda _, x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
}


def refusal(node: Node) -> str | None:
    """Why the NPU does not take the node: a clear no is better than a slow or wrong result."""
    if node.domain or node.op_type not in KERNELS:
        return f"no kernel for {node.operator}"
    for value in (*node.reads(), *node.writes()):
        if value.tensor is None or value.tensor.dtype is not DType.FLOAT32:
            return f"{value} is not float32"
        if not value.tensor.is_static:
            return f"the shape of {value} is not known"
    return _conv_refusal(node) if node.op_type == "Conv" else None


def _conv_refusal(node: Node) -> str | None:
    at = node.attributes
    image = node.inputs[0].tensor if node.inputs[0] is not None else None
    if image is None or image.rank != 4:
        return "only 2-D convolutions"
    if at.get("group", 1) != 1 or set(at.get("dilations", [1])) != {1}:
        return "only convolutions of one group without dilation"
    if at.get("auto_pad", "NOTSET") != "NOTSET":
        return f"auto_pad {at['auto_pad']!r}"
    return None
