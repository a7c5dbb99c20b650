"""The quantised operators of com.microsoft (ContribOperators.md): dequantise, compute in float32, quantise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node
from opweave.reference.operators import Array, Implementation


def dequantise(x: Array, scale: Array, zero: Array | None, axis: int = -1) -> Array:
    """float32 values; a scale and zero point with more than one element stand along `axis`."""
    return (x.astype(np.float32) - _along(x, zero, axis)) * _along(x, scale, axis)


def _along(x: Array, parameter: Array | None, axis: int) -> Array:
    if parameter is None:
        return np.float32(0)  # type: ignore[return-value]
    wide = np.asarray(parameter, np.float32)
    if wide.size == 1:
        return wide.reshape(())
    shape = [1] * x.ndim
    shape[axis] = wide.size
    return wide.reshape(shape)


def quantise(x: Array, scale: Array, zero: Array | None, dtype: Any = np.uint8) -> Array:
    """8-bit (or 16-bit) values, rounded to even and saturated."""
    target = np.dtype(dtype if zero is None else zero.dtype)
    limits = np.iinfo(target)
    offset = np.float32(0) if zero is None else np.asarray(zero, np.float32).reshape(())
    scaled = np.rint(x / np.asarray(scale, np.float32).reshape(())) + offset
    return np.clip(scaled, limits.min, limits.max).astype(target)


def _qlinear_binary(combine: Any) -> Implementation:
    def run(
        _node: Node,
        a: Array,
        a_scale: Array,
        a_zero: Array | None,
        b: Array,
        b_scale: Array,
        b_zero: Array | None,
        c_scale: Array,
        c_zero: Array | None = None,
    ) -> Array:
        y = combine(dequantise(a, a_scale, a_zero), dequantise(b, b_scale, b_zero))
        return quantise(y, c_scale, c_zero, a.dtype)

    return run


def _qlinear_unary(function: Any) -> Implementation:
    def run(
        node: Node, x: Array, x_scale: Array, x_zero: Array | None, y_scale: Array, y_zero: Array | None = None
    ) -> Array:
        return quantise(function(node, dequantise(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)

    return run


def _leaky(node: Node, x: Array) -> Array:
    return np.where(x < 0, x * np.float32(node.attributes.get("alpha", 0.01)), x)


def _softmax(node: Node, x: Array) -> Array:
    axis = int(node.attributes.get("axis", -1))
    if int(node.attributes.get("opset", 13)) < 13:
        axis %= x.ndim
        flat = x.reshape(int(np.prod(x.shape[:axis])), -1)
        return _softmax_rows(flat, -1).reshape(x.shape)
    return _softmax_rows(x, axis)


def _softmax_rows(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


def _global_average(node: Node, x: Array) -> Array:
    first = 1 if node.attributes.get("channels_last", 0) else 2
    last = x.ndim - 1 if first == 1 else x.ndim
    return np.asarray(x.mean(axis=tuple(range(first, last)), keepdims=True))


def _qlinear_concat(node: Node, y_scale: Array, y_zero: Array, *operands: Array) -> Array:
    """Operands are triples of a tensor, its scale and its zero point."""
    parts = [dequantise(*triple) for triple in zip(operands[::3], operands[1::3], operands[2::3], strict=True)]
    return quantise(np.concatenate(parts, axis=int(node.attributes["axis"])), y_scale, y_zero)


def _qlinear_where(
    _node: Node,
    condition: Array,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y: Array,
    y_scale: Array,
    y_zero: Array,
    z_scale: Array,
    z_zero: Array,
) -> Array:
    chosen = np.where(condition, dequantise(x, x_scale, x_zero), dequantise(y, y_scale, y_zero))
    return quantise(chosen, z_scale, z_zero)


def _qgemm(
    node: Node,
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    c: Array | None = None,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
) -> Array:
    """C is int32 in units of alpha * a_scale * b_scale; without y_scale the result is float32."""
    left, right = a.astype(np.int32) - a_zero.astype(np.int32), b.astype(np.int32)
    left = left.T if node.attributes.get("transA", 0) else left
    zeros = np.asarray(b_zero, np.int32)
    if node.attributes.get("transB", 0):
        right = right.T
    total = left @ (right - zeros) + (0 if c is None else c)
    y = total.astype(np.float32) * (float(node.attributes.get("alpha", 1.0)) * a_scale * b_scale)
    y = np.asarray(y, np.float32)
    return y if y_scale is None else quantise(y, y_scale, y_zero, a.dtype)


def _quantize_linear(node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    axis = int(node.attributes.get("axis", 1))
    target = np.dtype(np.uint8) if zero is None else zero.dtype
    limits = np.iinfo(target)
    scaled = np.rint(x.astype(np.float32) / _along(x, scale, axis)) + _along(x, zero, axis)
    return np.asarray(np.clip(scaled, limits.min, limits.max), target)


def _dequantize_linear(node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    return dequantise(x, scale, zero, int(node.attributes.get("axis", 1))).astype(scale.dtype)


def _matmul_n_bits(
    node: Node,
    a: Array,
    b: Array,
    scales: Array,
    zeros: Array | None = None,
    group: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """B [N, blocks, block bytes] holds `bits`-bit numbers, low bits first, in blocks along K with a scale each."""
    bits, block = int(node.attributes.get("bits", 4)), int(node.attributes["block_size"])
    k, n = int(node.attributes["K"]), int(node.attributes["N"])
    if group is not None or bits not in (2, 4, 8):
        raise ExecutionError("com.microsoft.MatMulNBits", f"g_idx and {bits} bits are not implemented")
    blocks = -(-k // block)
    values = _unpacked(b.reshape(n, blocks, -1), bits)[..., :block].astype(np.float32)
    scale = scales.reshape(n, blocks, 1).astype(np.float32)
    if zeros is None:
        offset: Any = np.float32(1 << (bits - 1))
    elif zeros.dtype == np.uint8:
        offset = _unpacked(zeros.reshape(n, -1), bits)[:, :blocks, None].astype(np.float32)
    else:
        offset = zeros.reshape(n, blocks, 1).astype(np.float32)
    weights = ((values - offset) * scale).reshape(n, -1)[:, :k]
    y = a.astype(np.float32) @ weights.T
    return np.asarray(y if bias is None else y + bias.astype(np.float32)).astype(a.dtype)


def _unpacked(x: Array, bits: int) -> Array:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (x[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(*x.shape[:-1], -1))


IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "DequantizeLinear": _dequantize_linear,
    "MatMulNBits": _matmul_n_bits,
    "QGemm": _qgemm,
    "QLinearAdd": _qlinear_binary(np.add),
    "QLinearConcat": _qlinear_concat,
    "QLinearGlobalAveragePool": _qlinear_unary(_global_average),
    "QLinearLeakyRelu": _qlinear_unary(_leaky),
    "QLinearMul": _qlinear_binary(np.multiply),
    "QLinearSigmoid": _qlinear_unary(lambda _node, x: 1 / (1 + np.exp(-x))),
    "QLinearSoftmax": _qlinear_unary(_softmax),
    "QLinearWhere": _qlinear_where,
    "QuantizeLinear": _quantize_linear,
}
