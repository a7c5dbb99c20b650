"""MaxPool of any rank; `onnx.reference` gets the indices wrong where spatial sizes differ."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node

Array = np.ndarray[Any, Any]


def max_pool(node: Node, x: Array) -> tuple[Array, Array]:
    """X [batch, channels, spatial...]; maxima, and their indices in all of X, flattened in `storage_order`."""
    sizes = x.shape[2:]
    kernel = [int(k) for k in node.attributes["kernel_shape"]]
    if not sizes or len(kernel) != len(sizes):
        raise ExecutionError("MaxPool", f"a kernel of {len(kernel)} dimensions on {len(sizes)} spatial ones")
    windows = [_positions(node, axis, k, size) for axis, (k, size) in enumerate(zip(kernel, sizes, strict=True))]
    out = tuple(len(w) for w in windows)
    lowest: Any = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    best = np.full((*x.shape[:2], *out), lowest, x.dtype)
    where = np.full(best.shape, -1, np.int64)
    base = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(sizes)) * int(np.prod(sizes))
    strides = _strides(sizes, bool(node.attributes.get("storage_order", 0)))
    for offsets in np.ndindex(*kernel):
        places = [w[:, o] for w, o in zip(windows, offsets, strict=True)]
        inside = functools.reduce(
            np.logical_and, _open([(p >= 0) & (p < n) for p, n in zip(places, sizes, strict=True)])
        )
        grid = _open([p.clip(0, n - 1) for p, n in zip(places, sizes, strict=True)])
        index: Any = (slice(None), slice(None), *grid)
        found = x[index]
        flat = sum(g * s for g, s in zip(grid, strides, strict=True)) + base
        better = inside & ((where < 0) | (found > best))
        best, where = np.where(better, found, best), np.where(better, flat, where)
    return best, where


def _open(arrays: Sequence[Array]) -> list[Array]:
    """Each along an axis of its own, to broadcast with the others."""
    return [a.reshape([-1 if i == axis else 1 for i in range(len(arrays))]) for axis, a in enumerate(arrays)]


def _strides(sizes: Sequence[int], column_major: bool) -> list[int]:
    order = range(len(sizes)) if column_major else range(len(sizes) - 1, -1, -1)
    strides, step = [0] * len(sizes), 1
    for axis in order:
        strides[axis] = step
        step *= sizes[axis]
    return strides


def _positions(node: Node, axis: int, kernel: int, size: int) -> Array:
    """Positions along one axis that each window looks at, [outputs, kernel]; those outside lie in the padding."""
    rank = len(node.attributes["kernel_shape"])
    stride = int((node.attributes.get("strides") or [1] * rank)[axis])
    dilation = int((node.attributes.get("dilations") or [1] * rank)[axis])
    extent = dilation * (kernel - 1) + 1
    begin, end = _padding(node, axis, rank, stride, extent, size)
    room = size + begin + end - extent
    count = (-(-room // stride) if node.attributes.get("ceil_mode", 0) else room // stride) + 1
    if node.attributes.get("ceil_mode", 0) and (count - 1) * stride >= size + begin:
        count -= 1  # a window that starts in the padding behind the input
    starts = np.arange(max(count, 0)) * stride - begin
    return np.asarray(starts[:, None] + np.arange(kernel) * dilation)


def _padding(node: Node, axis: int, rank: int, stride: int, extent: int, size: int) -> tuple[int, int]:
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return 0, 0
    if mode == "NOTSET":
        pads = node.attributes.get("pads") or [0] * 2 * rank
        return int(pads[axis]), int(pads[rank + axis])
    total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if mode == "SAME_UPPER" else (more, less)
