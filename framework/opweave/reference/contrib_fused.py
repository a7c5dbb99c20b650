"""Operators of com.microsoft that are an ONNX operator and something more: evaluated as that operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node
from opweave.reference.operators import Array, Implementation


def _onnx(node: Node, op_type: str, inputs: Sequence[Any], names: Sequence[str]) -> Array:
    """The ONNX operator with those attributes of the node that it has."""
    from opweave.reference.evaluator import evaluate

    attributes = {k: v for k, v in node.attributes.items() if k in names}
    plain = replace(
        node, domain="", op_type=op_type, attributes=attributes, version=0, inputs=node.inputs[: len(inputs)]
    )
    return np.asarray(evaluate(plain, inputs)[0])


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_GEMM = ("alpha", "beta", "transA", "transB")


def _fused_conv(node: Node, x: Array, w: Array, b: Array | None = None, z: Array | None = None) -> Array:
    y = _onnx(node, "Conv", [x, w, b], _CONV)
    return _activated(node, y if z is None else y + z)


def _fused_gemm(node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    return _activated(node, _onnx(node, "Gemm", [a, b, c], _GEMM))


def _activated(node: Node, x: Array) -> Array:
    """`activation` with `activation_params` (FusedConv) or `activation_alpha` and `activation_beta` (FusedGemm)."""
    name = node.attributes.get("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise ExecutionError(node.operator, f"the activation {name!r} is not implemented")
    given = list(node.attributes.get("activation_params") or ())
    given = given or [node.attributes[k] for k in ("activation_alpha", "activation_beta") if k in node.attributes]
    return np.asarray(_ACTIVATIONS[name](x, *given)).astype(x.dtype)


_ACTIVATIONS: Mapping[str, Callable[..., Array]] = {
    "Clip": np.clip,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, alpha * x, x),
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}


def _nhwc_max_pool(node: Node, x: Array) -> Array:
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    return np.moveaxis(_onnx(node, "MaxPool", [np.moveaxis(x, -1, 1)], names), 1, -1)


def _trilu(node: Node, x: Array, k: Array | None = None) -> Array:
    offset = 0 if k is None else int(np.asarray(k).reshape(()))
    return np.triu(x, offset) if node.attributes.get("upper", 1) else np.tril(x, offset)


def _inverse(_node: Node, x: Array) -> Array:
    return np.asarray(np.linalg.inv(x.astype(np.float64)), x.dtype)


def simplified_layer_normalization(node: Node, x: Array, scale: Array) -> tuple[Array, ...]:
    """RMS normalisation over the axes from `axis` on, in the default domain of exported models."""
    axes = tuple(range(int(node.attributes.get("axis", -1)) % x.ndim, x.ndim))
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    mean = np.square(wide).mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(mean + float(node.attributes.get("epsilon", 1e-5)))
    return (wide * inverse * scale.astype(wide.dtype)).astype(scale.dtype), inverse


def _rotary_embedding(node: Node, x: Array, positions: Array, cosine: Array, sine: Array) -> Array:
    """X [batch, seq, hidden] or [batch, heads, seq, size]; positions [1] (an offset) or [batch, seq]."""
    size = cosine.shape[-1] * 2
    split = x if x.ndim == 4 else np.swapaxes(x.reshape(*x.shape[:2], -1, _head_size(node, x, size)), 1, 2)
    batch, _, length, _ = split.shape
    places = positions.reshape(-1)[0] + np.arange(length)[None] if positions.size == 1 else positions
    cos, sin = (
        np.broadcast_to(t[places], (batch, length, size // 2))[:, None].astype(np.float32) for t in (cosine, sine)
    )
    turned, rest = split[..., :size].astype(np.float32), split[..., size:]
    if node.attributes.get("interleaved", 0):
        a, b = turned[..., 0::2], turned[..., 1::2]
        made = np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(turned.shape)
    else:
        a, b = np.split(turned, 2, axis=-1)
        made = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    y = np.concatenate([made.astype(x.dtype), rest], axis=-1)
    return y if x.ndim == 4 else np.swapaxes(y, 1, 2).reshape(x.shape)


def _head_size(node: Node, x: Array, rotary: int) -> int:
    heads = int(node.attributes.get("num_heads", 0))
    return x.shape[-1] // heads if heads else rotary


IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "Inverse": _inverse,
    "NhwcMaxPool": _nhwc_max_pool,
    "RotaryEmbedding": _rotary_embedding,
    "Trilu": _trilu,
}
