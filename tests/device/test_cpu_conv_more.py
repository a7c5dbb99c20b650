"""Transposed, integer and quantised convolution and Col2Im of the C++ core, against ONNX Runtime and NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy
import numpy as np
import pytest
from opweave_cpu import _core

from .conftest import Array, Core
from .test_cpu_conv import TOLERANCE, conv, draw, peer


def transpose_attrs(rng: np.random.Generator, size: list[int], kernel: list[int]) -> dict[str, Any]:
    n = len(size)
    strides = [int(v) for v in rng.integers(1, 4, n)]
    dilations = [int(v) for v in rng.integers(1, 3, n)]
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations}
    kind = int(rng.integers(0, 4))
    if kind == 1:
        attrs["output_padding"] = [int(rng.integers(0, s)) for s in strides]
    if kind == 2:
        attrs["output_shape"] = [s * i for s, i in zip(strides, size, strict=True)]
    if kind == 3:  # ONNX Runtime makes a smaller output than ONNX asks for where a kernel is smaller than its stride
        same = all(k >= s for k, s in zip(kernel, strides, strict=True))
        attrs["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"])) if same else "VALID"
    return attrs


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(40))
def test_transpose(core: Core, seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    n, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    size = [int(v) for v in rng.integers(1, 40 if n == 1 else 12, n)]
    kernel = [int(v) for v in rng.integers(1, 5, n)]
    ic, oc = int(rng.integers(1, 8)), int(rng.integers(1, 30))
    x = rng.standard_normal((int(rng.integers(1, 3)), groups * ic, *size)).astype(dtype)
    w = rng.standard_normal((groups * ic, oc, *kernel)).astype(dtype)
    bias = rng.standard_normal(groups * oc).astype(dtype)
    attrs = transpose_attrs(rng, size, kernel) | {"group": groups}
    if "output_shape" not in attrs and "auto_pad" not in attrs:
        extent = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"], strict=True)]
        attrs["pads"] = [int(rng.integers(0, (e + 1) // 2)) for e in (*extent, *extent)]
    wanted = peer("ConvTranspose", [a.astype(np.float32) for a in (x, w, bias)], attrs)
    (got,) = core.run("ConvTranspose", [x, w, bias], attrs, threads=2, constant=bool(seed % 2))
    assert got.dtype == x.dtype
    assert got.shape == wanted.shape
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(got.astype(np.float64) / scale, wanted / scale, rtol=0, atol=max(TOLERANCE[dtype], 1e-6))


def test_transpose_is_the_gradient_of_a_convolution(core: Core) -> None:
    """<conv(x), g> equals <x, transpose(g)>, over long rows that are worked in pieces."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 2 * 9001))
    w = rng.standard_normal((7, 3, 5))
    attrs = {"strides": [2], "pads": [2, 1]}
    y = conv(x, w, attrs)
    g = rng.standard_normal(y.shape)
    for dtype in (np.float64, np.float32):
        (back,) = core.run("ConvTranspose", [g.astype(dtype), w.astype(dtype)], attrs)
        assert back.shape == x.shape
        np.testing.assert_allclose((y * g).sum(), (x * back).sum(), rtol=1e-4)


@pytest.mark.parametrize(
    "attrs",
    [{"group": 0}, {"group": 2**62}, {"output_padding": [1]}, {"output_padding": [-1, 0]}, {"output_shape": [2**40, 2**40]},
     {"pads": [300] * 4}, {"strides": [2**31, 2**31]}, {"dilations": [2**31, 2**31]}, {"kernel_shape": [2, 2]},
     {"output_shape": [-1, 4]}, {"strides": [0, 1]}],
    ids=str,
)  # fmt: skip
def test_hostile_transpose(core: Core, attrs: dict[str, Any]) -> None:
    for dtype in (np.float32, np.float64):
        with pytest.raises(_core.BadOperand):
            core.run("ConvTranspose", [np.zeros((1, 2, 400, 400), dtype), np.zeros((2, 3, 3, 3), dtype)], attrs)


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("types", list(itertools.product(["uint8", "int8"], repeat=2)), ids="-".join)
@pytest.mark.parametrize("seed", range(12))
def test_integer(core: Core, seed: int, types: tuple[str, str], per_channel: bool) -> None:
    rng = np.random.default_rng(seed)
    drawn = draw(rng, depthwise=seed % 3 == 0)
    x, w, attrs = integers(rng, drawn[0].shape, types[0]), integers(rng, drawn[1].shape, types[1]), drawn[2]
    x_zero, w_zero = integers(rng, (), types[0]), integers(rng, (w.shape[0],) if per_channel else (), types[1])
    zero = w_zero.reshape(-1, *[1] * (w.ndim - 1)).astype(np.float64)
    sums = conv(x.astype(np.float64) - float(x_zero), w.astype(np.float64) - zero, attrs)
    (got,) = core.run("ConvInteger", [x, w, x_zero, w_zero], attrs, [np.int32], threads=2, constant=bool(seed % 2))
    np.testing.assert_array_equal(got, sums.astype(np.int32))

    x_scale, y_scale = np.float32(0.03), np.float32(0.002 * np.sqrt(w[0].size) * 100)
    w_scale = rng.uniform(0.01, 0.02, w_zero.shape).astype(np.float32)
    y_zero = integers(rng, (), types[0])
    bias = rng.integers(-1000, 1000, w.shape[0]).astype(np.int32)
    given = [x, np.asarray(x_scale), x_zero, w, w_scale, w_zero, np.asarray(y_scale), y_zero, bias]
    (got,) = core.run("QLinearConv", given, attrs, threads=2, constant=bool(seed % 2))
    line = [-1, *[1] * (x.ndim - 2)]
    real = (sums + bias.reshape(line)) * (float(x_scale) * w_scale.astype(np.float64).reshape(line) / float(y_scale))
    limits = np.iinfo(types[0])
    wanted = np.clip(np.rint(real) + float(y_zero), limits.min, limits.max)
    assert got.dtype == types[0]
    difference = np.abs(got.astype(np.float64) - wanted)
    near_tie = np.abs(real - np.floor(real) - 0.5) < 1e-3
    assert (difference <= near_tie).all()


def test_hostile_integer(core: Core) -> None:
    x, w = np.zeros((1, 2, 5), np.uint8), np.zeros((3, 2, 2), np.int8)
    one, zero = np.ones((), np.float32), np.zeros((), np.uint8)
    for bad in ([x, w, np.zeros(2, np.uint8)], [x, w, np.zeros((), np.int8)], [x, w, zero, np.zeros(2, np.int8)]):
        with pytest.raises(_core.BadOperand, match="zero point"):
            core.run("ConvInteger", bad, {}, [np.int32])
    good = [x, one, zero, w, one, np.zeros((), np.int8), one, zero, np.zeros(3, np.int32)]
    core.run("QLinearConv", good)
    for i, bad_value in (
        (1, zero),
        (4, np.ones(2, np.float32)),
        (6, np.ones(0, np.float32)),
        (7, one),
        (8, np.zeros(2, np.int32)),
    ):
        with pytest.raises(_core.BadOperand):
            core.run("QLinearConv", [*good[:i], bad_value, *good[i + 1 :]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int32", "int64"])
def test_columns_to_image(core: Core, dtype: str) -> None:
    rng = np.random.default_rng(0)
    image, block = [7, 9], [2, 3]
    attrs = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 0, 2]}
    blocks = [(7 + 1 - 1 - 1) // 2 + 1, 9 + 2 - 4]
    x = rng.integers(0, 9, (2, 3 * 6, blocks[0] * blocks[1])).astype(dtype)
    padded = np.zeros((2, 3, 8, 11))
    for i, (ky, kx) in enumerate(np.ndindex(2, 3)):
        part = x.reshape(2, 3, 6, *blocks)[:, :, i].astype(np.float64)
        padded[:, :, ky : ky + 2 * blocks[0] - 1 : 2, 2 * kx : 2 * kx + blocks[1]] += part
    (got,) = core.run("Col2Im", [x, np.array(image), np.array(block)], attrs, threads=2)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got.astype(np.float64), padded[:, :, 1:, :9])


@pytest.mark.parametrize(
    ("image", "block"),
    [([5, 5], [1, 7]), ([5, 5], [0, 5]), ([5, 5], [2**62, 2**62]), ([2**62, 5], [1, 5]), ([5], [1, 5]), ([5, 6], [1, 5]),
     ([-5, -5], [1, 5]), ([], [])],
    ids=str,
)  # fmt: skip
def test_hostile_columns(core: Core, image: list[int], block: list[int]) -> None:
    good = np.zeros((1, 5, 5), np.float32)
    core.run("Col2Im", [good, np.array([5, 5]), np.array([1, 5])])
    with pytest.raises(_core.BadOperand):
        core.run("Col2Im", [good, np.array(image, np.int64), np.array(block, np.int64)])
