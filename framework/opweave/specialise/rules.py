"""Output types of the operators that ONNX's inference does not know: com.microsoft, some of ai.onnx.ml."""

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


def _transposed(x: Shape | None, inner: bool, batch: bool) -> Shape | None:
    if x is None or len(x) < 2:
        return x
    if batch and len(x) > 2:
        x = (*x[1:-1], x[0], x[-1])
    return (*x[:-2], x[-1], x[-2]) if inner else x


def _fused_matmul(node: Node, types: Types) -> Types:
    flags = {k: bool(node.attributes.get(k, 0)) for k in ("transA", "transB", "transBatchA", "transBatchB")}
    first = tensor(types, 0)
    if first is None:
        return [None]
    left = _transposed(first.shape, flags["transA"], flags["transBatchA"])
    right = _transposed(shape(types, 1), flags["transB"], flags["transBatchB"])
    return [TensorType(first.dtype, matmul_shape(left, right))]


def _integer_product(scale: int) -> Rule:
    """A product of A and B in the element type of the input `scale`."""

    def rule(_node: Node, types: Types) -> Types:
        scaled = tensor(types, scale)
        dtype = DType.FLOAT32 if scaled is None else scaled.dtype
        return [TensorType(dtype, matmul_shape(shape(types, 0), shape(types, 1)))]

    return rule


def _skip_normalization(_node: Node, types: Types) -> Types:
    first = tensor(types, 0)
    if first is None:
        return [None]
    whole = TensorType(first.dtype, first.shape)
    column = None if first.shape is None else (*first.shape[:-1], 1)
    statistics = TensorType(DType.FLOAT32, column)
    return [whole, statistics, statistics, whole]


def _embed_normalization(_node: Node, types: Types) -> Types:
    ids, words = shape(types, 0), tensor(types, 2)
    if words is None:
        return [None]
    known = ids is not None and len(ids) == 2 and words.shape is not None and len(words.shape) == 2
    whole = TensorType(words.dtype, (*ids, words.shape[1]) if known and ids and words.shape else None)
    return [whole, TensorType(DType.INT32, (ids[0],) if ids else None), whole]


def _dynamic_lstm(node: Node, types: Types) -> Types:
    x = shape(types, 0)
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    hidden = node.attributes.get("hidden_size")
    steps, batch = (None, None) if x is None or len(x) != 3 else x[:2]
    state = TensorType(DType.FLOAT32, (directions, batch, hidden))
    return [TensorType(DType.FLOAT32, (steps, directions, batch, hidden)), state, state]


def _attention(node: Node, types: Types) -> Types:
    first, weights = tensor(types, 0), shape(types, 1)
    if first is None or first.shape is None or weights is None or len(first.shape) != 3:
        return [None if first is None else TensorType(first.dtype)]
    batch, length, _ = first.shape
    third = weights[1] // 3 if isinstance(weights[1], int) else None
    sizes = node.attributes.get("qkv_hidden_sizes") or [third] * 3
    heads = node.attributes["num_heads"]
    past = shape(types, 4)
    total = length if past is None else _sum(past[3], length)
    head = sizes[2] // heads if isinstance(sizes[2], int) else None
    return [
        TensorType(first.dtype, (batch, length, sizes[2])),
        TensorType(first.dtype, (2, batch, heads, total, head)),
    ]


def _sum(a: Dim, b: Dim) -> Dim:
    return a + b if isinstance(a, int) and isinstance(b, int) else None


def _multi_head_attention(_node: Node, types: Types) -> Types:
    query, value = tensor(types, 0), shape(types, 2)
    if query is None:
        return [None]
    if query.shape is None or len(query.shape) != 3 or value is None:
        return [TensorType(query.dtype)]
    batch, length, _ = query.shape
    hidden = value[2] if len(value) == 3 else None
    return [TensorType(query.dtype, (batch, length, hidden)), TensorType(query.dtype), TensorType(query.dtype)]


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
    ("com.microsoft", "Gelu"): same_as_first,
    ("com.microsoft", "BiasGelu"): same_as_first,
    ("com.microsoft", "FastGelu"): same_as_first,
    ("com.microsoft", "QuickGelu"): same_as_first,
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
    ("com.microsoft", "SkipLayerNormalization"): _skip_normalization,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _skip_normalization,
    ("com.microsoft", "EmbedLayerNormalization"): _embed_normalization,
    ("com.microsoft", "MatMulIntegerToFloat"): _integer_product(2),
    ("com.microsoft", "DynamicQuantizeMatMul"): _integer_product(2),
    ("com.microsoft", "DynamicQuantizeLSTM"): _dynamic_lstm,
    ("com.microsoft", "Attention"): _attention,
    ("com.microsoft", "MultiHeadAttention"): _multi_head_attention,
}
