"""The com.microsoft operators that exported and optimised models contain (ONNX Runtime, ContribOperators.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from opweave.graph import Node
from opweave.reference import contrib_fused, contrib_quantised
from opweave.reference.attention import attention, multi_head_attention
from opweave.reference.dynamic_lstm import dynamic_quantize_lstm
from opweave.reference.operators import Array, Implementation, Kernel, plain
from opweave.reference.quantise import quantise_uint8

_ERF = np.frompyfunc(math.erf, 1, 1)


def _wide(x: Array) -> Array:
    """The element type to compute in: double for double, single for anything narrower."""
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _gelu(_node: Node, x: Array, bias: Array | None = None) -> Array:
    wide = _wide(x) if bias is None else _wide(x) + _wide(bias)
    erf = np.asarray(_ERF(wide / np.sqrt(2.0)), np.float64)
    return np.asarray(0.5 * wide * (1 + erf)).astype(x.dtype)


def _fast_gelu(_node: Node, x: Array, bias: Array | None = None) -> Array:
    wide = _wide(x) if bias is None else _wide(x) + _wide(bias)
    inner = 0.7978845608028654 * wide * (1 + 0.044715 * wide * wide)
    return np.asarray(0.5 * wide * (1 + np.tanh(inner))).astype(x.dtype)


def _quick_gelu(node: Node, x: Array) -> Array:
    wide = _wide(x)
    return np.asarray(wide / (1 + np.exp(-float(node.attributes.get("alpha", 1.702)) * wide))).astype(x.dtype)


def _fused_matmul(node: Node, a: Array, b: Array) -> Array:
    left = _transposed(a, bool(node.attributes.get("transA", 0)), bool(node.attributes.get("transBatchA", 0)))
    right = _transposed(b, bool(node.attributes.get("transB", 0)), bool(node.attributes.get("transBatchB", 0)))
    product = np.matmul(_wide(left), _wide(right)) * float(node.attributes.get("alpha", 1.0))
    return np.asarray(product).astype(a.dtype)


def _transposed(x: Array, inner: bool, batch: bool) -> Array:
    """`batch` moves the first axis behind the batch axes, `inner` swaps the last two; vectors stay."""
    if x.ndim < 2:
        return x
    if batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if inner else x


def _normalised(x: Array, gamma: Array, beta: Array | None, epsilon: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(np.square(x - mean).mean(axis=-1, keepdims=True) + epsilon)
    y = (x - mean) * inverse * _wide(gamma)
    return (y if beta is None else y + _wide(beta)), mean, inverse


def _skip_layer_normalization(
    node: Node, x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None
) -> tuple[Array, ...]:
    total = _wide(x) + _wide(skip)
    total = total if bias is None else total + _wide(bias)
    y, mean, inverse = _normalised(total, gamma, beta, float(node.attributes.get("epsilon", 1e-12)))
    return y.astype(x.dtype), mean, inverse, total.astype(x.dtype)


def _skip_simplified_layer_normalization(
    node: Node, x: Array, skip: Array, gamma: Array, bias: Array | None = None
) -> tuple[Array, ...]:
    total = _wide(x) + _wide(skip)
    total = total if bias is None else total + _wide(bias)
    inverse = 1 / np.sqrt(np.square(total).mean(axis=-1, keepdims=True) + float(node.attributes.get("epsilon", 1e-12)))
    return (total * inverse * _wide(gamma)).astype(x.dtype), None, inverse, total.astype(x.dtype)  # type: ignore[return-value]


def _embed_layer_normalization(
    node: Node,
    ids: Array,
    segments: Array | None,
    words: Array,
    positions: Array,
    segment_table: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
) -> tuple[Array, ...]:
    places = np.arange(ids.shape[1])[None] if position_ids is None else position_ids
    total = _wide(words[ids]) + _wide(positions[places])
    if segments is not None and segment_table is not None:
        total = total + _wide(segment_table[segments])
    y, _, _ = _normalised(total, gamma, beta, float(node.attributes.get("epsilon", 1e-12)))
    lengths = np.zeros(len(ids), np.int32) if mask is None else mask.sum(axis=1).astype(np.int32)
    return y.astype(words.dtype), lengths, total.astype(words.dtype)


def _matmul_integer_to_float(
    _node: Node,
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero: Array | None = None,
    b_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:
    left = a.astype(np.int32) - (0 if a_zero is None else a_zero.astype(np.int32))
    right = b.astype(np.int32) - (0 if b_zero is None else b_zero.astype(np.int32))
    y = np.matmul(left, right).astype(np.float32) * (_wide(a_scale) * _wide(b_scale))
    return np.asarray(y if bias is None else y + _wide(bias)).astype(a_scale.dtype)


def _dynamic_quantize_matmul(
    node: Node, a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
) -> Array:
    quantised, scale, zero = quantise_uint8(a)
    return _matmul_integer_to_float(node, quantised, b, scale, b_scale, zero, b_zero, bias)


_IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "FusedMatMul": _fused_matmul,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
}

OPERATORS: Mapping[tuple[str, str], Callable[[Node], Kernel]] = {
    ("", "SimplifiedLayerNormalization"): plain(contrib_fused.simplified_layer_normalization),
    **{
        ("com.microsoft", name): plain(implementation)
        for table in (_IMPLEMENTATIONS, contrib_fused.IMPLEMENTATIONS, contrib_quantised.IMPLEMENTATIONS)
        for name, implementation in table.items()
    },
}
