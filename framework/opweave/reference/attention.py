"""com.microsoft.Attention and MultiHeadAttention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node

Array = np.ndarray[Any, Any]


def attention(
    node: Node,
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    _past_length: Array | None = None,
) -> tuple[Array, ...]:
    """X [batch, seq, input], weights [input, q+k+v], past and present [2, batch, heads, seq, head size]."""
    if node.attributes.get("do_rotary", 0) or node.attributes.get("past_present_share_buffer", 0):
        raise ExecutionError("com.microsoft.Attention", "do_rotary and past_present_share_buffer are not implemented")
    heads = int(node.attributes["num_heads"])
    third = weights.shape[1] // 3
    sizes = list(node.attributes.get("qkv_hidden_sizes") or [third, third, third])
    projected = np.matmul(x.astype(np.float32), weights.astype(np.float32))
    projected = projected if bias is None else projected + bias.astype(np.float32)
    q, k, v = (_heads(p, heads) for p in np.split(projected, np.cumsum(sizes)[:2], axis=-1))
    if past is not None:
        k, v = np.concatenate([past[0], k], axis=2), np.concatenate([past[1], v], axis=2)
    y = _attend(node, q, k, v, mask, attention_bias)
    present = np.stack([k, v]) if k.shape == v.shape else k
    return y.astype(x.dtype), present.astype(x.dtype)


def multi_head_attention(
    node: Node,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
) -> tuple[Array, ...]:
    """Query, key, value [batch, seq, hidden], or packed as ContribOperators.md allows; `bias` is that of all three."""
    heads = int(node.attributes["num_heads"])
    q, k, v = _unpack(query, key, value, bias, heads)
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
    y = _attend(node, q, k, v, mask, attention_bias)
    return y.astype(query.dtype), k.astype(query.dtype), v.astype(query.dtype)


def _unpack(query: Array, key: Array | None, value: Array | None, bias: Array | None, heads: int) -> list[Array]:
    """Each as [batch, heads, seq, head size]."""
    if query.ndim == 5:
        return [np.moveaxis(query[:, :, :, i], 1, 2).astype(np.float32) for i in range(3)]
    if key is None:
        raise ExecutionError("com.microsoft.MultiHeadAttention", "key is missing and query is not packed")
    parts = [query, key, value]
    if key.ndim == 5:
        parts = [query, key[:, :, :, 0].reshape(*key.shape[:2], -1), key[:, :, :, 1].reshape(*key.shape[:2], -1)]
    hidden = query.shape[-1]
    split = [None] * 3 if bias is None else np.split(bias, [hidden, 2 * hidden])
    return [_with_bias(p, b, heads) for p, b in zip(parts, split, strict=True) if p is not None]


def _with_bias(x: Array, bias: Array | None, heads: int) -> Array:
    if x.ndim == 4:
        return x.astype(np.float32)
    return _heads(x.astype(np.float32) + (0 if bias is None else bias.astype(np.float32)), heads)


def _heads(x: Array, heads: int) -> Array:
    return np.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def _attend(node: Node, q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None) -> Array:
    scale = float(node.attributes.get("scale") or 1 / math.sqrt(q.shape[-1]))
    low = float(node.attributes.get("mask_filter_value", -10000.0))
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * scale
    queries, keys = scores.shape[-2:]
    if bias is not None:
        scores = scores + bias.astype(np.float32)
    if mask is not None:
        scores = np.where(_keep(mask, len(q), queries, keys), scores, scores + low)
    if node.attributes.get("unidirectional", 0):
        scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = np.matmul(scores / scores.sum(axis=-1, keepdims=True), v)
    return np.asarray(np.swapaxes(y, 1, 2).reshape(len(q), queries, -1))


def _keep(mask: Array, batch: int, queries: int, keys: int) -> Array:
    """Which keys a query sees, to broadcast with [batch, heads, queries, keys], from any form of ContribOperators.md."""
    places = np.arange(keys)
    if mask.ndim == 1 and len(mask) == batch:
        return (places[None] < mask[:, None])[:, None, None]
    if mask.ndim == 1 and len(mask) == 2 * batch:
        end, start = mask[:batch, None], mask[batch:, None]
        return ((places[None] < end) & (places[None] >= start))[:, None, None]
    if mask.ndim == 2:
        return np.asarray((mask != 0)[:, None, None])
    if mask.ndim == 3:
        return np.asarray((mask != 0)[:, None])
    raise ExecutionError("attention", f"a mask of shape {list(mask.shape)} is not implemented for {queries} queries")
