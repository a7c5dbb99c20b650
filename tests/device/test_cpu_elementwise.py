"""Elementwise operators of the `cpu` provider against NumPy and ONNX's node tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = [
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less",
    "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal",
    "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
]  # fmt: skip

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
INTS = SIGNED + UNSIGNED
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
EPSILON = {np.float32: 1.2e-7, np.float64: 2.3e-16, np.float16: 9.8e-4, ml_dtypes.bfloat16: 7.9e-3}
SHAPES = [
    ((), ()),
    ((7,), ()),
    ((), (3, 5)),
    ((2, 3), (2, 3)),
    ((4, 1), (1, 5)),
    ((1, 1, 1), (2, 1)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((2, 1, 4, 1), (1, 3, 1, 5)),
    ((0, 3), (1, 3)),
    ((2, 0), (1, 1)),
    ((33, 3), (3,)),
    ((3000, 3), (3,)),
    ((5, 1500), (1500,)),
    ((2, 6000), (6000,)),
    ((1500, 2), (1500, 1)),
    ((3, 700, 2), (3, 1, 2)),
    ((3, 1, 2), (1, 2050, 1)),
    ((100000,), (1,)),
    ((2, 3, 1, 1, 2, 1, 3), (1, 3, 2, 1, 2, 2, 1)),
]


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def numbers(dtype: Any, shape: tuple[int, ...], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
        low, high = (0, 2) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        x = rng.integers(low, high, shape, dtype=np.int64 if dtype == np.bool_ else dtype)
        return np.asarray(np.where(rng.random(shape) < 0.3, np.asarray(x % 7), x)).astype(dtype)
    return rng.normal(0, 3, shape).astype(dtype)


def close(got: Array, want: Array, dtype: Any, ulp: float = 1.0) -> None:
    assert got.dtype == dtype
    assert got.shape == want.shape
    wide = np.float64 if dtype in EPSILON else got.dtype
    tolerance = EPSILON.get(dtype, 0.0) * ulp
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), tolerance, 1e-37)


def divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    quotient, remainder = np.divmod(a, safe)
    quotient = quotient + ((remainder != 0) & ((a < 0) ^ (safe < 0)))
    return np.where(b == 0, 0, quotient).astype(a.dtype)


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divide, "Max": np.maximum, "Min": np.minimum,
    "Mod": np.mod,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Any]] = {
    "Equal": np.equal, "Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}  # fmt: skip


@pytest.mark.parametrize("op", sorted(ARITHMETIC))
@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_arithmetic(core: Any, op: str, dtype: Any) -> None:
    for i, (left, right) in enumerate(SHAPES):
        a, b = numbers(dtype, left, i), numbers(dtype, right, i + 100)
        with np.errstate(all="ignore"):
            if dtype in (np.float16, ml_dtypes.bfloat16):
                want = ARITHMETIC[op](a.astype(np.float32), b.astype(np.float32)).astype(dtype)
            else:
                want = np.asarray(ARITHMETIC[op](a, b))
        for threads in (1, 2):
            close(core.run(op, [a, b], threads=threads)[0], want, dtype, 0.5 if dtype in FLOATS[2:] else 1.0)


@pytest.mark.parametrize("op", sorted(COMPARISONS))
@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_comparisons(core: Any, op: str, dtype: Any) -> None:
    for i, (left, right) in enumerate(SHAPES):
        a, b = numbers(dtype, left, i), numbers(dtype, right, i + 100)
        if i % 2 and dtype not in INTS:
            a = np.where(a > 3, np.nan, a).astype(dtype)
        (y,) = core.run(op, [a, b], outputs=[np.bool_])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(y, COMPARISONS[op](a, b))


@pytest.mark.parametrize(("op", "function"), [("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)])
def test_logic(core: Any, op: str, function: Any) -> None:
    for i, (left, right) in enumerate(SHAPES):
        a, b = numbers(np.bool_, left, i), numbers(np.bool_, right, i + 1)
        np.testing.assert_array_equal(core.run(op, [a, b])[0], function(a, b))
    np.testing.assert_array_equal(core.run("Not", [a])[0], ~a)
    np.testing.assert_array_equal(core.run("Equal", [a, b])[0], a == b)


@pytest.mark.parametrize(("op", "function"), [("And", np.bitwise_and), ("Or", np.bitwise_or), ("Xor", np.bitwise_xor)])
@pytest.mark.parametrize("dtype", INTS)
def test_bits(core: Any, op: str, function: Any, dtype: Any) -> None:
    a, b = numbers(dtype, (5, 33), 1), numbers(dtype, (33,), 2)
    np.testing.assert_array_equal(core.run("Bitwise" + op, [a, b])[0], function(a, b))
    np.testing.assert_array_equal(core.run("BitwiseNot", [a])[0], ~a)


@pytest.mark.parametrize("dtype", INTS)
def test_shifts(core: Any, dtype: Any) -> None:
    bits = np.iinfo(dtype).bits
    a = numbers(dtype, (40, 1), 1)
    counts = np.array([0, 1, 3, bits - 1, bits, bits + 5, 100] + ([-1, -3] if dtype in SIGNED else []), dtype)
    (left,) = core.run("BitShift", [a, counts], {"direction": "LEFT"})
    (right,) = core.run("BitShift", [a, counts], {"direction": "RIGHT"})
    for i, c in enumerate(counts):
        fits = 0 <= c < bits
        out = np.where(a < 0, -1, 0) if dtype in SIGNED else np.zeros_like(a)
        np.testing.assert_array_equal(right[:, i], (a >> c if fits else out)[:, 0])
        np.testing.assert_array_equal(left[:, i], (a << c if fits else np.zeros_like(a))[:, 0])


@pytest.mark.parametrize("dtype", SIGNED)
def test_integer_edges_do_not_trap(core: Any, dtype: Any) -> None:
    low = np.iinfo(dtype).min
    a, b = np.array([low, low, 5, 0, -7], dtype), np.array([-1, 0, 0, 0, 2], dtype)
    np.testing.assert_array_equal(core.run("Div", [a, b])[0], np.array([low, 0, 0, 0, -3], dtype))
    np.testing.assert_array_equal(core.run("Mod", [a, b])[0], np.array([0, 0, 0, 0, 1], dtype))
    np.testing.assert_array_equal(core.run("Mod", [a, b], {"fmod": 1})[0], np.array([0, 0, 0, 0, -1], dtype))
    np.testing.assert_array_equal(core.run("Abs", [a])[0], np.array([low, low, 5, 0, 7], dtype))
    np.testing.assert_array_equal(core.run("Neg", [a])[0], np.array([low, low, -5, 0, 7], dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_fmod(core: Any, dtype: Any) -> None:
    a, b = numbers(dtype, (50, 3), 1), numbers(dtype, (3,), 2)
    b = np.where(b == 0, np.asarray(3, dtype), b)
    want = np.fmod(a.astype(np.float32), b.astype(np.float32)) if dtype in FLOATS[2:] else np.fmod(a, b)
    close(core.run("Mod", [a, b], {"fmod": 1})[0], want.astype(dtype), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_variadic(core: Any, dtype: Any) -> None:
    shapes: list[tuple[int, ...]] = [(3, 1, 4), (2, 1), (1,), (), (3, 2, 4)]
    inputs = [numbers(dtype, s, i) for i, s in enumerate(shapes)]
    wide = [x.astype(np.float64) for x in inputs]
    for n in range(1, 6):
        total: Any = sum(wide[1:n], wide[0])
        scale = sum(np.abs(w).max() for w in wide[:n])
        for op, want in (("Sum", total), ("Mean", total / n)):
            (y,) = core.run(op, inputs[:n])
            assert y.dtype == dtype
            np.testing.assert_allclose(y.astype(np.float64), want, EPSILON[dtype], scale * EPSILON[np.float32] * n)
        for op, function in (("Max", np.maximum), ("Min", np.minimum)):
            best = wide[0]
            for w in wide[1:n]:
                best = function(best, w)
            np.testing.assert_array_equal(core.run(op, inputs[:n])[0].astype(np.float64), best)


def test_max_and_min_keep_nan(core: Any) -> None:
    a, b = np.array([np.nan, 1, np.nan, 2], np.float32), np.array([1, np.nan, np.nan, 3], np.float32)
    np.testing.assert_array_equal(core.run("Max", [a, b])[0], [np.nan, np.nan, np.nan, 3])
    np.testing.assert_array_equal(core.run("Min", [a, b])[0], [np.nan, np.nan, np.nan, 2])


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64])
@pytest.mark.parametrize("exponent", FLOATS + INTS)
def test_pow(core: Any, dtype: Any, exponent: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.1, 4, (40, 1)).astype(dtype)
    x = np.where(x == 0, np.asarray(1, dtype), x)
    y = np.arange(5).astype(exponent)
    (z,) = core.run("Pow", [x, y])
    want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    close(z, want, dtype, 2)
    for power in (0, 1, 2, 3):
        (z,) = core.run("Pow", [x, np.array(power, exponent)])
        close(z, np.power(x.astype(np.float64), power).astype(dtype), dtype, 3)


def test_pow_edges(core: Any) -> None:
    x = np.array([0.0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan], np.float32)
    for power in (0.5, 1, 2, 3, -1, -0.5, 0, np.inf, -np.inf, np.nan, 2.5, 7):
        y = np.full_like(x, power)  # for one number NumPy would take a short cut that knows no infinities
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(core.run("Pow", [x, y[:1]])[0], np.power(x, y), 3e-7)
    base, exponent = np.array([0, 1, -1, 2, -1], np.int32), np.array([-1, -5, -3, -1, -2], np.int64)
    np.testing.assert_array_equal(core.run("Pow", [base, exponent])[0], [0, 1, -1, 0, 1])


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


GAMMA, ALPHA = 1.05070102214813232421875, 1.67326319217681884765625

# Name: function in float64, interval, error allowed in units of the last place, and absolutely in these of 1.
UNARY: dict[str, tuple[Callable[..., Any], float, float, float, float]] = {
    "Abs": (np.abs, -5, 5, 0, 0),
    "Neg": (np.negative, -5, 5, 0, 0),
    "Sign": (np.sign, -5, 5, 0, 0),
    "Ceil": (np.ceil, -5, 5, 0, 0),
    "Floor": (np.floor, -5, 5, 0, 0),
    "Round": (np.round, -5, 5, 0, 0),
    "Sqrt": (np.sqrt, 0, 50, 1, 0),
    "Reciprocal": (np.reciprocal, 0.1, 50, 1, 0),
    "Exp": (np.exp, -80, 80, 2, 0),
    "Log": (np.log, 0.01, 1000, 2, 0),
    "Sin": (np.sin, -50, 50, 3, 1),
    "Cos": (np.cos, -50, 50, 3, 1),
    "Tan": (np.tan, -1.5, 1.5, 5, 0),
    "Asin": (np.arcsin, -1, 1, 4, 0),
    "Acos": (np.arccos, -1, 1, 4, 0),
    "Atan": (np.arctan, -50, 50, 4, 0),
    "Sinh": (np.sinh, -20, 20, 5, 0),
    "Cosh": (np.cosh, -20, 20, 5, 0),
    "Tanh": (np.tanh, -12, 12, 8, 0),
    "Asinh": (np.arcsinh, -1000, 1000, 5, 0),
    "Acosh": (np.arccosh, 1, 1000, 5, 0),
    "Atanh": (np.arctanh, -0.99, 0.99, 5, 0),
    "Erf": (np.vectorize(math.erf, otypes=[np.float64]), -5, 5, 8, 0),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -30, 30, 4, 0),
    "HardSigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), -5, 5, 2, 1),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -5, 5, 4, 4),
    "Swish": (lambda x: x / (1 + np.exp(-x)), -30, 30, 5, 0),
    "Mish": (lambda x: x * np.tanh(softplus(x)), -30, 30, 12, 0),
    "Gelu": (gelu, -10, 10, 8, 9),
    "Relu": (lambda x: np.maximum(x, 0), -5, 5, 0, 0),
    "LeakyRelu": (lambda x: np.where(x < 0, 0.01 * x, x), -5, 5, 2, 0),
    "Elu": (lambda x: np.where(x < 0, np.expm1(x), x), -5, 5, 3, 0),
    "Celu": (lambda x: np.where(x < 0, np.expm1(x), x), -5, 5, 3, 0),
    "Selu": (lambda x: GAMMA * np.where(x < 0, ALPHA * np.expm1(x), x), -5, 5, 4, 0),
    "ThresholdedRelu": (lambda x: np.where(x > 1, x, 0), -5, 5, 0, 0),
    "Softplus": (softplus, -30, 30, 4, 0),
    "Softsign": (lambda x: x / (1 + np.abs(x)), -30, 30, 3, 0),
    "Shrink": (lambda x: np.where(np.abs(x) > 0.5, x, 0), -3, 3, 0, 0),
}


@pytest.mark.parametrize("op", sorted(UNARY))
@pytest.mark.parametrize("dtype", FLOATS)
def test_unary(core: Any, op: str, dtype: Any) -> None:
    function, low, high, ulp, absolute = UNARY[op]
    for shape in [(), (1,), (0, 4), (3, 37), (20011,)]:
        x = np.random.default_rng(4).uniform(low, high, shape).astype(dtype)
        x = np.clip(x.astype(np.float64), low, high).astype(dtype)
        with np.errstate(over="ignore"):
            want = np.asarray(function(x.astype(np.float64)))
            rounded = np.asarray(want.astype(dtype))
        for threads in (1, 2):
            (y,) = core.run(op, [x], threads=threads)
            assert y.dtype == dtype
            assert y.shape == x.shape
            finite = np.isfinite(rounded.astype(np.float64))
            np.testing.assert_array_equal(y[~finite].astype(np.float64), rounded[~finite].astype(np.float64))
            near = 1.17e-38 if dtype != np.float16 else 6e-8
            error = max(ulp, 0.51 if ulp else 0) if dtype in FLOATS[:2] else ulp and 1
            atol = max(absolute * EPSILON[dtype if dtype != np.float64 else np.float64], near)
            np.testing.assert_allclose(y[finite].astype(np.float64), want[finite], error * EPSILON[dtype], atol * 1.1)


def test_attributes_of_activations(core: Any) -> None:
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    cases = [
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.6}, np.clip(0.5 * x + 0.6, 0, 1)),
        ("Swish", {"alpha": 2.0}, x / (1 + np.exp(-2 * x))),
        ("LeakyRelu", {"alpha": 0.3}, np.where(x < 0, 0.3 * x, x)),
        ("Elu", {"alpha": 2.0}, np.where(x < 0, 2 * np.expm1(x), x)),
        ("Celu", {"alpha": 2.0}, np.where(x < 0, 2 * np.expm1(x / 2), x)),
        ("Selu", {"alpha": 2.0, "gamma": 3.0}, 3 * np.where(x < 0, 2 * np.expm1(x), x)),
        ("ThresholdedRelu", {"alpha": 2.0}, np.where(x > 2, x, 0)),
        ("Shrink", {"lambd": 1.5, "bias": 1.0}, np.where(x < -1.5, x + 1, np.where(x > 1.5, x - 1, 0))),
        ("Gelu", {"approximate": "tanh"}, 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ]
    for op, attrs, want in cases:
        np.testing.assert_allclose(core.run(op, [x], attrs)[0], want, 3e-6, 1e-6)


@pytest.mark.parametrize("dtype", INTS)
def test_unary_of_integers(core: Any, dtype: Any) -> None:
    x = numbers(dtype, (3, 41), 5)
    np.testing.assert_array_equal(core.run("Abs", [x])[0], np.abs(x))
    np.testing.assert_array_equal(core.run("Sign", [x])[0], np.sign(x))
    small = (x % 5).astype(dtype)
    (y,) = core.run("Shrink", [small], {"lambd": 1.5, "bias": 1.0})
    np.testing.assert_array_equal(y, np.where(small > 1.5, small - 1, 0))
    if dtype in SIGNED:
        np.testing.assert_array_equal(core.run("Relu", [x])[0], np.maximum(x, 0))


@pytest.mark.parametrize(
    "op", ["Exp", "Sigmoid", "Tanh", "Erf", "Gelu", "Relu", "Sqrt", "Log", "Softplus", "Sign", "Neg"]
)
def test_special_values(core: Any, op: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    functions = {**{k: v[0] for k, v in UNARY.items()}, "Sigmoid": lambda v: np.where(v < 0, 0, 1 / (1 + np.exp(-v)))}
    (y,) = core.run(op, [x])
    with np.errstate(all="ignore"):
        want = np.asarray(functions[op](x.astype(np.float64)))
    want[0] = np.nan
    want = np.where((x == -np.inf) & (op == "Gelu"), np.nan, want)
    np.testing.assert_array_equal(y[y == y], want[y == y].astype(np.float32))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz])
def test_nan_and_infinity(core: Any, dtype: Any) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0, 1, -2]).astype(dtype)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(core.run("IsNaN", [x], outputs=[np.bool_])[0], np.isnan(wide))
    for positive, negative in [(1, 1), (1, 0), (0, 1), (0, 0)]:
        attrs = {"detect_positive": positive, "detect_negative": negative}
        want = ((wide == np.inf) & (positive == 1)) | ((wide == -np.inf) & (negative == 1))
        np.testing.assert_array_equal(core.run("IsInf", [x], attrs, outputs=[np.bool_])[0], want)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_where(core: Any, dtype: Any) -> None:
    for i, (left, right) in enumerate(SHAPES):
        x, y = (numbers(np.int8, s, i).astype(dtype) for s in (left, right))
        for shape in ((), np.broadcast_shapes(left, right), right):
            c = numbers(np.bool_, shape, i)
            np.testing.assert_array_equal(core.run("Where", [c, x, y], outputs=[dtype])[0], np.where(c, x, y))


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_clip(core: Any, dtype: Any) -> None:
    x = numbers(dtype, (3, 50), 6)
    low, high = np.array(1, dtype), np.array(3, dtype)
    np.testing.assert_array_equal(core.run("Clip", [x, low, high])[0], np.clip(x, low, high))
    np.testing.assert_array_equal(core.run("Clip", [x, None, high])[0], np.minimum(x, high))
    np.testing.assert_array_equal(core.run("Clip", [x, low, None])[0], np.maximum(x, low))
    np.testing.assert_array_equal(core.run("Clip", [x, low.reshape(1)])[0], np.maximum(x, low))
    np.testing.assert_array_equal(core.run("Clip", [x])[0], x)
    np.testing.assert_array_equal(core.run("Clip", [x, high, low])[0], np.full_like(x, 1))


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64, np.uint32, np.uint64])
def test_prelu(core: Any, dtype: Any) -> None:
    x = numbers(dtype, (2, 3, 4, 5), 7)
    for shape in [(), (1,), (5,), (3, 1, 1), (4, 1), (2, 3, 4, 5)]:
        slope = numbers(dtype, shape, 8)
        with np.errstate(over="ignore"):
            scaled = (
                (x.astype(np.float32) * slope.astype(np.float32)).astype(dtype) if dtype in FLOATS[2:] else x * slope
            )
        np.testing.assert_array_equal(core.run("PRelu", [x, slope])[0], np.where(x > 0, x, scaled))
    slope = numbers(dtype, (3,), 9)
    np.testing.assert_array_equal(core.run("PRelu", [x, slope])[0], core.run("PRelu", [x, slope.reshape(3, 1, 1)])[0])
    with pytest.raises(_core.BadOperand):
        core.run("PRelu", [x, numbers(dtype, (1, 2, 3, 4, 5), 1)])


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.float8_e5m2])
def test_dropout_of_inference(core: Any, dtype: Any) -> None:
    x = numbers(np.float32, (3, 4), 1).astype(dtype)
    y, mask = core.run("Dropout", [x, np.float32(0.5)], outputs=[dtype, np.bool_])
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == np.bool_
    assert mask.shape == x.shape
    assert mask.all()
    off = core.run("Dropout", [x, np.float32(0.5), np.array(False)], outputs=[dtype], constant=True)
    np.testing.assert_array_equal(off[0], x)
    with pytest.raises(_core.Unsupported):
        core.run("Dropout", [x, np.float32(0.5), np.array(True)], outputs=[dtype], constant=True)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Add", [np.ones((2, 3), np.float32), np.ones((2,), np.float32)], {}),
        ("Where", [np.ones(2, np.bool_), np.ones(3, np.float32), np.ones(3, np.float32)], {}),
        ("Add", [np.ones(2, np.float32), np.ones(2, np.float64)], {}),
        ("Max", [np.ones(2, np.float32), np.ones(2, np.int32)], {}),
        ("And", [np.ones(2, np.int32), np.ones(2, np.int32)], {}),
        ("Clip", [np.ones(2, np.float32), np.ones(2, np.float32)], {}),
        ("BitShift", [np.ones(2, np.uint8), np.ones(2, np.uint8)], {"direction": "UP"}),
        ("Gelu", [np.ones(2, np.float32)], {"approximate": "some"}),
    ],
)
def test_bad_operands_are_refused(core: Any, op: str, inputs: list[Array], attrs: dict[str, Any]) -> None:
    with pytest.raises(_core.BadOperand):
        core.run(op, inputs, attrs)


@pytest.mark.parametrize("op", ["Exp", "Add"])
def test_types_without_a_kernel(core: Any, op: str) -> None:
    x = np.ones(3, np.complex64)
    with pytest.raises(_core.Unsupported):
        core.run(op, [x] if op == "Exp" else [x, x])
