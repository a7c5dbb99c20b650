"""Output types of com.microsoft's operators (ContribOperators.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweave.dtypes import DType
from opweave.graph import Node
from opweave.specialise.rules import Rule, Types, broadcast, matmul_shape, same_as_first, shape, tensor
from opweave.types import Dim, Shape, TensorType


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


def _qlinear_binary(_node: Node, types: Types) -> Types:
    """A, its scale and zero point, B, ...: element type of A."""
    first = tensor(types, 0)
    return [None if first is None else TensorType(first.dtype, broadcast(first.shape, shape(types, 3)))]


def _qlinear_pool(node: Node, types: Types) -> Types:
    first = tensor(types, 0)
    if first is None or first.shape is None:
        return [first]
    spatial = range(1, len(first.shape) - 1) if node.attributes.get("channels_last", 0) else range(2, len(first.shape))
    return [TensorType(first.dtype, tuple(1 if i in spatial else d for i, d in enumerate(first.shape)))]


def _qlinear_concat(node: Node, types: Types) -> Types:
    parts, axis = [shape(types, i) for i in range(2, len(types), 3)], int(node.attributes["axis"])
    zero = tensor(types, 1)
    dtype = DType.UINT8 if zero is None else zero.dtype
    known = [p for p in parts if p is not None]
    if not known or len(known) < len(parts) or any(len(p) != len(known[0]) for p in known):
        return [TensorType(dtype)]
    sizes = [p[axis] for p in known]
    joined = list(known[0])
    joined[axis] = sum(d for d in sizes if isinstance(d, int)) if all(isinstance(d, int) for d in sizes) else None
    return [TensorType(dtype, tuple(joined))]


def _qlinear_where(_node: Node, types: Types) -> Types:
    first = tensor(types, 1)
    if first is None:
        return [None]
    return [TensorType(first.dtype, broadcast(broadcast(shape(types, 0), first.shape), shape(types, 4)))]


def _qgemm(node: Node, types: Types) -> Types:
    a, b = (
        _transposed(shape(types, i), bool(node.attributes.get(f, 0)), False) for i, f in ((0, "transA"), (3, "transB"))
    )
    first = tensor(types, 0)
    quantised = first is not None and len(types) > 7 and types[7] is not None
    return [TensorType(first.dtype if quantised and first else DType.FLOAT32, matmul_shape(a, b))]


def _quantize(_node: Node, types: Types) -> Types:
    zero = tensor(types, 2)
    return [TensorType(DType.UINT8 if zero is None else zero.dtype, shape(types, 0))]


def _dequantize(_node: Node, types: Types) -> Types:
    scale = tensor(types, 1)
    return [None if scale is None else TensorType(scale.dtype, shape(types, 0))]


def _matmul_n_bits(node: Node, types: Types) -> Types:
    first = tensor(types, 0)
    if first is None or not first.shape:
        return [first]
    return [TensorType(first.dtype, (*first.shape[:-1], int(node.attributes["N"])))]


def _simplified_normalization(_node: Node, types: Types) -> Types:
    scale = tensor(types, 1)
    return [None if scale is None else TensorType(scale.dtype, shape(types, 0))]


def _like_onnx(op_type: str, inputs: int, attributes: Sequence[str]) -> Rule:
    """ONNX's inference for the operator that this one extends."""

    def rule(node: Node, types: Types) -> Types:
        from opweave.specialise.infer import from_schema

        kept = {k: v for k, v in node.attributes.items() if k in attributes}
        plain = replace(node, domain="", op_type=op_type, inputs=node.inputs[:inputs], attributes=kept, version=0)
        return from_schema(plain, plain, types[:inputs])

    return rule


def _nhwc_max_pool(node: Node, types: Types) -> Types:
    first = tensor(types, 0)
    if first is None or first.shape is None or len(first.shape) < 3:
        return [first]
    moved = replace(first, shape=(first.shape[0], first.shape[-1], *first.shape[1:-1]))
    (made,) = _like_onnx("MaxPool", 1, (*_CONV, "ceil_mode"))(node, [moved])
    if not isinstance(made, TensorType) or made.shape is None:
        return [made]
    return [replace(made, shape=(made.shape[0], *made.shape[2:], made.shape[1]))]


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

OPERATORS: Mapping[tuple[str, str], Rule] = {
    ("", "SimplifiedLayerNormalization"): _simplified_normalization,
    **{
        ("com.microsoft", name): rule
        for name, rule in {
            "Attention": _attention,
            "BiasGelu": same_as_first,
            "DequantizeLinear": _dequantize,
            "DynamicQuantizeLSTM": _dynamic_lstm,
            "DynamicQuantizeMatMul": _integer_product(2),
            "EmbedLayerNormalization": _embed_normalization,
            "FastGelu": same_as_first,
            "FusedConv": _like_onnx("Conv", 3, _CONV),
            "FusedGemm": _like_onnx("Gemm", 3, ("transA", "transB")),
            "FusedMatMul": _fused_matmul,
            "Gelu": same_as_first,
            "Inverse": same_as_first,
            "MatMulIntegerToFloat": _integer_product(2),
            "MatMulNBits": _matmul_n_bits,
            "MultiHeadAttention": _multi_head_attention,
            "NhwcMaxPool": _nhwc_max_pool,
            "QGemm": _qgemm,
            "QLinearAdd": _qlinear_binary,
            "QLinearConcat": _qlinear_concat,
            "QLinearGlobalAveragePool": _qlinear_pool,
            "QLinearLeakyRelu": same_as_first,
            "QLinearMul": _qlinear_binary,
            "QLinearSigmoid": same_as_first,
            "QLinearSoftmax": same_as_first,
            "QLinearWhere": _qlinear_where,
            "QuantizeLinear": _quantize,
            "QuickGelu": same_as_first,
            "RotaryEmbedding": same_as_first,
            "SkipLayerNormalization": _skip_normalization,
            "SkipSimplifiedLayerNormalization": _skip_normalization,
            "Trilu": same_as_first,
        }.items()
    },
}
