"""Kernels on blocked tensors ([N, ceil(C / 16), spatial..., 16]) against those on plain ones. Lanes past the last channel
hold NaN here: none may reach a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opweave_cpu import _core

from .conftest import Array, Core


def blocked(x: Array) -> Array:
    """By NumPy; NaN past the last channel."""
    n, channels, *spatial = x.shape
    blocks = -(-channels // 16)
    wide = np.full((n, blocks * 16, *spatial), np.nan, np.float32)
    wide[:, :channels] = x
    return np.ascontiguousarray(np.moveaxis(wide.reshape(n, blocks, 16, *spatial), 2, -1))


def plain(x: Array, channels: int) -> Array:
    n, blocks, *spatial, _ = x.shape
    return np.moveaxis(x, -1, 2).reshape(n, blocks * 16, *spatial)[:, :channels]


def run(core: Core, op: str, inputs: list[Array | None], attrs: dict[str, Any], constant: bool = False) -> Array:
    (result,) = core.run(op, inputs, attrs, domain="opweave", threads=2, constant=constant)
    return result


SHAPES = [
    (1, 1, 1),
    (2, 16, 5),
    (1, 3, 7, 9),
    (2, 33, 16, 16),
    (1, 40, 33, 37),
    (3, 64, 1, 1),
    (1, 17, 0, 4),
    (1, 5, 2, 3, 4),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reorders(core: Core, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    there = run(core, "ToBlocked", [x], {"channels": shape[1]})
    assert there.shape == blocked(x).shape
    np.testing.assert_array_equal(plain(there, shape[1]), x)
    assert not there[np.isnan(blocked(x))].any()  # zeros, so that no lane is slow
    np.testing.assert_array_equal(run(core, "FromBlocked", [blocked(x)], {"channels": shape[1]}), x)


def test_reorders_refuse(core: Core) -> None:
    x = np.zeros((1, 20, 4, 4), np.float32)
    for op, bad, channels in (("ToBlocked", x, 21), ("FromBlocked", blocked(x), 40), ("FromBlocked", x, 20)):
        with pytest.raises(_core.BadOperand):
            run(core, op, [bad], {"channels": channels})


def window(rng: np.random.Generator, spatial: int) -> dict[str, Any]:
    kernel = [int(k) for k in rng.choice([1, 2, 3, 3, 5, 7], spatial)]
    pads = [int(rng.integers(0, k)) for k in kernel * 2]
    strides, dilations = ([int(s) for s in rng.choice([1, 1, 2, 3], spatial)] for _ in range(2))
    return {"kernel_shape": kernel, "pads": pads, "strides": strides, "dilations": dilations}


def sizes(rng: np.random.Generator, attrs: dict[str, Any]) -> list[int]:
    extents = [(k - 1) * d + 1 for k, d in zip(attrs["kernel_shape"], attrs["dilations"], strict=True)]
    return [e + int(rng.integers(0, 20)) for e in extents]


ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("", []),
    ("Relu", []),
    ("Clip", [0.0, 0.5]),
    ("HardSwish", []),
    ("LeakyRelu", [0.2]),
]


@pytest.mark.parametrize("seed", range(40))
def test_depthwise(core: Core, seed: int) -> None:
    rng = np.random.default_rng(seed)
    attrs = window(rng, 1 + seed % 2)
    channels = int(rng.choice([1, 7, 16, 24, 40]))
    x = rng.standard_normal((2, channels, *sizes(rng, attrs))).astype(np.float32)
    w = rng.standard_normal((channels, 1, *attrs["kernel_shape"])).astype(np.float32)
    bias = rng.standard_normal(channels).astype(np.float32) if seed % 3 else None
    activation, params = ACTIVATIONS[seed % 5]
    attrs |= {"group": channels, "activation": activation, "activation_params": params}
    (shape,) = (y.shape for y in core.run("FusedConv", [x, w, bias, None], attrs, domain="opweave"))
    residual = rng.standard_normal(shape).astype(np.float32) if seed % 4 else None
    (wanted,) = core.run("FusedConv", [x, w, bias, residual], attrs, domain="opweave")
    extra = None if residual is None else blocked(residual)
    for constant in (False, True):
        got = run(core, "BlockedDepthwise", [blocked(x), w, bias, extra], attrs, constant)
        np.testing.assert_allclose(plain(got, channels), wanted, 1e-5, 1e-5)


def test_depthwise_refuses(core: Core) -> None:
    x, w = blocked(np.zeros((1, 20, 5, 5), np.float32)), np.zeros((20, 1, 3, 3), np.float32)
    attrs = {"group": 20}
    for given in (
        [x, w[:16], None, None],
        [x, w, np.zeros(3, np.float32), None],
        [x, w, None, x],
        [x[..., :8], w, None, None],
        [x.astype(np.float64), w, None, None],
        [np.zeros((1, 20, 5, 5), np.float32), w, None, None],
    ):
        with pytest.raises(_core.BadOperand):
            run(core, "BlockedDepthwise", given, attrs)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("seed", range(30))
def test_pool(core: Core, seed: int, op: str) -> None:
    rng = np.random.default_rng(seed)
    attrs = window(rng, 1 + seed % 2) | {"ceil_mode": int(seed % 3 == 0)}
    if op == "AveragePool":
        attrs["count_include_pad"] = seed // 2 % 2
    channels = int(rng.choice([1, 16, 24, 40]))
    x = rng.standard_normal((2, channels, *sizes(rng, attrs))).astype(np.float32)
    (wanted,) = core.run(op, [x], attrs)
    got = run(core, "BlockedPool", [blocked(x)], attrs | {"kind": op, "channels": channels})
    np.testing.assert_allclose(plain(got, channels), wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 20, 7, 7), (1, 64, 30, 31), (2, 16, 100)], ids=str)
def test_global_pool(core: Core, op: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (wanted,) = core.run(op, [x])
    got = run(core, "BlockedPool", [blocked(x)], {"kind": op, "channels": shape[1]})
    np.testing.assert_allclose(plain(got, shape[1]), wanted, 1e-5, 1e-6)


def test_pool_refuses(core: Core) -> None:
    x = blocked(np.zeros((1, 20, 5, 5), np.float32))
    for attrs in (
        {"kind": "MaxPool"},
        {"kind": "LpPool", "kernel_shape": [2, 2]},
        {"kind": "MaxPool", "kernel_shape": [9, 9]},
    ):
        with pytest.raises(_core.BadOperand):
            run(core, "BlockedPool", [x], attrs | {"channels": 20})
    with pytest.raises(_core.BadOperand):
        run(core, "BlockedPool", [x], {"kind": "GlobalMaxPool", "channels": 40})
