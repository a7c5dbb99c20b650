"""Support vector machines of ai.onnx.ml against the reference implementation; probabilities against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
ML = "ai.onnx.ml"
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]
TYPES = [np.float32, np.float64, np.int32, np.int64]


def model(op: str, x: Array, attrs: dict[str, Any], outputs: int) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, ["x"], names, domain=ML, **attrs)
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph([node], "g", [given], [helper.make_empty_tensor_value_info(n) for n in names])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 1)], ir_version=8
    )


def reference(op: str, x: Array, attrs: dict[str, Any], outputs: int = 1) -> list[Array]:
    return list(ReferenceEvaluator(model(op, x, attrs, outputs)).run(None, {"x": x}))


def numbers(count: int, seed: int) -> list[float]:
    return np.random.default_rng(seed).uniform(-1, 1, count).astype(np.float32).tolist()


def rows(dtype: Any, width: int = 11) -> Array:
    return np.random.default_rng(0).uniform(-2, 2, (40, width)).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("supports", [0, 6])
def test_regressor(core: Any, kernel: str, one_class: int, supports: int, dtype: Any) -> None:
    attrs = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 3.0],
        "coefficients": numbers(supports or 11, 1),
        "n_supports": supports,
        "rho": [0.25],
        "one_class": one_class,
    } | ({"support_vectors": numbers(supports * 11, 2)} if supports else {})
    x = rows(dtype)
    (y,) = core.run("SVMRegressor", [x], attrs, [np.float32], ML, threads=2)
    np.testing.assert_allclose(y, reference("SVMRegressor", x.astype(np.float64), attrs)[0], 1e-4, 1e-5)
    with pytest.raises(_core.BadOperand):
        core.run("SVMRegressor", [x[:, :10]], attrs, [np.float32], ML)


def machine(classes: int, kernel: str, transform: str) -> dict[str, Any]:
    counts = [2, 3, 1, 4][:classes]
    pairs = classes * (classes - 1) // 2
    return {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 3.0],
        "vectors_per_class": counts,
        "support_vectors": numbers(sum(counts) * 11, 1),
        "coefficients": numbers(sum(counts) * (classes - 1), 2),
        "rho": numbers(pairs, 3),
        "classlabels_ints": [4, 9, 2, 7][:classes],
        "post_transform": transform,
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classifier(core: Any, classes: int, kernel: str, transform: str, dtype: Any) -> None:
    attrs, x = machine(classes, kernel, transform), rows(dtype)
    y, z = core.run("SVMClassifier", [x], attrs, [np.int64, np.float32], ML, threads=2)
    label, score = reference("SVMClassifier", x, attrs, 2)
    np.testing.assert_array_equal(y, label)
    np.testing.assert_allclose(z, score, 1e-4, 1e-5)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifier_of_two(core: Any, transform: str) -> None:
    x = rows(np.float32)
    attrs = {
        "coefficients": numbers(22, 1),
        "rho": [0.1],
        "classlabels_ints": [4, 9],
        "kernel_type": "LINEAR",
        "post_transform": transform,
    }
    y, z = core.run("SVMClassifier", [x], attrs, [np.int64, np.float32], ML)
    label, score = reference("SVMClassifier", x, attrs, 2)
    np.testing.assert_array_equal(y, label)
    np.testing.assert_allclose(z, score, 1e-4, 1e-5)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_probabilities(core: Any, classes: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pairs = classes * (classes - 1) // 2
    attrs = machine(classes, "RBF", "NONE") | {"prob_a": numbers(pairs, 5), "prob_b": numbers(pairs, 6)}
    x = rows(np.float32)
    y, z = core.run("SVMClassifier", [x], attrs, [np.int64, np.float32], ML)
    session = runtime.InferenceSession(model("SVMClassifier", x, attrs, 2).SerializeToString())
    label, score = session.run(None, {"x": x})
    np.testing.assert_allclose(z.sum(1), 1, 1e-5)
    np.testing.assert_allclose(z, score, 1e-4, 1e-5)
    np.testing.assert_array_equal(y, label)


@pytest.mark.parametrize(
    "change",
    [
        {"rho": [0.1]},
        {"coefficients": [0.1] * 3},
        {"vectors_per_class": [2, 3]},
        {"vectors_per_class": [2, -3, 1]},
        {"support_vectors": [0.5] * 5},
        {"prob_a": [0.5], "prob_b": [0.5]},
        {"kernel_params": [0.5]},
    ],
)
def test_machines_that_do_not_fit(core: Any, change: dict[str, Any]) -> None:
    attrs = machine(3, "RBF", "NONE") | change
    with pytest.raises(_core.BadOperand):
        core.run("SVMClassifier", [rows(np.float32)], attrs, [np.int64, np.float32], ML)
