"""Scaler, Normalizer and LinearClassifier of ai.onnx.ml against ONNX's reference implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

if TYPE_CHECKING:
    from .conftest import Array, Core

ML = "ai.onnx.ml"
DTYPES = [np.float32, np.float64, np.int32, np.int64]


def reference(op: str, x: Array, attrs: dict[str, Any], outputs: int = 1) -> list[Array]:
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, ["x"], names, domain=ML, **attrs)
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), None)
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 1)]
    model = helper.make_model(helper.make_graph([node], "g", [given], made), opset_imports=opsets)
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, {"x": x})]


def features(dtype: Any, shape: tuple[int, ...] = (50, 7)) -> Array:
    return (np.random.default_rng(1).standard_normal(shape) * 5).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 7])
def test_scaler(core: Core, dtype: Any, length: int) -> None:
    x = features(dtype)
    offset, scale = np.linspace(-1, 1, length), np.linspace(0.5, 2, length)
    attrs = {"offset": offset.tolist(), "scale": scale.tolist()}
    (got,) = core.run("Scaler", [x], attrs, [np.float32], domain=ML, threads=2)
    np.testing.assert_allclose(got, (x - offset) * scale, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(core: Core, dtype: Any, norm: str) -> None:
    x = features(dtype)
    x[3] = 0
    (want,) = reference("Normalizer", x.astype(np.float64), {"norm": norm})
    (got,) = core.run("Normalizer", [x], {"norm": norm}, [np.float32], domain=ML, threads=2)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize(("planes", "labels"), [(3, [5, -2, 9]), (1, [4, 8]), (1, [6]), (2, [0, 1])])
def test_linear_classifier(core: Core, dtype: Any, post: str, planes: int, labels: list[int]) -> None:
    rng = np.random.default_rng(2)
    x = features(dtype)
    attrs = {
        "coefficients": (rng.standard_normal(planes * 7) / 10).tolist(),
        "intercepts": rng.standard_normal(planes).tolist(),
        "classlabels_ints": labels,
        "post_transform": post,
    }
    if post == "PROBIT":  # a function of probabilities
        x = np.zeros_like(x)
        attrs["intercepts"] = [0.3, 0.6, 0.1][:planes]
    with np.errstate(invalid="ignore"):
        want_labels, want = reference("LinearClassifier", x, attrs, 2)
    label, scores = core.run("LinearClassifier", [x], attrs, [np.int64, np.float32], domain=ML, threads=2)
    np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(label, want_labels)


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("Scaler", {"offset": [0.0, 1.0], "scale": [1.0]}, "2 offsets or scales"),
        ("Scaler", {"offset": [], "scale": [1.0]}, "offsets or scales"),
        ("Normalizer", {"norm": "L3"}, "norm is L3"),
        ("LinearClassifier", {"coefficients": [1.0] * 4}, "4 coefficients"),
        ("LinearClassifier", {"coefficients": [1.0] * 6, "classlabels_ints": [1]}, "1 labels for 2"),
        ("LinearClassifier", {"coefficients": [1.0] * 3, "intercepts": [1.0] * 2}, "3 coefficients"),
        ("LinearClassifier", {"coefficients": [1.0] * 3, "post_transform": "X"}, "post_transform is X"),
        ("LinearClassifier", {"coefficients": [1.0] * 3, "classlabels_strings": ["a"]}, "strings"),
    ],
)
def test_bad_operands(core: Core, op: str, attrs: dict[str, Any], message: str) -> None:
    outputs = [np.int64, np.float32] if op == "LinearClassifier" else [np.float32]
    with pytest.raises(Exception, match=message):
        core.run(op, [np.zeros((2, 3), np.float32)], attrs, outputs, domain=ML)


def test_coefficients_beyond_the_intercepts_are_not_used(core: Core) -> None:
    """As a model that ONNX Runtime ships has it: four features a row in the weights, two in the input."""
    attrs = {
        "coefficients": [1.0, 2.0, 3.0, 4.0, 50.0, 60.0, 70.0, 80.0],
        "intercepts": [0.5, -0.5],
        "classlabels_ints": [7, 9],
    }
    x = np.array([[1, 1], [-1, 0]], np.float32)
    label, scores = core.run("LinearClassifier", [x], attrs, [np.int64, np.float32], domain=ML)
    np.testing.assert_allclose(scores, [[3.5, 6.5], [-0.5, -3.5]])
    np.testing.assert_array_equal(label, [9, 7])
