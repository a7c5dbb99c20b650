"""ai.onnx.preview.FlexAttention: attention whose scores and probabilities pass through bodies of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opweave.dtypes import DType
from opweave.errors import ExecutionError
from opweave.graph import Node

Array = np.ndarray[Any, Any]
Modifier = Callable[[str, Array, Mapping[str, Any]], Array]


def flex_attention(node: Node, modify: Modifier, inputs: Sequence[Array], outer: Mapping[str, Any]) -> Array:
    """Q, K, V [batch, heads, length, head size]; `modify` runs the body of that name, if there is one."""
    q, k, v = inputs
    if {x.ndim for x in inputs} != {4} or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ExecutionError("FlexAttention", "operands are not 4-dimensional, or heads of Q no multiple of those of K")
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    dtype = _softmax_dtype(node, q.dtype)
    root = np.asarray(math.sqrt(node.attributes.get("scale", 1 / math.sqrt(max(q.shape[-1], 1)))), q.dtype)
    scores = np.matmul(q * root, np.swapaxes(k * root, -1, -2)).astype(dtype)
    scores = modify("score_mod", scores, outer)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = modify("prob_mod", weights / weights.sum(axis=-1, keepdims=True), outer)
    return np.asarray(np.matmul(weights, v.astype(dtype)), v.dtype)


def _softmax_dtype(node: Node, dtype: np.dtype[Any]) -> np.dtype[Any]:
    asked = node.attributes.get("softmax_precision")
    if asked is not None:
        return DType(asked).numpy
    return dtype if dtype == np.float64 else np.dtype(np.float32)
