"""ONNX operators that `onnx.reference` lacks or computes wrongly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node
from opweave.reference.max_pool import max_pool

Array = np.ndarray[Any, Any]
Kernel = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...]]
Implementation = Callable[..., Any]


def plain(implementation: Implementation) -> Callable[[Node], Kernel]:
    """Wraps `f(node, *inputs) -> array or tuple of arrays`."""

    def make(node: Node) -> Kernel:
        def run(inputs: Sequence[Any], _outer: Mapping[str, Any]) -> tuple[Any, ...]:
            made = implementation(node, *inputs)
            return made if isinstance(made, tuple) else (made,)

        return run

    return make


def _scatter(node: Node, data: Array, indices: Array, updates: Array) -> Array:
    """The form that ScatterElements replaced in operator set 11."""
    axis = int(node.attributes.get("axis", 0))
    result: Array = data.copy()
    np.put_along_axis(result, np.where(indices < 0, indices + data.shape[axis], indices), updates, axis)
    return result


def _global_lp_pool(node: Node, x: Array) -> Array:
    p = float(node.attributes.get("p", 2))
    axes = tuple(range(2, x.ndim))
    total: Array = np.sum(np.abs(x.astype(np.float64)) ** p, axis=axes, keepdims=True) ** (1 / p)
    return np.asarray(total, x.dtype)


def _global_max_pool(_node: Node, x: Array) -> Array:
    """onnx.reference takes the maxima over the wrong axes unless there are two spatial ones."""
    return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))


def _mean(_node: Node, *operands: Array) -> Array:
    """onnx.reference does not broadcast."""
    total = functools.reduce(np.add, operands)
    return np.asarray(total / np.asarray(len(operands), total.dtype), operands[0].dtype)


def _flatten(node: Node, x: Array) -> Array:
    axis = int(node.attributes.get("axis", 1))
    if not -x.ndim <= axis <= x.ndim:
        raise ExecutionError("Flatten", f"the axis {axis} of {x.ndim} dimensions")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _split(node: Node, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    """onnx.reference forgets parts that are empty."""
    axis = int(node.attributes.get("axis", 0))
    count = int(node.attributes.get("num_outputs", 0)) or len(node.outputs)
    if sizes is None:
        part = -(-x.shape[axis] // count)
        sizes = np.diff(np.minimum(np.arange(count + 1) * part, x.shape[axis]))
    if sizes.sum() != x.shape[axis] or (sizes < 0).any() or len(sizes) < len(node.outputs):
        raise ExecutionError("Split", f"parts of {sizes.tolist()} in a dimension of {x.shape[axis]}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _max_roi_pool(node: Node, x: Array, rois: Array) -> Array:
    """Each region (batch index, x1, y1, x2, y2), scaled and rounded, is cut into a grid and its maxima taken."""
    height, width = (int(n) for n in node.attributes["pooled_shape"])
    scale = float(node.attributes.get("spatial_scale", 1.0))
    out = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for r, (batch, *corners) in enumerate(np.asarray(rois, np.float64)):
        x1, y1, x2, y2 = (int(np.floor(c * scale + 0.5)) for c in corners)
        if not 0 <= int(batch) < x.shape[0]:
            raise ExecutionError("MaxRoiPool", f"a region names batch item {int(batch)} of {x.shape[0]}")
        image = x[int(batch)]
        for i, rows in enumerate(_bins(y1, y2, height, image.shape[1])):
            for j, columns in enumerate(_bins(x1, x2, width, image.shape[2])):
                cell = image[:, rows, columns]
                if cell.size:
                    out[r, :, i, j] = cell.max(axis=(1, 2))
    return out


def _bins(first: int, last: int, count: int, limit: int) -> list[slice]:
    size = max(last - first + 1, 1) / count
    edges = [(int(np.floor(i * size)) + first, int(np.ceil((i + 1) * size)) + first) for i in range(count)]
    return [slice(min(max(a, 0), limit), min(max(b, 0), limit)) for a, b in edges]


def _multinomial(node: Node, x: Array) -> Array:
    """Samples of the categories of each row of logarithms of (unnormalised) probabilities."""
    count = int(node.attributes.get("sample_size", 1))
    seed = node.attributes.get("seed")
    generator = np.random.default_rng(None if seed is None else abs(int(np.float32(seed).view(np.int32))))
    weights = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    edges = np.cumsum(weights, axis=1)
    draws = generator.random((len(x), count)) * edges[:, -1:]
    chosen = (draws[:, :, None] >= edges[:, None, :]).sum(axis=2)
    return np.asarray(chosen, np.int64 if int(node.attributes.get("dtype", 6)) == 7 else np.int32)


OPERATORS: Mapping[tuple[str, str], Callable[[Node], Kernel]] = {
    ("", "Scatter"): plain(_scatter),
    ("", "GlobalLpPool"): plain(_global_lp_pool),
    ("", "GlobalMaxPool"): plain(_global_max_pool),
    ("", "Flatten"): plain(_flatten),
    ("", "MaxPool"): plain(max_pool),
    ("", "Mean"): plain(_mean),
    ("", "Split"): plain(_split),
    ("", "MaxRoiPool"): plain(_max_roi_pool),
    ("", "Multinomial"): plain(_multinomial),
}
