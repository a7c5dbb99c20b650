"""Types of blocked values, and constants on them."""

from __future__ import annotations

import math

import numpy as np
from opweave.dtypes import DType
from opweave.graph import Constant, Value
from opweave.types import Dim, TensorType

BLOCK = 16


def blocks_of(channels: int) -> int:
    return -(-channels // BLOCK)


def maps_of(value: Value | None) -> tuple[Dim, ...] | None:
    """The shape [N, C, spatial...] of a float32 value that can be blocked: known rank, one or two spatial axes, known C."""
    tensor = value.tensor if value is not None else None
    if tensor is None or tensor.dtype is not DType.FLOAT32 or tensor.shape is None or len(tensor.shape) not in (3, 4):
        return None
    return tensor.shape if isinstance(tensor.shape[1], int) and tensor.shape[1] > 0 else None


def channels_of(value: Value) -> int:
    """C of a value that can be blocked."""
    shape = maps_of(value)
    assert shape is not None
    channels = shape[1]
    assert isinstance(channels, int)
    return channels


def rank_of(value: Value) -> int:
    """Of a value that can be blocked, as it is plain."""
    shape = maps_of(value)
    assert shape is not None
    return len(shape)


def blocked_type(value: Value) -> TensorType:
    """The type of the blocked form of a value."""
    shape = maps_of(value)
    assert shape is not None
    return TensorType(DType.FLOAT32, (shape[0], blocks_of(channels_of(value)), *shape[2:], BLOCK))


def is_single(value: Value) -> bool:
    """One element, whatever the rank: it broadcasts to a blocked value as it is."""
    tensor = value.tensor
    shape = tensor.static_shape if tensor is not None else None
    return shape is not None and math.prod(shape) == 1 and len(shape) <= 4


def is_by_channel(value: Value, channels: int, rank: int) -> bool:
    """A float32 constant with one element a channel: it broadcasts like [1, C, 1...]."""
    shape = value.tensor.static_shape if value.tensor is not None and value.tensor.dtype is DType.FLOAT32 else None
    if value.constant is None or shape is None or len(shape) > rank:
        return False
    return (1,) * (rank - len(shape)) + shape == (1, channels) + (1,) * (rank - 2)


def blocked_constant(name: str, value: Value, rank: int) -> Value:
    """A constant with one element a channel, for operands that were of `rank` before they were blocked."""
    assert value.constant is not None
    array = np.asarray(value.constant.array).reshape(-1)
    wide = np.zeros(blocks_of(array.size) * BLOCK, np.float32)
    wide[: array.size] = array
    wide = wide.reshape(1, -1, *(1,) * (rank - 2), BLOCK)
    return Value(name, TensorType(DType.FLOAT32, wide.shape), Constant(wide))
