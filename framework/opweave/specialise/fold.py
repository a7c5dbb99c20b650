"""Results that are known before any input is: shapes of known shapes, and small nodes with constant inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from opweave.errors import OpweaveError
from opweave.graph import Array, Node
from opweave.specialise.scope import SMALL, small_data
from opweave.types import TensorType, Type

_NEVER = frozenset(
    {
        "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
        "DequantizeLinear", "ImageDecoder",
    }
)  # fmt: skip
"""Random ones, and those that devices want to see with their constants."""

_BOUNDED = frozenset({"Compress", "NonZero", "Unique"})
"""Their results have a size that only the data tells, but never a large one."""

_HEAVY = ("Attention", "Conv", "DFT", "Deform", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "QLinear", "RNN", "STFT")
_LIGHT = 1 << 16
"""Bytes of inputs up to which the operators with these in their names, which compute much for each byte, are evaluated."""


def from_types(node: Node) -> Sequence[Array] | None:
    """The result of Shape or Size of a tensor whose shape is known (for Shape: in the part that is asked for)."""
    if node.domain or node.op_type not in ("Shape", "Size"):
        return None
    value = node.inputs[0]
    shape = value.tensor.shape if value is not None and value.tensor else None
    if shape is None:
        return None
    if node.op_type == "Shape":
        start, end = node.attributes.get("start", 0), node.attributes.get("end")
        shape = shape[slice(_clamp(start, len(shape)), None if end is None else _clamp(end, len(shape)))]
    sizes = [d for d in shape if isinstance(d, int)]
    if len(sizes) != len(shape):
        return None
    return [np.array(sizes if node.op_type == "Shape" else math.prod(sizes), np.int64)]


def _clamp(position: int, rank: int) -> int:
    return min(max(position + rank if position < 0 else position, 0), rank)


def evaluated(node: Node, types: Sequence[Type | None]) -> Sequence[Array] | None:
    """The results of a node whose inputs are all known, when they are small; None where it must run."""
    if node.op_type in _NEVER or not node.inputs or node.bodies:
        return None
    present = [v for v in node.inputs if v is not None]
    if any(v.constant is None for v in present):
        return None
    read = sum(v.constant.nbytes for v in present if v.constant is not None)
    if read > SMALL or not _is_small(node, types, read):
        return None
    from opweave.reference import evaluate

    try:
        results = evaluate(node, [None if v is None else small_data(v) for v in node.inputs])
    except OpweaveError:
        return None  # the run finds it, if it ever comes here
    return results if all(isinstance(r, np.ndarray) for r in results) else None


def _is_small(node: Node, types: Sequence[Type | None], read: int) -> bool:
    if read > _LIGHT and any(part in node.op_type for part in _HEAVY):
        return False
    if node.op_type in _BOUNDED:
        return read <= _LIGHT
    sizes = [_nbytes(t) for t in types]
    return bool(sizes) and all(size is not None for size in sizes) and sum(s for s in sizes if s is not None) <= SMALL


def _nbytes(value_type: Type | None) -> int | None:
    if not isinstance(value_type, TensorType) or value_type.static_shape is None:
        return None
    return math.prod(value_type.static_shape) * max(value_type.dtype.itemsize, 1)
