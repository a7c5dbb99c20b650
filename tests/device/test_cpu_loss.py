"""Losses, windows and determinants of the `cpu` provider against NumPy and ONNX's node tests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = [
    "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "HannWindow", "HammingWindow", "BlackmanWindow",
    "MelWeightMatrix", "Det",
]  # fmt: skip
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12, np.float16: 4e-3, ml_dtypes.bfloat16: 3e-2}


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def close(got: Array, want: Array, dtype: Any) -> None:
    assert got.shape == np.shape(want)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), want, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 3), (5, 40), (2, 4, 7), (3, 5, 20, 30)])
@pytest.mark.parametrize("ignored", [None, 1, -7])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(core: Any, shape: tuple[int, ...], dtype: Any, ignored: int | None, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(dtype)
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    if ignored is not None:
        labels.flat[::3] = ignored
        labels.flat[0] = 0
    weight = rng.uniform(0.5, 2, shape[1]).astype(dtype)
    wide = x.astype(np.float64)
    logs = wide - wide.max(1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    counted = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    w = np.where(counted, weight.astype(np.float64)[labels * counted] if weighted else 1.0, 0.0)
    for op, source in (("NegativeLogLikelihoodLoss", wide), ("SoftmaxCrossEntropyLoss", logs)):
        each = -w * np.take_along_axis(source, (labels * counted)[:, None], 1)[:, 0]
        for reduction, want in (("none", each), ("sum", each.sum()), ("mean", each.sum() / w.sum())):
            attrs = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
            operands = [x, labels.astype(np.int32 if weighted else np.int64), weight if weighted else None]
            both = op == "SoftmaxCrossEntropyLoss"
            got = core.run(op, operands, attrs, [dtype, dtype] if both else [dtype], threads=2)
            tolerance = TOLERANCE[dtype] * (np.abs(each).sum() if reduction == "sum" else 2)
            np.testing.assert_allclose(got[0].astype(np.float64), want, TOLERANCE[dtype], tolerance)
            assert got[0].dtype == dtype
            if both:
                close(got[1], logs, dtype)


@pytest.mark.parametrize("labels", [np.array([0, 3]), np.array([-1, 0]), np.array([0]), np.array([0.0, 1.0])])
def test_losses_refuse_labels(core: Any, labels: Array) -> None:
    for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        with pytest.raises(_core.BadOperand):
            core.run(op, [np.ones((2, 3), np.float32), labels])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8])
@pytest.mark.parametrize("size", [0, 2, 7, 400])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(core: Any, size: int, periodic: int, dtype: Any) -> None:
    n, period = np.arange(size), size if periodic else size - 1
    p = 2 * np.pi * n / period if size else np.zeros(0)
    wanted = {
        "HannWindow": 0.5 - 0.5 * np.cos(p),
        "HammingWindow": 25 / 46 - 21 / 46 * np.cos(p),
        "BlackmanWindow": 0.42 - 0.5 * np.cos(p) + 0.08 * np.cos(2 * p),
    }
    code = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    for op, want in wanted.items():
        attrs = {"periodic": periodic, "output_datatype": code}
        (y,) = core.run(op, [np.array(size, np.int32)], attrs, [dtype])
        assert y.dtype == dtype
        if dtype in FLOATS:
            close(y, want, dtype)
        else:
            assert y.shape == (size,)
            assert ((y == np.floor(want + 1e-9)) | (y == np.floor(want - 1e-9).clip(0))).all()
    with pytest.raises(_core.BadOperand):
        core.run("HannWindow", [np.array(-1)])


def test_mel_weights_refuse_edges_outside_the_spectrum(core: Any) -> None:
    integers = [np.array(v) for v in (8, 16, 8192)]
    for low, high in [(0.0, 1e9), (-700.0, 4096.0), (np.nan, 4096.0)]:
        with pytest.raises(_core.BadOperand):
            core.run("MelWeightMatrix", [*integers, np.array(low, np.float32), np.array(high, np.float32)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (5, 5), (3, 2, 2), (2, 3, 9, 9), (0, 3, 3)])
def test_determinants(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
    close(core.run("Det", [x], threads=2)[0], np.linalg.det(x.astype(np.float64)), dtype)


def test_determinants_of_the_singular_and_the_oblong(core: Any) -> None:
    assert core.run("Det", [np.ones((3, 3), np.float32)])[0] == 0
    np.testing.assert_array_equal(core.run("Det", [np.array([[0, 2], [3, 0]], np.float32)])[0], -6)
    with pytest.raises(_core.BadOperand):
        core.run("Det", [np.ones((2, 3), np.float32)])
