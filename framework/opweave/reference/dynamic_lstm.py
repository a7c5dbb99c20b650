"""com.microsoft.DynamicQuantizeLSTM: an LSTM with 8-bit weights whose left operands are quantised at every product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node
from opweave.reference.quantise import quantise_uint8

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_ACTIVATIONS: dict[str, Function] = {
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "hardsigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
}


def dynamic_quantize_lstm(
    node: Node,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    p: Array | None,
    w_scale: Array,
    w_zero: Array,
    r_scale: Array,
    r_zero: Array,
) -> tuple[Array, ...]:
    """X [seq, batch, input]; W [directions, input, 4*hidden] and R [directions, hidden, 4*hidden] transposed against LSTM.

    Gates are in the order i, o, f, c. Returns Y [seq, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden].
    """
    steps, batch, _ = x.shape
    directions, hidden = r.shape[0], r.shape[1]
    names = _activation_names(node, directions)
    valid = np.full(batch, steps) if lengths is None else lengths
    zeros = np.zeros((directions, batch, hidden), np.float32)
    h0, c0 = (zeros if s is None else s for s in (initial_h, initial_c))
    y = np.zeros((steps, directions, batch, hidden), np.float32)
    last_h, last_c = zeros.copy(), zeros.copy()
    for d in range(directions):
        backward = node.attributes.get("direction", "forward") == "reverse" or d == 1
        bias = np.zeros(8 * hidden, np.float32) if b is None else b[d]
        peephole = np.zeros(3 * hidden, np.float32) if p is None else p[d]
        gates = _product(x.reshape(steps * batch, -1), w[d], w_scale[d], w_zero[d])
        gates = gates.reshape(steps, batch, -1) + bias[: 4 * hidden] + bias[4 * hidden :]
        h, c = h0[d], c0[d]
        for step in range(steps):
            at = np.where(valid > step, (valid - 1 - step) if backward else step, 0)
            z = gates[at, np.arange(batch)] + _product(h, r[d], r_scale[d], r_zero[d])
            new_h, new_c = _cell(node, z, c, peephole, [_ACTIVATIONS[n] for n in names[3 * d : 3 * d + 3]])
            live = (valid > step)[:, None]
            h, c = np.where(live, new_h, h), np.where(live, new_c, c)
            rows = np.flatnonzero(valid > step)
            y[at[rows], d, rows] = h[rows]
        last_h[d], last_c[d] = h, c
    return y, last_h, last_c


def _activation_names(node: Node, directions: int) -> list[str]:
    names = [n.lower() for n in node.attributes.get("activations") or ["Sigmoid", "Tanh", "Tanh"] * directions]
    unknown = [n for n in names if n not in _ACTIVATIONS]
    if unknown:
        raise ExecutionError("DynamicQuantizeLSTM", f"activation {unknown[0]!r} is not implemented")
    return names


def _product(a: Array, weights: Array, scale: Array, zero: Array) -> Array:
    quantised, a_scale, a_zero = quantise_uint8(a)
    left = quantised.astype(np.int32) - np.int32(a_zero)
    right = weights.astype(np.int32) - zero.astype(np.int32)
    return np.asarray((left @ right).astype(np.float32) * (a_scale * scale))


def _cell(node: Node, z: Array, c: Array, peephole: Array, functions: list[Function]) -> tuple[Array, Array]:
    gate, inner, outer = functions
    clip = node.attributes.get("clip", 0.0)
    limit: Function = (lambda v: np.clip(v, -clip, clip)) if clip > 0 else (lambda v: v)
    zi, zo, zf, zc = np.split(z, 4, axis=-1)
    pi, po, pf = np.split(peephole, 3)
    i = gate(limit(zi + pi * c))
    f = 1 - i if node.attributes.get("input_forget", 0) else gate(limit(zf + pf * c))
    new_c = f * c + i * inner(limit(zc))
    return gate(limit(zo + po * new_c)) * outer(new_c), new_c
