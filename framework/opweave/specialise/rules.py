"""Output types of the operators that ONNX's inference does not know or gets wrong, some of ai.onnx.ml."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from opweave.dtypes import DType
from opweave.graph import Node
from opweave.specialise.scope import small_data
from opweave.types import Dim, MapType, SequenceType, Shape, TensorType, Type

Types = Sequence[Type | None]
Rule = Callable[[Node, Types], Types]


class Contradiction(Exception):
    """The operator cannot have such operands; the text says why."""


def tensor(types: Types, index: int) -> TensorType | None:
    """The tensor type of an input; None where it is omitted or unknown."""
    found = types[index] if index < len(types) else None
    return found if isinstance(found, TensorType) else None


def shape(types: Types, index: int) -> Shape | None:
    """The shape of an input; None where it is omitted or unknown."""
    found = tensor(types, index)
    return None if found is None else found.shape


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """NumPy's rule for dimensions that may be unknown. Raises `Contradiction`."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    wide_a, wide_b = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    return tuple(_broadcast_dim(x, y) for x, y in zip(wide_a, wide_b, strict=True))


def _broadcast_dim(x: Dim, y: Dim) -> Dim:
    if x == 1 or x == y:
        return y
    if y == 1:
        return x
    if isinstance(x, int) and isinstance(y, int):
        raise Contradiction(f"dimensions {x} and {y} do not broadcast")
    sizes = [d for d in (x, y) if isinstance(d, int)]
    return sizes[0] if sizes else None


def same_as_first(_node: Node, types: Types) -> Types:
    """One output like input 0."""
    return [types[0]]


def _float_like_first(_node: Node, types: Types) -> Types:
    return [TensorType(DType.FLOAT32, shape(types, 0))]


def matmul_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a (batched) matrix product. Raises `Contradiction`."""
    if a is None or b is None:
        return None
    if not a or not b:
        raise Contradiction("a scalar in a matrix product")
    left, right = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    inner = left[-1], right[-2]
    if all(isinstance(d, int) for d in inner) and inner[0] != inner[1]:
        raise Contradiction(f"inner dimensions {inner[0]} and {inner[1]} differ")
    batch = broadcast(left[:-2], right[:-2]) or ()
    return (*batch, *([left[-2]] if len(a) > 1 else []), *([right[-1]] if len(b) > 1 else []))


def _range(node: Node, types: Types) -> Types:
    """ONNX's inference refuses limits of one element that are no scalars; its own tests have them."""
    first = tensor(types, 0)
    data = [small_data(v) for v in node.inputs]
    if first is None or any(d is None or d.size != 1 for d in data):
        return [None if first is None else TensorType(first.dtype, (None,))]
    start, limit, delta = (d.reshape(()).item() for d in data if d is not None)
    if delta == 0 or not all(math.isfinite(x) for x in (start, limit, delta)):
        raise Contradiction(f"no range from {start} to {limit} by {delta}")
    return [TensorType(first.dtype, (max(math.ceil((limit - start) / delta), 0),))]


def _regressor(attribute: str) -> Rule:
    def rule(node: Node, types: Types) -> Types:
        rows = shape(types, 0)
        columns = int(node.attributes.get(attribute, 1)) if attribute else 1
        return [TensorType(DType.FLOAT32, (rows[0] if rows and len(rows) > 1 else 1, columns) if rows else None)]

    return rule


def _zip_map(node: Node, _types: Types) -> Types:
    key = DType.STRING if node.attributes.get("classlabels_strings") else DType.INT64
    return [SequenceType(MapType(key, TensorType(DType.FLOAT32, ())))]


def _feature_vectorizer(node: Node, types: Types) -> Types:
    rows = shape(types, 0)
    sizes = node.attributes.get("inputdimensions")
    return [TensorType(DType.FLOAT32, (rows[0] if rows and len(rows) > 1 else 1, sum(sizes) if sizes else None))]


OPERATORS: Mapping[tuple[str, str], Rule] = {
    ("", "MeanVarianceNormalization"): same_as_first,
    ("", "Range"): _range,
    ("", "GroupNormalization"): same_as_first,
    ("ai.onnx.ml", "Imputer"): same_as_first,
    ("ai.onnx.ml", "Normalizer"): _float_like_first,
    ("ai.onnx.ml", "Scaler"): _float_like_first,
    ("ai.onnx.ml", "LinearRegressor"): _regressor("targets"),
    ("ai.onnx.ml", "SVMRegressor"): _regressor(""),
    ("ai.onnx.ml", "FeatureVectorizer"): _feature_vectorizer,
    ("ai.onnx.ml", "ZipMap"): _zip_map,
}
