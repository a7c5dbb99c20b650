"""Scales and shifts of channels behind a Conv, ConvTranspose or Gemm move into its weights.

BatchNormalization at inference is such a scale and shift (Ioffe and Szegedy 2015); so are Mul, Div, Add and Sub with a
constant that has one element, or one for each channel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from opweave.graph import Array, Node, Value
from opweave.passes.rewrite import Rewrite, View, array_of

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_FLOATS = (np.float32, np.float64)


@dataclass(frozen=True)
class Affine:
    """y = x * scale + shift for each channel; either may be None."""

    source: Value
    scale: Array | None
    shift: Array | None


@dataclass(frozen=True)
class _Layer:
    node: Node
    weights: Array
    bias: Array | None

    @property
    def groups(self) -> int:
        return int(self.node.attributes.get("group", 1))

    @property
    def channels(self) -> int:
        """Output channels."""
        if self.node.op_type == "Conv":
            return int(self.weights.shape[0])
        if self.node.op_type == "Gemm":
            return int(self.weights.shape[0 if self.node.attributes.get("transB", 0) else 1])
        return int(self.weights.shape[1]) * self.groups

    def scaled(self, scale: Array) -> Array:
        """The weights with every output channel multiplied."""
        rank = self.weights.ndim
        if self.node.op_type == "Gemm":
            return self.weights * (scale[:, None] if self.node.attributes.get("transB", 0) else scale)
        if self.node.op_type == "Conv":
            return self.weights * scale.reshape(-1, *[1] * (rank - 1))
        grouped = self.weights.reshape(self.groups, -1, *self.weights.shape[1:])
        by_group = scale.reshape(self.groups, 1, -1, *[1] * (rank - 2))
        wide: Array = (grouped * by_group).reshape(self.weights.shape)
        return wide


def fold_affine(node: Node, view: View) -> Rewrite | None:
    """The layer with new weights makes the result of the scale and shift."""
    if node.domain or node.op_type not in ("BatchNormalization", "Mul", "Div", "Add", "Sub"):
        return None
    layer, affine = _layer_before(node, view)
    if layer is None or affine is None:
        return None
    for part in (affine.scale, affine.shift):
        if part is not None and not (part.shape == (layer.channels,) and np.isfinite(part).all()):
            return None
    return Rewrite([_folded(layer, affine, node, view)])


def _layer_before(node: Node, view: View) -> tuple[_Layer | None, Affine | None]:
    for value in node.inputs[: 1 if node.op_type == "BatchNormalization" else 2]:
        producer = view.producer(value, *_LAYERS)
        if producer is not None and value is not None and view.only_reader(value) is node:
            layer = _layer(producer)
            return layer, None if layer is None else _affine(node, value, layer)
    return None, None


def _layer(node: Node) -> _Layer | None:
    weights = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
    third = node.inputs[2] if len(node.inputs) > 2 else None
    bias = array_of(third)
    if weights is None or weights.dtype not in _FLOATS or (third is not None and bias is None):
        return None
    if weights.ndim < 2 or any(node.attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None
    layer = _Layer(node, weights, bias)
    if layer.groups < 1 or weights.shape[0] % layer.groups:
        return None
    return layer if bias is None or bias.shape == (layer.channels,) else None


def _affine(node: Node, source: Value, layer: _Layer) -> Affine | None:
    if node.op_type == "BatchNormalization":
        return of_normalization(node, source)
    other = node.inputs[1] if node.inputs[0] is source else node.inputs[0]
    constant = array_of(other, layer.weights.nbytes)
    if constant is None or constant.dtype != layer.weights.dtype:
        return None
    vector = _per_channel(constant, layer)
    if vector is None or (node.op_type in ("Sub", "Div") and node.inputs[0] is not source):
        return None
    if node.op_type in ("Add", "Sub"):
        return Affine(source, None, vector if node.op_type == "Add" else -vector)
    return Affine(source, vector if node.op_type == "Mul" else 1 / vector, None)


def of_normalization(node: Node, source: Value) -> Affine | None:
    arrays = [array_of(v) for v in node.inputs[1:5]]
    if node.version < 14 or node.attributes.get("training_mode", 0) or any(v is not None for v in node.outputs[1:]):
        return None
    if len(arrays) != 4 or any(a is None or a.ndim != 1 or a.dtype not in _FLOATS for a in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    if not gamma.shape == beta.shape == mean.shape == variance.shape:
        return None
    epsilon = node.attributes.get("epsilon", 1e-5)
    if (variance + epsilon <= 0).any():
        return None
    scale = gamma / np.sqrt(variance + epsilon)
    return Affine(source, scale, beta - mean * scale)


def _per_channel(constant: Array, layer: _Layer) -> Array | None:
    """A vector over channels from a constant that broadcasts against the layer's result without changing its shape."""
    if layer.node.op_type == "Gemm":
        trailing, rank = 0, 2
    else:
        trailing, rank = layer.weights.ndim - 2, layer.weights.ndim
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if shape[0] != 1 or any(d != 1 for d in shape[2:]) or shape[1] not in (1, layer.channels):
        return None
    if trailing == 0 and rank != 2:
        return None
    return np.broadcast_to(constant.reshape(-1), (layer.channels,))


def _folded(layer: _Layer, affine: Affine, node: Node, view: View) -> Node:
    dtype = layer.weights.dtype
    weights, bias = layer.node.inputs[1], layer.node.inputs[2] if len(layer.node.inputs) > 2 else None
    with np.errstate(all="ignore"):
        if affine.scale is not None and weights is not None:
            weights = view.constant(layer.scaled(affine.scale.astype(dtype)), weights.name)
        shift = np.zeros(layer.channels, np.float64) if layer.bias is None else layer.bias.astype(np.float64)
        shift = shift if affine.scale is None else shift * affine.scale
        shift = shift if affine.shift is None else shift + affine.shift
    if layer.bias is not None or affine.shift is not None:
        hint = bias.name if bias is not None else f"{layer.node.name}_bias"
        bias = view.constant(shift.astype(dtype), hint)
    inputs = (layer.node.inputs[0], weights, *([bias] if bias is not None else []))
    name = view.node("Conv", (), affine.source, layer.node.name).name
    return replace(layer.node, name=name, inputs=inputs, outputs=(node.outputs[0],))
