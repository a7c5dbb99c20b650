"""Dynamic quantisation as ONNX's DynamicQuantizeLinear defines it."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def quantise_uint8(x: Array) -> tuple[Array, Array, Array]:
    """Quantised values, scale (float32 scalar), zero point (uint8 scalar); the range always contains 0."""
    low = np.float32(min(0.0, float(x.min(initial=0.0))))
    high = np.float32(max(0.0, float(x.max(initial=0.0))))
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    quantised = np.clip(np.rint(x.astype(np.float32) / scale) + zero, 0, 255).astype(np.uint8)
    return quantised, np.asarray(scale), np.asarray(zero)
