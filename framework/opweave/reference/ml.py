"""Operators of ai.onnx.ml that `onnx.reference` lacks or refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Node
from opweave.reference import onnx_operators
from opweave.reference.operators import Array, Kernel, plain
from opweave.types import MapType, TensorType


def _zip_map(node: Node, x: Array) -> list[dict[Any, Any]]:
    labels = node.attributes.get("classlabels_strings") or node.attributes.get("classlabels_int64s")
    if labels is None:
        raise ExecutionError("ZipMap", "it has no class labels")
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    if rows.shape[1] != len(labels):
        raise ExecutionError("ZipMap", f"{rows.shape[1]} columns for {len(labels)} class labels")
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]


def _dict_vectorizer(node: Node) -> Kernel:
    """The numbers of a dictionary are Python's: the type of the result is that of the map, or else its values'."""
    kernel = onnx_operators.find(node)
    assert kernel is not None
    declared = node.inputs[0].type if node.inputs[0] is not None else None
    kind = declared.value if isinstance(declared, MapType) else None

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        (result,) = kernel(inputs, outer)
        return (np.atleast_2d(result).astype(kind.dtype.numpy) if isinstance(kind, TensorType) else result,)

    return run


def _category_mapper(node: Node, x: Array) -> Array:
    names, numbers = node.attributes["cats_strings"], node.attributes["cats_int64s"]
    if x.dtype == object:
        table = dict(zip(names, numbers, strict=True))
        default = int(node.attributes.get("default_int64", -1))
        return np.array([table.get(s, default) for s in x.ravel()], np.int64).reshape(x.shape)
    text = dict(zip(numbers, names, strict=True))
    other = node.attributes.get("default_string", "_Unused")
    return np.array([text.get(int(i), other) for i in x.ravel()], object).reshape(x.shape)


def _cast_map(node: Node, x: Mapping[Any, Any]) -> Array:
    target = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[
        node.attributes.get("cast_to", "TO_FLOAT")
    ]
    convert: Any = str if target is object else np.dtype(target).type
    items = {int(k): convert(v) for k, v in x.items()}
    if node.attributes.get("map_form", "DENSE") == "DENSE":
        return np.array([[items[k] for k in sorted(items)]], target)
    zero: Any = "" if target is object else convert(0)
    return np.array([[items.get(k, zero) for k in range(int(node.attributes.get("max_map", 1)))]], target)


def _linear_classifier(node: Node) -> Kernel:
    """As ONNX Runtime does, takes only the coefficients that classes and features need; some models list more."""
    labels = node.attributes.get("classlabels_ints") or node.attributes.get("classlabels_strings") or []
    coefficients = list(node.attributes["coefficients"])
    classes = len(node.attributes.get("intercepts") or labels)

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        rows = np.atleast_2d(inputs[0])
        attributes = {**node.attributes, "coefficients": coefficients[: classes * rows.shape[1]]}
        kernel = onnx_operators.find(replace(node, attributes=attributes))
        assert kernel is not None
        return kernel([rows], outer)

    return run


OPERATORS: Mapping[tuple[str, str], Callable[[Node], Kernel]] = {
    ("ai.onnx.ml", "CastMap"): plain(_cast_map),
    ("ai.onnx.ml", "CategoryMapper"): plain(_category_mapper),
    ("ai.onnx.ml", "DictVectorizer"): _dict_vectorizer,
    ("ai.onnx.ml", "LinearClassifier"): _linear_classifier,
    ("ai.onnx.ml", "ZipMap"): plain(_zip_map),
}
