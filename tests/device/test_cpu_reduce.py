"""Reductions of the `cpu` provider against NumPy and ONNX's node tests."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
]  # fmt: skip
REFERENCE = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(np.square(x), **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(np.square(x), **k),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTS = [np.int32, np.int64, np.uint32, np.uint64]
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}


def axes_of(*axes: int) -> Array:
    return np.array(axes, np.int64)


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


@pytest.mark.parametrize("op", sorted(REFERENCE))
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_set_of_axes(core: Any, op: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    for shape in [(), (1,), (7,), (3, 5), (2, 1, 33), (3, 2, 5, 4), (2, 17, 3, 2, 2)]:
        x = rng.uniform(0.5, 1.5, shape).astype(dtype)
        for r in range(len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), r):
                attrs = {"keepdims": r % 2, "noop_with_empty_axes": 1}
                (y,) = core.run(op, [x, axes_of(*axes)], attrs)
                want = REFERENCE[op](x.astype(np.float64), axis=axes, keepdims=bool(r % 2))
                assert y.shape == want.shape
                np.testing.assert_allclose(y.astype(np.float64), want, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"])
@pytest.mark.parametrize("dtype", INTS)
def test_integers_wrap_as_numpy(core: Any, op: str, dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(2).integers(info.min, info.max, (5, 40, 3), dtype, endpoint=True)
    for axis in range(3):
        (y,) = core.run(op, [x, axes_of(axis)])
        kind = {} if op in ("ReduceMax", "ReduceMin") else {"dtype": dtype}
        magnitude = np.where(x < 0, 0 - x, x) if op == "ReduceL1" else x
        function = np.sum if op == "ReduceL1" else REFERENCE[op]
        np.testing.assert_array_equal(y, function(magnitude, axis=axis, keepdims=True, **kind))


@pytest.mark.parametrize("dtype", INTS)
def test_integer_mean_and_norm_truncate(core: Any, dtype: Any) -> None:
    x = np.arange(24, dtype=dtype).reshape(4, 6) - (5 if np.issubdtype(dtype, np.signedinteger) else 0)
    mean, norm = (core.run(op, [x, axes_of(1)])[0] for op in ("ReduceMean", "ReduceL2"))
    np.testing.assert_array_equal(mean[:, 0], np.trunc(x.sum(1) / 6).astype(dtype))
    np.testing.assert_array_equal(norm[:, 0], np.sqrt((x * x).sum(1)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_])
def test_max_and_min_of_bytes(core: Any, dtype: Any) -> None:
    x = np.random.default_rng(3).integers(0, 2, (9, 70)).astype(dtype)
    for axis in (0, 1):
        np.testing.assert_array_equal(core.run("ReduceMax", [x, axes_of(axis)])[0], x.max(axis, keepdims=True))
        np.testing.assert_array_equal(core.run("ReduceMin", [x, axes_of(axis)])[0], x.min(axis, keepdims=True))


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        ("ReduceSum", np.float32, 0),
        ("ReduceProd", np.float32, 1),
        ("ReduceMean", np.float32, np.nan),
        ("ReduceMean", np.int32, 0),
        ("ReduceMax", np.float16, -np.inf),
        ("ReduceMin", np.float64, np.inf),
        ("ReduceMax", np.int32, -(2**31)),
        ("ReduceMin", np.uint8, 255),
        ("ReduceMin", np.bool_, True),
        ("ReduceMax", np.bool_, False),
        ("ReduceLogSum", np.float32, -np.inf),
        ("ReduceLogSumExp", np.float32, -np.inf),
    ],
)
def test_nothing_to_reduce_gives_the_identity(core: Any, op: str, dtype: Any, value: float) -> None:
    (y,) = core.run(op, [np.zeros((2, 0, 3), dtype), axes_of(1)])
    np.testing.assert_array_equal(y, np.full((2, 1, 3), value, dtype))
    (y,) = core.run(op, [np.zeros((2, 0, 3), dtype), axes_of(2)])
    assert y.shape == (2, 0, 1)


@pytest.mark.parametrize("shape", [(300,), (3, 50), (50, 3), (50, 70)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_wins(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(4)
    for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        x = rng.standard_normal(shape).astype(dtype)
        x.flat[rng.integers(x.size)] = np.nan
        with np.errstate(invalid="ignore"):
            want = REFERENCE[op](x.astype(np.float64), axis=0)
        np.testing.assert_array_equal(np.isnan(core.run(op, [x, axes_of(0)], {"keepdims": 0})[0]), np.isnan(want))


def test_log_sum_exp_of_large_and_infinite(core: Any) -> None:
    x = np.array([[1000, 1000], [-1000, -1000], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    (y,) = core.run("ReduceLogSumExp", [x, axes_of(1)], {"keepdims": 0})
    np.testing.assert_allclose(y, [1000 + np.log(2), -1000 + np.log(2), -np.inf, np.inf], 1e-6)


@pytest.mark.parametrize(
    "shape", [(1, 1 << 20), (1 << 20, 1), (1 << 16, 16), (3, 1 << 19), (1 << 8, 1 << 12), (64, 3, 4097)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_large_sums_are_accurate_and_the_same_on_any_threads(core: Any, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(5).random(shape, np.float32)
    (y,) = core.run("ReduceSum", [x, axes_of(axis)], {"keepdims": 0})
    np.testing.assert_allclose(y, x.astype(np.float64).sum(axis), 3e-7)
    np.testing.assert_array_equal(y, core.run("ReduceSum", [x, axes_of(axis)], {"keepdims": 0}, threads=2)[0])


def test_axes_absent_or_empty(core: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axes in (None, axes_of()):
        np.testing.assert_array_equal(core.run("ReduceSum", [x, axes])[0], [[15]])
        np.testing.assert_array_equal(core.run("ReduceSumSquare", [x, axes], {"noop_with_empty_axes": 1})[0], x * x)


@pytest.mark.parametrize(
    "axes", [axes_of(2), axes_of(-3), axes_of(0, 0), axes_of(1, -1), np.zeros((1, 1), np.int64), np.zeros(1, np.int32)]
)
def test_bad_axes_are_refused(core: Any, axes: Array) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("ReduceSum", [np.ones((2, 3), np.float32), axes])
