"""Pooling kernels of the C++ core against a plain float64 evaluation, one tap at a time."""

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from opweave_cpu import _core

CODES = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7, "float16": 10, "float64": 11, "bfloat16": 16}
Array = npt.NDArray[Any]


def run(op: str, attrs: dict[str, Any], *arrays: Array, outputs: int = 1) -> list[Array]:
    code = CODES[arrays[0].dtype.name]
    views = [(a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a, CODES[a.dtype.name]) for a in arrays]
    found = _core.eager(op, "", attrs, views, [code, 7][:outputs], 2)
    return [f.view(ml_dtypes.bfloat16) if c == 16 else f for f, c in found]


def windows(x: Array, attrs: dict[str, Any]) -> tuple[list[int], Any]:
    """Output sizes, and a function from an output position to (values, flat indices, positions with pads)."""
    n = len(attrs["kernel_shape"])
    kernel, strides = attrs["kernel_shape"], attrs.get("strides", [1] * n)
    dilations, pads = attrs.get("dilations", [1] * n), attrs.get("pads", [0] * 2 * n)
    size = x.shape[2:]
    out = []
    for i in range(n):
        slack = size[i] + pads[i] + pads[n + i] - (kernel[i] - 1) * dilations[i] - 1
        out.append(math.ceil(slack / strides[i]) + 1 if attrs.get("ceil_mode") else slack // strides[i] + 1)
        if attrs.get("ceil_mode") and (out[i] - 1) * strides[i] >= size[i] + pads[i]:
            out[i] -= 1

    def at(position: tuple[int, ...]) -> tuple[list[tuple[int, ...]], int]:
        taps = [[o * strides[i] - pads[i] + k * dilations[i] for k in range(kernel[i])] for i, o in enumerate(position)]
        inside = [[t for t in axis if 0 <= t < size[i]] for i, axis in enumerate(taps)]
        padded = math.prod(sum(t < size[i] + pads[n + i] for t in axis) for i, axis in enumerate(taps))
        return list(itertools.product(*inside)), padded

    return out, at


def expected(op: str, x: Array, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Values in float64 and MaxPool's indices."""
    out, at = windows(x, attrs)
    values = np.zeros((*x.shape[:2], *out))
    indices = np.zeros(values.shape, np.int64)
    order = "F" if attrs.get("storage_order") else "C"
    for position in itertools.product(*map(range, out)):
        taps, padded = at(position)
        flat = np.ravel_multi_index(np.array(taps).T, x.shape[2:])
        seen = x.reshape(*x.shape[:2], -1)[:, :, flat].astype(np.float64)
        key = (slice(None), slice(None), *position)
        if op == "MaxPool":
            values[key] = seen.max(-1)
            ranks = np.ravel_multi_index(np.array(taps).T, x.shape[2:], order=order)
            planes = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]) * math.prod(x.shape[2:])
            indices[key] = planes + ranks[seen.argmax(-1)]
        elif op == "AveragePool":
            values[key] = seen.sum(-1) / (padded if attrs.get("count_include_pad") else len(taps))
        else:
            p = attrs.get("p", 2)
            values[key] = (np.abs(seen) ** p).sum(-1) ** (1 / p)
    return values, indices


GRID: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1), {"kernel_shape": [1]}),
    ((2, 3, 37), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((1, 2, 3000), {"kernel_shape": [5], "strides": [3], "pads": [2, 0], "ceil_mode": 1}),
    ((1, 1, 2600), {"kernel_shape": [3], "dilations": [1100], "strides": [7]}),
    ((1, 1, 4100), {"kernel_shape": [2], "strides": [500]}),
    ((1, 3, 7, 7), {"kernel_shape": [7, 7]}),
    ((2, 5, 18, 35), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]}),
    ((2, 5, 18, 35), {"kernel_shape": [2, 4], "pads": [1, 1, 0, 3], "dilations": [3, 2]}),
    ((1, 2, 9, 10), {"kernel_shape": [3, 2], "strides": [4, 3], "pads": [1, 0, 2, 1], "ceil_mode": 1}),
    ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 3], "pads": [1, 1, 0, 0, 1, 1], "ceil_mode": 1}),
    ((1, 2, 5, 6, 7), {"kernel_shape": [2, 2, 2], "dilations": [2, 1, 3]}),
]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {}),
    ("AveragePool", {}),
    ("AveragePool", {"count_include_pad": 1}),
    ("LpPool", {}),
    ("LpPool", {"p": 1}),
    ("LpPool", {"p": 3}),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v[0] + "".join(f"-{k}{x}" for k, x in v[1].items()))
@pytest.mark.parametrize(("shape", "attrs"), GRID, ids=[str(i) for i in range(len(GRID))])
def test_values(shape: tuple[int, ...], attrs: dict[str, Any], variant: tuple[str, dict[str, Any]]) -> None:
    op, more = variant
    x = np.random.default_rng(0).standard_normal(shape)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12), ("float16", 4e-3), ("bfloat16", 2e-2)):
        given = x.astype(dtype)
        (found,) = run(op, attrs | more, given)
        wanted, _ = expected(op, given.astype(np.float64), attrs | more)
        assert found.dtype == given.dtype
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8"])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("shape", "attrs"), GRID, ids=[str(i) for i in range(len(GRID))])
def test_max_indices(shape: tuple[int, ...], attrs: dict[str, Any], order: int, dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    wanted, indices = expected("MaxPool", x, attrs | {"storage_order": order})
    values, found = run("MaxPool", attrs | {"storage_order": order}, x, outputs=2)
    np.testing.assert_array_equal(values, wanted.astype(dtype))
    np.testing.assert_array_equal(found, indices)
    np.testing.assert_array_equal(run("MaxPool", attrs, x)[0], values)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 49 * 49])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_global(size: int, dtype: str) -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, 1, size)).astype(dtype)
    wide = x.astype(np.float64)
    tolerance = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3}[dtype]
    for op, attrs, wanted in (
        ("GlobalAveragePool", {}, wide.mean((2, 3), keepdims=True)),
        ("GlobalMaxPool", {}, wide.max((2, 3), keepdims=True)),
        ("GlobalLpPool", {}, (wide**2).sum((2, 3), keepdims=True) ** 0.5),
        ("GlobalLpPool", {"p": 1}, np.abs(wide).sum((2, 3), keepdims=True)),
        ("GlobalLpPool", {"p": 3}, (np.abs(wide) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)),
    ):
        np.testing.assert_allclose(run(op, attrs, x)[0], wanted, rtol=tolerance, atol=tolerance)


def test_unpool_restores_the_maxima() -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 8, 6)).astype(np.float32)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    values, indices = run("MaxPool", window, x, outputs=2)
    (back,) = run("MaxUnpool", window, values, indices)
    wanted = np.zeros_like(x)
    wanted.reshape(-1)[indices.reshape(-1)] = values.reshape(-1)
    np.testing.assert_array_equal(back, wanted)
    (wider,) = run("MaxUnpool", window, values, indices, np.array([2, 3, 9, 7]))
    np.testing.assert_array_equal(wider[:, :, :8, :6], wanted)
    assert not wider[:, :, 8:].any()
    assert not wider[..., 6:].any()


def test_nothing_to_do() -> None:
    for op in ("MaxPool", "AveragePool", "LpPool"):
        assert run(op, {"kernel_shape": [2]}, np.zeros((0, 3, 5), np.float32))[0].shape == (0, 3, 4)
        assert run(op, {"kernel_shape": [6]}, np.zeros((1, 3, 5), np.float32))[0].shape == (1, 3, 0)
    assert run("GlobalMaxPool", {}, np.zeros((0, 3, 5), np.float32))[0].shape == (0, 3, 1)


BAD: list[dict[str, Any]] = [
    {},
    {"kernel_shape": [0, 1]},
    {"kernel_shape": [-1, 2]},
    {"kernel_shape": [2]},
    {"kernel_shape": [2, 2, 2]},
    {"kernel_shape": [2, 2], "strides": [0, 1]},
    {"kernel_shape": [2, 2], "strides": [-1, 1]},
    {"kernel_shape": [2, 2], "dilations": [1, 0]},
    {"kernel_shape": [2, 2], "pads": [1, 1]},
    {"kernel_shape": [2, 2], "pads": [-1, 0, 0, 0]},
    {"kernel_shape": [2, 2], "pads": [2**62, 0, 2**62, 0]},
    {"kernel_shape": [2**62, 2], "dilations": [2**62, 1]},
    {"kernel_shape": [9, 9]},
    {"kernel_shape": [2, 2], "auto_pad": "SOME"},
    {"kernel_shape": [2, 2], "pads": [2**31] * 4},
]


@pytest.mark.parametrize("attrs", BAD, ids=[str(i) for i in range(len(BAD))])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_hostile_attributes(op: str, attrs: dict[str, Any]) -> None:
    with pytest.raises(_core.BadOperand):
        run(op, attrs, np.zeros((1, 1, 4, 4), np.float32))


def test_hostile_operands() -> None:
    x = np.zeros((1, 1, 2), np.float32)
    for index in (-1, 4, 2**62):
        with pytest.raises(_core.BadOperand, match="outside"):
            run("MaxUnpool", {"kernel_shape": [2], "strides": [2]}, x, np.full((1, 1, 2), index))
    with pytest.raises(_core.BadOperand, match="differ"):
        run("MaxUnpool", {"kernel_shape": [2]}, x, np.zeros((1, 1, 3), np.int64))
    with pytest.raises(_core.BadOperand, match="batch and channel"):
        run("GlobalAveragePool", {}, np.zeros(3, np.float32))
    with pytest.raises(_core.BadOperand, match="p is 0"):
        run("LpPool", {"kernel_shape": [2], "p": 0}, x)
