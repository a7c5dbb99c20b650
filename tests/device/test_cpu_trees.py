"""Trees, LinearRegressor and feature operators of ai.onnx.ml against ONNX's node tests and reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
ML = "ai.onnx.ml"
NODE_OPERATORS = ["TreeEnsemble", "Binarizer", "ArrayFeatureExtractor"]
TYPES = [np.float32, np.float64, np.int32, np.int64]


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def reference(op: str, inputs: list[Array], attrs: dict[str, Any], outputs: int = 1) -> list[Array]:
    names = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, *names, domain=ML, **attrs)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names[0], inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info(n) for n in names[1]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(ML, 3)])
    return list(ReferenceEvaluator(model).run(None, dict(zip(names[0], inputs, strict=True))))


def rows(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-3, 4, shape).astype(dtype)


def trees(count: int, depth: int, features: int, modes: list[str], seed: int) -> dict[str, Any]:
    """The attributes nodes_* of random trees, their numbers shuffled."""
    rng = np.random.default_rng(seed)
    size = 2 ** (depth + 1) - 1
    names = [rng.permutation(size).tolist() for _ in range(count)]
    for tree in names:  # the root comes first, whatever its number
        assert len(tree) == size
    inner = [i < size // 2 for i in range(size)]
    return {
        "nodes_treeids": [t for t in range(count) for _ in range(size)],
        "nodes_nodeids": [n for tree in names for n in tree],
        "nodes_featureids": rng.integers(0, features, count * size).tolist(),
        "nodes_values": rng.uniform(-2, 3, count * size).astype(np.float32).round(1).tolist(),
        "nodes_modes": [str(rng.choice(modes)) if inner[i] else "LEAF" for _ in names for i in range(size)],
        "nodes_truenodeids": [tree[2 * i + 1] if inner[i] else 0 for tree in names for i in range(size)],
        "nodes_falsenodeids": [tree[2 * i + 2] if inner[i] else 0 for tree in names for i in range(size)],
        "nodes_missing_value_tracks_true": rng.integers(0, 2, count * size).tolist(),
    }


def votes(attrs: dict[str, Any], prefix: str, targets: int, each: int, seed: int, low: float = -1) -> dict[str, Any]:
    """Leaves that vote for `each` of the targets."""
    rng = np.random.default_rng(seed)
    leaves = [i for i, mode in enumerate(attrs["nodes_modes"]) if mode == "LEAF" for _ in range(each)]
    ids = [int(t) for _ in range(len(leaves) // each) for t in rng.permutation(targets)[:each]]
    return {
        f"{prefix}treeids": [attrs["nodes_treeids"][i] for i in leaves],
        f"{prefix}nodeids": [attrs["nodes_nodeids"][i] for i in leaves],
        f"{prefix}ids": ids,
        f"{prefix}weights": rng.uniform(low, 1, len(leaves)).astype(np.float32).tolist(),
    }


ALL_MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(core: Any, aggregate: str, dtype: Any) -> None:
    attrs = trees(5, 3, 4, ALL_MODES, 1)
    attrs |= votes(attrs, "target_", 3, 3, 2) | {"n_targets": 3, "aggregate_function": aggregate}
    attrs["base_values"] = [0.5, -1.0, 2.0]
    x = rows((300, 4), dtype)
    if dtype in (np.float32, np.float64):
        x = x.round(1)
        x[::7, 2] = np.nan
    (y,) = core.run("TreeEnsembleRegressor", [x], attrs, [np.float32], ML, threads=2)
    (want,) = reference("TreeEnsembleRegressor", [x.astype(np.float64)], attrs)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, want, 1e-5, 1e-5)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("labels", "each"), [([7, 3, 9], 1), ([7, 3, 9], 3), ([4, 5], 2), ([0, 1, 2, 3, 4, 5], 4)])
def test_tree_classifier(core: Any, transform: str, labels: list[int], each: int) -> None:
    attrs = trees(4, 2, 3, ALL_MODES, 3)
    attrs |= votes(attrs, "class_", len(labels), each, 4)
    attrs |= {"classlabels_int64s": labels, "post_transform": transform}
    x = rows((200, 3), np.float32)
    y, z = core.run("TreeEnsembleClassifier", [x], attrs, [np.int64, np.float32], ML, threads=2)
    label, score = reference("TreeEnsembleClassifier", [x], attrs, 2)
    np.testing.assert_allclose(z, score, 1e-5, 1e-6)
    np.testing.assert_array_equal(y, label)
    (alone,) = core.run("TreeEnsembleClassifier", [x], attrs, [None, np.float32], ML)
    np.testing.assert_array_equal(alone, z)


@pytest.mark.parametrize(("transform", "low"), [("NONE", 0.0), ("LOGISTIC", -1.0), ("LOGISTIC", 0.0)])
@pytest.mark.parametrize("base", [None, [0.25]])
def test_tree_classifier_of_two_classes_by_one_score(core: Any, transform: str, low: float, base: Any) -> None:
    attrs = trees(3, 2, 3, ["BRANCH_LEQ"], 5)
    attrs |= votes(attrs, "class_", 1, 1, 6, low)
    attrs |= {"classlabels_int64s": [10, 20], "post_transform": transform} | ({"base_values": base} if base else {})
    x = rows((100, 3), np.float32)
    y, z = core.run("TreeEnsembleClassifier", [x], attrs, [np.int64, np.float32], ML)
    label, score = reference("TreeEnsembleClassifier", [x], attrs, 2)
    np.testing.assert_allclose(z, score, 1e-5, 1e-6)
    np.testing.assert_array_equal(y, label)


def test_trees_of_one_leaf_and_rows_of_nothing(core: Any) -> None:
    attrs = trees(2, 0, 1, ALL_MODES, 7)
    attrs |= votes(attrs, "target_", 1, 1, 8) | {"n_targets": 1}
    (y,) = core.run("TreeEnsembleRegressor", [rows((3, 1), np.float32)], attrs, [np.float32], ML)
    np.testing.assert_allclose(y, np.full((3, 1), sum(attrs["target_weights"])), 1e-6)
    (y,) = core.run("TreeEnsembleRegressor", [rows((0, 1), np.float32)], attrs, [np.float32], ML)
    assert y.shape == (0, 1)


def test_hostile_trees_are_refused(core: Any) -> None:
    good = trees(2, 2, 3, ALL_MODES, 9)
    good |= votes(good, "target_", 2, 1, 10) | {"n_targets": 2}
    x = rows((2, 3), np.float32)
    first = good["nodes_nodeids"][0]
    changes = [
        {"nodes_truenodeids": [first] * 14},
        {"nodes_truenodeids": [99] * 14},
        {"nodes_featureids": [3] * 14},
        {"nodes_featureids": [-1] * 14},
        {"target_ids": [2] * 8},
        {"target_ids": [-1] * 8},
        {"nodes_values": [0.0]},
        {"n_targets": -1},
        {"base_values": [1.0, 2.0, 3.0]},
        {"target_nodeids": [77] * 8},
    ]
    for change in changes:
        with pytest.raises(_core.BadOperand):
            core.run("TreeEnsembleRegressor", [x], good | change, [np.float32], ML)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(core: Any, targets: int, dtype: Any) -> None:
    x = rows((50, 7), dtype)
    attrs = {
        "coefficients": rows((targets * 7,), np.float32, 1).tolist(),
        "intercepts": rows((targets,), np.float32, 2).tolist(),
        "targets": targets,
    }
    (y,) = core.run("LinearRegressor", [x], attrs, [np.float32], ML, threads=2)
    (want,) = reference("LinearRegressor", [x.astype(np.float64)], attrs)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, want, 1e-5, 1e-5)
    with pytest.raises(_core.BadOperand):
        core.run("LinearRegressor", [x[:, :6]], attrs, [np.float32], ML)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Binarizer", {"threshold": 0.5}),
        ("OneHotEncoder", {"cats_int64s": [1, 0, 3], "zeros": 1}),
    ],
)
def test_features(core: Any, op: str, attrs: dict[str, Any], dtype: Any) -> None:
    x = rows((40, 3), dtype)
    x[3] = 0
    kind = dtype if op == "Binarizer" else np.float32
    (y,) = core.run(op, [x], attrs, [kind], ML)
    (want,) = reference(op, [x.astype(np.float64)], attrs)
    assert y.dtype == kind
    np.testing.assert_allclose(y, want, 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 3])
def test_imputer(core: Any, count: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 3, (20, 3)).astype(dtype)
    for replaced in [1.0, np.nan] if dtype in TYPES[:2] else [1]:
        whole = isinstance(replaced, int)
        x = x if whole else np.where(x == 2, np.nan, x).astype(dtype)
        suffix = ("int64s", "int64") if whole else ("floats", "float")
        values = [7, 8, 9][:count] if whole else [7.0, 8.0, 9.0][:count]
        attrs = {f"imputed_value_{suffix[0]}": values, f"replaced_value_{suffix[1]}": replaced}
        (y,) = core.run("Imputer", [x], attrs, None, ML)
        np.testing.assert_array_equal(y, reference("Imputer", [x], attrs)[0])


def test_feature_vectorizer_cuts_and_fills(core: Any) -> None:
    parts = [rows((4, 3), np.float32), rows((4,), np.float32, 1), rows((4, 2), np.float32, 2)]
    attrs = {"inputdimensions": [2, 3, 2]}
    (y,) = core.run("FeatureVectorizer", parts, attrs, [np.float32], ML)
    np.testing.assert_array_equal(y, reference("FeatureVectorizer", parts, attrs)[0])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_array_feature_extractor(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = rows(shape, dtype)
    for indices in (np.array([[4, 0, 0]]), np.array([2])):
        (y,) = core.run("ArrayFeatureExtractor", [x, indices], {}, [dtype], ML)
        np.testing.assert_array_equal(y, reference("ArrayFeatureExtractor", [x, indices], {})[0])
    for bad in (5, -1):
        with pytest.raises(_core.BadOperand):
            core.run("ArrayFeatureExtractor", [x, np.array([bad])], {}, [dtype], ML)


def test_unknown_categories_are_errors_when_asked(core: Any) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("OneHotEncoder", [np.array([5])], {"cats_int64s": [1, 2], "zeros": 0}, [np.float32], ML)


def test_strings_stay_with_the_reference(core: Any) -> None:
    attrs = trees(1, 1, 1, ALL_MODES, 1)
    attrs |= votes(attrs, "class_", 2, 2, 2) | {"classlabels_strings": ["a", "b"]}
    with pytest.raises(_core.Unsupported):
        core.run("TreeEnsembleClassifier", [rows((2, 1), np.float32)], attrs, [np.int64, np.float32], ML)
