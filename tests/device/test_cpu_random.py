"""Random operators of the `cpu` provider: types, shapes, moments, seeds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def code(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def draw(
    core: Any, op: str, like: Array | None = None, dtype: Any = np.float32, threads: int = 1, **attrs: Any
) -> Array:
    inputs = [] if like is None else [like]
    (y,) = core.run(op, inputs, {"dtype": code(dtype), **attrs}, [dtype], threads=threads)
    assert y.dtype == dtype
    return y


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments(core: Any, dtype: Any) -> None:
    shape = (300, 701)
    uniform = draw(core, "RandomUniform", dtype=dtype, shape=list(shape), low=-1.0, high=3.0).astype(np.float64)
    normal = draw(core, "RandomNormal", dtype=dtype, shape=list(shape), mean=2.0, scale=0.5).astype(np.float64)
    assert uniform.shape == normal.shape == shape
    assert uniform.min() >= -1
    assert uniform.max() <= 3
    np.testing.assert_allclose([uniform.mean(), uniform.std()], [1, 4 / np.sqrt(12)], atol=0.02)
    np.testing.assert_allclose([normal.mean(), normal.std()], [2, 0.5], atol=0.01)
    standard = (normal - 2) / 0.5
    np.testing.assert_allclose([(standard**3).mean(), (standard**4).mean()], [0, 3], atol=0.1)
    counts, _ = np.histogram(uniform, 8, (-1, 3))
    np.testing.assert_allclose(counts / uniform.size, 1 / 8, atol=0.02)
    rows = standard[:, :-1] - standard.mean()
    assert abs((rows * (standard[:, 1:] - standard.mean())).mean()) < 0.02  # neighbours do not depend on each other


@pytest.mark.parametrize("op", ["RandomUniform", "RandomNormal"])
def test_seeds(core: Any, op: str) -> None:
    first = draw(core, op, shape=[5000], seed=1.5)
    np.testing.assert_array_equal(first, draw(core, op, shape=[5000], seed=1.5, threads=2))
    assert (first != draw(core, op, shape=[5000], seed=2.5)).mean() > 0.99
    assert (draw(core, op, shape=[5000]) != draw(core, op, shape=[5000])).mean() > 0.99


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 1030)])
def test_like(core: Any, shape: tuple[int, ...]) -> None:
    for op in ("RandomUniformLike", "RandomNormalLike"):
        x = np.zeros(shape, np.float16)
        (y,) = core.run(op, [x])
        assert y.shape == shape
        assert y.dtype == np.float16
        assert draw(core, op, np.zeros(shape, np.int32), np.float64).shape == shape
    with pytest.raises(_core.Unsupported):
        core.run("RandomUniformLike", [np.zeros(shape, np.int32)])


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64, np.uint8, ml_dtypes.bfloat16])
def test_bernoulli(core: Any, dtype: Any) -> None:
    p = np.repeat(np.array([0, 0.25, 0.5, 1], np.float64), 20000).reshape(4, -1)
    y = draw(core, "Bernoulli", p, dtype, threads=2, seed=3.0).astype(np.float64)
    assert set(np.unique(y)) == {0, 1}
    np.testing.assert_allclose(y.mean(1), [0, 0.25, 0.5, 1], atol=0.02)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("source", FLOATS)
def test_multinomial(core: Any, source: Any, dtype: Any) -> None:
    weights = np.array([[1, 2, 5, 0], [4, 4, 0, 0]])
    with np.errstate(divide="ignore"):
        logs = np.log(weights).astype(source)
    y = draw(core, "Multinomial", logs, dtype, sample_size=20000)
    assert y.shape == (2, 20000)
    for row, w in zip(y, weights, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / 20000, w / w.sum(), atol=0.02)
    for bad in (np.full((1, 3), np.nan, np.float32), np.ones((1, 0), np.float32), np.ones(3, np.float32)):
        with pytest.raises(_core.BadOperand):
            draw(core, "Multinomial", bad, dtype)
