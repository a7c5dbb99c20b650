"""Matrix products of the `cpu` provider against NumPy and ONNX's node tests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = ["MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"]
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTS = [np.int32, np.int64, np.uint32, np.uint64]
# Of the largest sum of magnitudes: the sums of narrow types are rounded once.
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-14, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}
SHAPES = [
    ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((7,), (7,)), ((7,), (7, 3)), ((5, 7), (7,)), ((2, 3, 7), (7,)), ((7,), (2, 7, 3)),
    ((2, 3, 4), (4, 70)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 6)), ((4, 3, 1, 9), (1, 3, 9, 1)),
    ((65, 130), (130, 67)), ((1, 300), (300, 129)), ((129, 257), (257, 1)), ((50, 33), (33, 64)), ((6, 4, 8), (6, 8, 4)),
    ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 5)), ((2, 0), (0,)), ((13, 2, 3), (13, 3, 2)),
]  # fmt: skip


def test_node(core: Any, node_case: Any) -> None:
    if "float8" in str([x.dtype for x in node_case.inputs]):
        pytest.skip("float8 products run through the reference implementation")
    node_case.check(core)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def check(got: Array, want: Array, magnitude: Array, tolerance: float) -> None:
    assert got.shape == want.shape
    if want.size:
        error = np.abs(got.astype(np.float64) - want)
        assert np.all(error <= tolerance * (np.max(magnitude) + 1)), float(np.max(error))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul(core: Any, dtype: Any, constant: bool, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = normal(*a, dtype=dtype), normal(*b, dtype=dtype, seed=1)
    (got,) = core.run("MatMul", [x, y], threads=2, constant=constant)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    check(got, wide_x @ wide_y, np.abs(wide_x) @ np.abs(wide_y), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_integers_wrap(core: Any, dtype: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng, limits = np.random.default_rng(2), np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, a, dtype)
    y = rng.integers(limits.min, limits.max, b, dtype)
    (got,) = core.run("MatMul", [x, y])
    np.testing.assert_array_equal(got, x @ y)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.uint64])
@pytest.mark.parametrize("c", [None, (), (1,), (19,), (1, 19), (7, 1), (7, 19), (1, 1)])
@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 2.0)])
def test_gemm(core: Any, dtype: Any, c: Any, trans: tuple[int, int], scales: tuple[float, float]) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 9, (7, 11)), rng.integers(0, 9, (11, 19))
    bias = None if c is None else rng.integers(0, 9, c)
    want = scales[0] * (a @ b) + (0 if bias is None else scales[1] * bias)
    given = [(a.T if trans[0] else a).astype(dtype), (b.T if trans[1] else b).astype(dtype)]
    given += [] if bias is None else [bias.astype(dtype)]
    attrs = {"transA": trans[0], "transB": trans[1], "alpha": scales[0], "beta": scales[1]}
    for constant in [False, True]:
        (got,) = core.run("Gemm", given, attrs, constant=constant)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(dtype).astype(np.float64), 8e-3 if dtype is ml_dtypes.bfloat16 else 1e-3
        )


@pytest.mark.parametrize("m", [1, 5, 33, 64])
@pytest.mark.parametrize("n", [1, 15, 64, 200])
@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_fused_epilogue(core: Any, m: int, n: int, trans: tuple[int, int]) -> None:
    a, b = normal(2, m, 300), normal(300, n)
    bias, residual = normal(n), normal(2, m, n, seed=5)
    given = [np.swapaxes(a, 1, 2) if trans[0] else a, b.T if trans[1] else b, bias, residual]
    product = 0.25 * (a.astype(np.float64) @ b)
    attrs = {
        "transA": trans[0],
        "transB": trans[1],
        "alpha": 0.25,
        "activation": "LeakyRelu",
        "activation_params": [0.1],
    }
    for constant in [False, True]:
        (got,) = core.run("FusedMatMul", given, attrs, domain="opweave", constant=constant, threads=2)
        want = product + bias + residual
        np.testing.assert_allclose(got, np.where(want < 0, want * 0.1, want), 1e-4, 2e-5)
    for addends in [[bias], [None, residual], [residual, bias], [bias[:1]], [residual, residual], [residual[:, :, :1]]]:
        (got,) = core.run("FusedMatMul", [*given[:2], *addends], {**attrs, "activation": ""}, domain="opweave")
        want = product + sum(x for x in addends if x is not None)
        np.testing.assert_allclose(got, want, 1e-4, 2e-5)


ACTIVATIONS = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Silu": lambda x: x / (1 + np.exp(-x)),
    "QuickGelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "GeluTanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(core: Any, name: str) -> None:
    a, b = normal(9, 21), normal(21, 37)
    (got,) = core.run("FusedMatMul", [a, b], {"activation": name}, domain="opweave")
    np.testing.assert_allclose(got, ACTIVATIONS[name](a.astype(np.float64) @ b), 2e-5, 2e-6)


@pytest.mark.parametrize("trans", range(16))
def test_microsoft_fused_matmul(core: Any, trans: int) -> None:
    ta, tb, ba, bb = (bool(trans >> i & 1) for i in range(4))
    a, b = normal(2, 3, 5, 7), normal(2, 3, 7, 20)
    given_a, given_b = np.swapaxes(a, -1, -2) if ta else a, np.swapaxes(b, -1, -2) if tb else b
    given_a = np.moveaxis(given_a, 2, 0) if ba else given_a
    given_b = np.moveaxis(given_b, 2, 0) if bb else given_b
    attrs = {"transA": int(ta), "transB": int(tb), "transBatchA": int(ba), "transBatchB": int(bb), "alpha": 0.5}
    for constant in [False, True]:
        given = [np.ascontiguousarray(given_a), np.ascontiguousarray(given_b)]
        (got,) = core.run("FusedMatMul", given, attrs, domain="com.microsoft", constant=constant)
        np.testing.assert_allclose(got, 0.5 * (a @ b), 1e-4, 1e-5)


@pytest.mark.parametrize(("a", "b"), [((3, 4), (5, 6)), ((), (3,)), ((2, 3, 4), (3, 4, 5)), ((4,), (3,))])
def test_shapes_that_do_not_fit(core: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("MatMul", [np.zeros(a, np.float32), np.zeros(b, np.float32)])


def test_bias_must_broadcast(core: Any) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("Gemm", [np.zeros((3, 4), np.float32), np.zeros((4, 5), np.float32), np.zeros(4, np.float32)])
    with pytest.raises(_core.BadOperand):
        core.run("MatMul", [np.zeros((3, 4), np.float32), np.zeros((4, 5), np.float64)])


BYTES = [np.uint8, np.int8]
BYTE_SHAPES = [
    ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((7,), (7,)), ((7,), (7, 3)), ((5, 7), (7,)), ((2, 3, 7), (7, 70)),
    ((7,), (2, 7, 3)), ((2, 3, 9), (2, 9, 5)), ((2, 1, 3, 4), (5, 4, 6)), ((65, 130), (130, 67)), ((1, 301), (301, 129)),
    ((13, 2, 3), (13, 3, 2)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((40, 515), (515, 200)),
]  # fmt: skip


def any_byte(dtype: Any, shape: Any, seed: int) -> Array:
    """Values with many extremes, where 16-bit sums would saturate."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.5, rng.choice(np.array([limits.min, limits.max], dtype), shape), values)


@pytest.mark.parametrize(("a", "b"), BYTE_SHAPES, ids=str)
@pytest.mark.parametrize("types", [(s, t) for s in BYTES for t in BYTES], ids=str)
@pytest.mark.parametrize("lines", ["none", "scalar", "vector", "batch"])
def test_matmul_integer(core: Any, a: tuple[int, ...], b: tuple[int, ...], types: Any, lines: str) -> None:
    x, y = any_byte(types[0], a, 1), any_byte(types[1], b, 2)
    zero_shapes = {
        "none": (None, None),
        "scalar": ((), (1,)),
        "vector": ((a[-2],) if len(a) > 1 else (), (b[-1],) if len(b) > 1 else ()),
        "batch": ((*a[:-1], 1) if len(a) > 1 else (), (*b[:-2], 1, b[-1]) if len(b) > 1 else ()),
    }[lines]
    zeros = [None if s is None else any_byte(t, s, 3) for s, t in zip(zero_shapes, types, strict=True)]
    column = zeros[0] if zeros[0] is None or zeros[0].ndim != 1 or len(a) == 1 else zeros[0][:, None]
    wide_x = x.astype(np.int64) - (0 if column is None else column.astype(np.int64))
    wide_y = y.astype(np.int64) - (0 if zeros[1] is None else zeros[1].astype(np.int64))
    for constant in [False, True]:
        (got,) = core.run("MatMulInteger", [x, y, *zeros], outputs=[np.int32], constant=constant, threads=2)
        np.testing.assert_array_equal(got, wide_x @ wide_y)


@pytest.mark.parametrize("out", BYTES)
@pytest.mark.parametrize("scale_type", [np.float32, np.float16])
@pytest.mark.parametrize("per_line", [False, True])
def test_qlinear_matmul(core: Any, out: Any, scale_type: Any, per_line: bool) -> None:
    rng = np.random.default_rng(4)
    a, b = any_byte(np.uint8, (2, 9, 33), 5), any_byte(np.int8, (33, 40), 6)
    sa = rng.uniform(0.01, 0.02, (2, 9, 1) if per_line else ()).astype(scale_type)
    sb = rng.uniform(0.01, 0.02, (40,) if per_line else ()).astype(scale_type)
    sy = rng.uniform(0.5, 1, (2, 9, 1) if per_line else ()).astype(scale_type)
    za, zb, zy = (
        any_byte(np.uint8, sa.shape, 7),
        any_byte(np.int8, sb.shape, 8),
        np.asarray(np.full(sy.shape, 100, out)),
    )
    total = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
    exact = total * (sa.astype(np.float64) * sb / sy) + zy
    want = np.clip(np.rint(exact), np.iinfo(out).min, np.iinfo(out).max)
    (got,) = core.run("QLinearMatMul", [a, sa, za, b, sb, zb, sy, zy], outputs=[out])
    assert got.dtype == out
    assert np.all(np.abs(got - exact.clip(np.iinfo(out).min, np.iinfo(out).max)) < 0.502)
    assert np.mean(got == want) > 0.99


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_microsoft_quantised(core: Any, per_column: bool, bias: bool, zero: bool) -> None:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((3, 11, 50)).astype(np.float32)
    b, sb = any_byte(np.int8, (50, 70), 1), rng.uniform(0.01, 0.02, 70 if per_column else 1).astype(np.float32)
    zb = any_byte(np.int8, sb.shape, 2) if zero else None
    add = rng.standard_normal(70).astype(np.float32) if bias else None
    real_b = (b.astype(np.float64) - (0 if zb is None else zb.astype(np.float64))) * sb
    (got,) = core.run("DynamicQuantizeMatMul", [x, b, sb, zb, add], domain="com.microsoft")
    scale = (max(x.max(), 0) - min(x.min(), 0)) / 255
    shift = np.rint(-min(x.min(), 0) / scale)
    quantised = np.clip(np.rint(x / scale) + shift, 0, 255)
    want = (quantised - shift) * scale @ real_b + (0 if add is None else add)
    np.testing.assert_allclose(got, want, 1e-4, 1e-3)
    a, sa, za = quantised.astype(np.uint8), np.array([scale], np.float32), np.array([shift], np.uint8)
    (got,) = core.run("MatMulIntegerToFloat", [a, b, sa, sb, za, zb, add], domain="com.microsoft", outputs=[np.float32])
    np.testing.assert_allclose(got, want, 1e-4, 1e-3)


def test_quantised_operands_are_checked(core: Any) -> None:
    a, b = np.zeros((3, 4), np.uint8), np.zeros((4, 5), np.uint8)
    for zeros in [[np.zeros(2, np.uint8)], [None, np.zeros(4, np.uint8)], [np.zeros(3, np.int8)]]:
        with pytest.raises(_core.BadOperand):
            core.run("MatMulInteger", [a, b, *zeros], outputs=[np.int32])
