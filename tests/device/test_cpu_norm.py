"""Softmax and normalisations of the `cpu` provider against NumPy and ONNX's node tests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = [
    "Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization",
    "GroupNormalization", "BatchNormalization", "LpNormalization", "MeanVarianceNormalization", "LRN",
]  # fmt: skip
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-12, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}
SHAPES = [(1,), (7,), (3, 5), (2, 1, 33), (3, 2, 5, 4), (2, 300, 3), (5, 1100), (2, 9, 600), (0, 3), (3, 0), (2, 0, 4)]


def uniform(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-2, 3, shape).astype(dtype)


def close(got: Array, want: Array, dtype: Any) -> None:
    assert got.shape == want.shape
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), want, TOLERANCE[dtype], TOLERANCE[dtype])


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_along_every_axis(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = uniform(shape, dtype) * np.array(4, dtype)
    for axis in range(-len(shape), len(shape)):
        for threads in (1, 2):
            soft, logs, hard = (
                core.run(op, [x], {"axis": axis}, threads=threads)[0] for op in ("Softmax", "LogSoftmax", "Hardmax")
            )
            if x.size == 0:
                assert soft.shape == logs.shape == hard.shape == shape
                continue
            want = softmax(x.astype(np.float64), axis)
            close(soft, want, dtype)
            close(logs, np.log(want), dtype)
            first = np.argmax(x.astype(np.float64), axis)
            np.testing.assert_array_equal(np.argmax(hard.astype(np.float64), axis), first)
            np.testing.assert_array_equal(hard.astype(np.float64).sum(axis), np.ones(first.shape))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_the_extreme(core: Any, dtype: Any, axis: int) -> None:
    inf, nan = np.inf, np.nan
    rows = [[1e4, 1e4 - 64, -1e4, 0], [-inf, 0, 0, -inf], [-inf] * 4, [inf, 0, 0, 0], [nan, 0, 1, 2], [0, 1, 2, nan]]
    x = np.array(rows).astype(dtype)
    with np.errstate(invalid="ignore", divide="ignore"):
        want = softmax(x.astype(np.float64), 1)
        logs = np.log(want)
        logs[0] = x[0].astype(np.float64) - x[0].astype(np.float64).max()
    given = x if axis == 1 else np.ascontiguousarray(x.T)
    turn = (lambda y: y) if axis == 1 else np.transpose
    close(turn(core.run("Softmax", [given], {"axis": axis})[0]), want, dtype)
    close(turn(core.run("LogSoftmax", [given], {"axis": axis})[0]), logs, dtype)
    hard = turn(core.run("Hardmax", [given], {"axis": axis})[0])
    np.testing.assert_array_equal(hard[2:].astype(int), np.eye(4, dtype=int)[[0, 0, 0, 3]])


def test_softmax_refuses_a_scalar_and_a_far_axis(core: Any) -> None:
    for shape, axis in [((), -1), ((3,), 1), ((3, 4), -3)]:
        with pytest.raises(_core.BadOperand):
            core.run("Softmax", [np.ones(shape, np.float32)], {"axis": axis})
    with pytest.raises(_core.Unsupported):
        core.run("Softmax", [np.ones((2, 2), np.int32)])


def layer_norm(x: Array, axis: int, scale: Array, bias: Array | float, eps: float) -> tuple[Array, Array, Array]:
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return (x - mean) * inverse * scale + bias, mean, inverse


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 3, 33), (2, 3, 5, 4), (3, 1500), (2, 3, 400)])
def test_layer_normalization(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = uniform(shape, dtype)
    for axis in range(-len(shape), len(shape)):
        for parameters in (shape[axis:], shape[-1:], (1,), (), shape):
            scale, bias = uniform(parameters, dtype, 1), uniform(parameters, dtype, 2)
            wide = [v.astype(np.float64) for v in (x, scale, bias)]
            for given in (bias, None):
                want = layer_norm(wide[0], axis, wide[1], wide[2] if given is not None else 0.0, 1e-3)
                attrs = {"axis": axis, "epsilon": 1e-3}
                got = core.run(
                    "LayerNormalization", [x, scale, given], attrs, [dtype, np.float32, np.float32], threads=2
                )
                close(got[0], want[0], dtype)
                for g, w in zip(got[1:], want[1:], strict=True):
                    close(g, w, np.float32)
            rms = wide[0] / np.sqrt((wide[0] ** 2).mean(tuple(range(axis % x.ndim, x.ndim)), keepdims=True) + 1e-3)
            close(core.run("RMSNormalization", [x, scale], {"axis": axis, "epsilon": 1e-3})[0], rms * wide[1], dtype)


@pytest.mark.parametrize(("shape", "axis"), [((0, 4), -1), ((0, 4), 0), ((2, 0), 1), ((2, 0, 3), 2)])
def test_layer_normalization_of_nothing(core: Any, shape: tuple[int, ...], axis: int) -> None:
    x, scale = np.ones(shape, np.float32), np.ones(shape[-1:], np.float32)
    y, mean = core.run("LayerNormalization", [x, scale], {"axis": axis}, [np.float32, np.float32])
    assert y.shape == shape
    assert mean.shape == tuple(n if i < axis % len(shape) else 1 for i, n in enumerate(shape))
    assert np.isnan(mean).all()


def test_layer_normalization_omits_outputs_and_stores_statistics_as_asked(core: Any) -> None:
    x = uniform((3, 4), np.float16)
    scale = np.ones(4, np.float16)
    want = layer_norm(x.astype(np.float64), -1, np.ones(4), 0.0, 1e-5)
    y, inverse = core.run("LayerNormalization", [x, scale], {"stash_type": 16}, [np.float16, None, ml_dtypes.bfloat16])
    close(y, want[0], np.float16)
    close(inverse, want[2], ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale_dtype", FLOATS)
def test_rms_normalization_of_mixed_types(core: Any, dtype: Any, scale_dtype: Any) -> None:
    x, scale = uniform((5, 1030), dtype), uniform((1030,), scale_dtype, 1)
    (y,) = core.run("RMSNormalization", [x, scale], outputs=[scale_dtype])
    wide = x.astype(np.float64)
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale.astype(np.float64)
    coarse = max((dtype, scale_dtype), key=lambda d: TOLERANCE[d])
    assert y.dtype == scale_dtype
    np.testing.assert_allclose(y.astype(np.float64), want, max(TOLERANCE[coarse], 3e-6), max(TOLERANCE[coarse], 3e-6))


def test_simplified_layer_normalization(core: Any) -> None:
    x, scale = uniform((3, 8), np.float32), uniform((8,), np.float32, 1)
    y, inverse = core.run("SimplifiedLayerNormalization", [x, scale], outputs=[np.float32, np.float32])
    want = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    close(inverse, want, np.float32)
    close(y, x * want * scale, np.float32)


@pytest.mark.parametrize("bad", [(2,), (3, 1), (1, 2, 4)])
def test_parameters_must_broadcast(core: Any, bad: tuple[int, ...]) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("LayerNormalization", [np.ones((2, 4), np.float32), np.ones(bad, np.float32)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 1), (1, 6, 5), (2, 6, 3, 700), (0, 6, 2), (2, 6, 0)])
def test_group_and_instance_normalization(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x, scale, bias = uniform(shape, dtype), uniform((6,), dtype, 1), uniform((6,), dtype, 2)
    spread = (1, 6) + (1,) * (len(shape) - 2)
    wide, s, b = x.astype(np.float64), scale.astype(np.float64).reshape(spread), bias.astype(np.float64).reshape(spread)
    for groups in (1, 2, 3, 6):
        rows = wide.reshape(shape[0], groups, -1) if wide.size else np.zeros((shape[0], groups, 1))
        rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-2)
        want = (rows.reshape(shape) if wide.size else wide) * s + b
        for threads in (1, 2):
            attrs = {"num_groups": groups, "epsilon": 1e-2}
            close(core.run("GroupNormalization", [x, scale, bias], attrs, threads=threads)[0], want, dtype)
    close(core.run("InstanceNormalization", [x, scale, bias], {"epsilon": 1e-2})[0], want, dtype)


def test_channels_must_fit(core: Any) -> None:
    one = np.ones(6, np.float32)
    for shape, groups, parameters in [((6,), 2, one), ((1, 6, 2), 4, one), ((1, 6, 2), 2, one[:2])]:
        with pytest.raises(_core.BadOperand):
            core.run("GroupNormalization", [np.ones(shape, np.float32), parameters, one], {"num_groups": groups})


def batch_norm(x: Array, scale: Array, bias: Array, mean: Array, var: Array, eps: float) -> Array:
    spread = (-1,) + (1,) * max(0, x.ndim - 2)
    s, b, m, v = (p.astype(np.float64).reshape(spread) for p in (scale, bias, mean, var))
    return s * (x - m) / np.sqrt(v + eps) + b


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(9,), (3, 7), (2, 7, 5), (3, 7, 40, 50), (2, 7, 0), (0, 7)])
@pytest.mark.parametrize("threads", [1, 2])
def test_batch_normalization(core: Any, shape: tuple[int, ...], dtype: Any, threads: int) -> None:
    channels = shape[1] if len(shape) > 1 else 1
    x = uniform(shape, dtype)
    scale, bias, mean = (uniform((channels,), dtype, k) for k in (1, 2, 3))
    var = np.abs(uniform((channels,), dtype, 4))
    (y,) = core.run("BatchNormalization", [x, scale, bias, mean, var], {"epsilon": 1e-2}, threads=threads)
    wide = x.astype(np.float64)
    close(y, batch_norm(wide, scale, bias, mean, var, 1e-2), dtype)
    if x.size == 0:
        return
    axes = tuple(i for i in range(len(shape)) if i != 1)
    now = wide.mean(axes, keepdims=True).reshape(-1), wide.var(axes, keepdims=True).reshape(-1)
    got = core.run(
        "BatchNormalization",
        [x, scale, bias, mean.astype(np.float32), var.astype(np.float32)],
        {"epsilon": 1e-2, "momentum": 0.75, "training_mode": 1},
        [dtype, np.float32, np.float32],
        threads=threads,
    )
    close(got[0], batch_norm(wide, scale, bias, *now, 1e-2), dtype)
    for g, before, current in zip(got[1:], (mean, var), now, strict=True):
        close(g, before.astype(np.float32) * 0.75 + current * 0.25, np.float32)


def test_batch_normalization_refuses_wrong_channels(core: Any) -> None:
    four, three = np.ones(4, np.float32), np.ones(3, np.float32)
    with pytest.raises(_core.BadOperand):
        core.run("BatchNormalization", [np.ones((2, 4, 3), np.float32), four, four, three, four])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(9,), (3, 5), (2, 1, 33), (3, 2, 5, 4), (2, 1500, 3), (3, 0, 2)])
def test_norms_along_axes(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = uniform(shape, dtype)
    if x.size:
        x[(0,) * (len(shape) - 1)] = 0
    wide = x.astype(np.float64)
    for axis in range(-len(shape), len(shape)):
        for p in (1, 2):
            norm = np.linalg.norm(wide, p, axis, keepdims=True)
            want = np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0)
            close(core.run("LpNormalization", [x], {"axis": axis, "p": p}, threads=2)[0], want, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 2], [0, 1, 2], [0, -1, 1]])
def test_mean_variance_normalization(core: Any, axes: list[int], dtype: Any) -> None:
    x = uniform((3, 40, 30), dtype)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(tuple(axes), keepdims=True)) / (wide.std(tuple(axes), keepdims=True) + 1e-9)
    close(core.run("MeanVarianceNormalization", [x], {"axes": axes}, threads=2)[0], want, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.25])
def test_local_response_normalization(core: Any, size: int, beta: float, dtype: Any) -> None:
    for shape in [(2, 7), (2, 7, 3), (1, 8, 30, 21), (2, 0, 3), (0, 4, 4)]:
        x = uniform(shape, dtype)
        square = np.zeros((shape[0], shape[1] + size - 1, *shape[2:]))
        square[:, (size - 1) // 2 : (size - 1) // 2 + shape[1]] = x.astype(np.float64) ** 2
        total = sum(square[:, k : k + shape[1]] for k in range(size))
        want = x.astype(np.float64) / (2 + 0.5 / size * total) ** beta
        attrs = {"size": size, "beta": beta, "alpha": 0.5, "bias": 2.0}
        close(core.run("LRN", [x], attrs, threads=2)[0], want, dtype)
