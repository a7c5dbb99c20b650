"""Operators of domain com.microsoft on the `cpu` provider against NumPy and ONNX Runtime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import helper
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def check(core: Any, op: str, given: list[Array | None], attrs: dict[str, Any], outputs: list[Any]) -> None:
    """Against ONNX Runtime; `outputs` as for `core.run`."""
    ort = pytest.importorskip("onnxruntime")
    names = ["" if a is None else f"i{i}" for i, a in enumerate(given)]
    produced = ["" if d is None else f"o{i}" for i, d in enumerate(outputs)]
    node = helper.make_node(op, names, produced, domain=DOMAIN, **attrs)
    feeds = {n: a for n, a in zip(names, given, strict=True) if a is not None}
    info = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    results = [helper.make_tensor_value_info(n, 1, None) for n in produced if n]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(helper.make_graph([node], "g", info, results), opset_imports=opsets, ir_version=8)
    want = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for threads in [1, 2]:
        got = core.run(op, given, attrs, outputs, domain=DOMAIN, threads=threads)
        for g, w in zip(got, want, strict=True):
            assert g.shape == w.shape
            np.testing.assert_allclose(g, w, 1e-4, 5e-5)  # float32 sums of magnitudes near ten, in another order


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_gelus(core: Any, dtype: Any) -> None:
    x, bias = (4 * normal(3, 5, 33)).astype(dtype), normal(33).astype(dtype)
    wide, total = x.astype(np.float64), x.astype(np.float64) + bias
    tolerance = 2e-3 if dtype is np.float16 else 1e-6
    for op, given, want in [
        ("Gelu", [x], gelu(wide)), ("FastGelu", [x], gelu_tanh(wide)), ("FastGelu", [x, bias], gelu_tanh(total)),
        ("BiasGelu", [x, bias], gelu(total)), ("QuickGelu", [x], wide / (1 + np.exp(-1.702 * wide))),
    ]:  # fmt: skip
        (got,) = core.run(op, given, domain=DOMAIN)
        np.testing.assert_allclose(got.astype(np.float64), want, tolerance, tolerance)


@pytest.mark.parametrize("skip", [(3, 7, 40), (1, 7, 40), (7, 40)])
@pytest.mark.parametrize("parts", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_skip_layer_normalization(core: Any, skip: tuple[int, ...], parts: tuple[int, int]) -> None:
    given = [normal(3, 7, 40), normal(*skip, seed=1), normal(40, seed=2)]
    beta, bias = (normal(40, seed=3 + i) if p else None for i, p in enumerate(parts))
    for outputs in [[np.float32], [np.float32, None, None, np.float32]]:
        check(core, "SkipLayerNormalization", [*given, beta, bias], {"epsilon": 1e-5}, outputs)
        check(core, "SkipSimplifiedLayerNormalization", [*given, bias], {"epsilon": 1e-5}, outputs)


def test_skip_statistics_and_narrow_types(core: Any) -> None:
    x, skip, gamma = normal(4, 9), normal(4, 9, seed=1), normal(9, seed=2)
    _, mean, inverse = core.run("SkipLayerNormalization", [x, skip, gamma], {}, [np.float32] * 3, domain=DOMAIN)
    total = x.astype(np.float64) + skip
    np.testing.assert_allclose(mean, total.mean(1, keepdims=True), 1e-5, 1e-6)
    np.testing.assert_allclose(inverse, 1 / total.std(1, keepdims=True), 1e-5)
    narrow = [a.astype(np.float16) for a in (x, skip, gamma)]
    (got,) = core.run("SkipLayerNormalization", narrow, domain=DOMAIN)
    (want,) = core.run("SkipLayerNormalization", [a.astype(np.float32) for a in narrow], domain=DOMAIN)
    np.testing.assert_allclose(got, want, 2e-3, 2e-3)


@pytest.mark.parametrize("skip", [(3, 6, 40), (3, 7, 1), (2, 7, 40), (40,)])
def test_skip_must_fit(core: Any, skip: tuple[int, ...]) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("SkipLayerNormalization", [normal(3, 7, 40), normal(*skip), normal(40)], domain=DOMAIN)


@pytest.mark.parametrize("parts", [(), (0,), (1,), (2,), (0, 1, 2)])
def test_embed_layer_normalization(core: Any, parts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30, (2, 6), np.int32)
    tables = [normal(30, 16), normal(9, 16, seed=1), normal(2, 16, seed=2)]
    segments = rng.integers(0, 2, (2, 6), np.int32) if 0 in parts else None
    mask = rng.integers(0, 2, (2, 6), np.int32) if 1 in parts else None
    positions = rng.integers(0, 9, (2, 6), np.int32) if 2 in parts else None
    given = [
        ids,
        segments,
        *tables[:2],
        tables[2] if 0 in parts else None,
        normal(16),
        normal(16, seed=1),
        mask,
        positions,
    ]
    while given[-1] is None:
        given.pop()
    attrs = {"epsilon": 1e-5}
    got = core.run("EmbedLayerNormalization", given, attrs, [np.float32, np.int32, np.float32], domain=DOMAIN)
    total = tables[0][ids] + tables[1][np.arange(6) if positions is None else positions]
    total = total if segments is None else total + tables[2][segments]
    deviation = np.sqrt(total.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        got[0], (total - total.mean(-1, keepdims=True)) / deviation * given[5] + given[6], 1e-4, 1e-5
    )
    np.testing.assert_array_equal(got[1], np.zeros(2) if mask is None else mask.sum(1))
    np.testing.assert_allclose(got[2], total, 1e-6, 1e-6)


def test_embedding_rows_are_checked(core: Any) -> None:
    for ids in [[[0, 3]], [[-1, 0]]]:
        given = [np.array(ids, np.int32), None, normal(3, 4), normal(2, 4), None, normal(4), normal(4)]
        with pytest.raises(_core.BadOperand):
            core.run("EmbedLayerNormalization", given, {}, [np.float32], domain=DOMAIN)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 8, 8), (2, 5, 7, 16, 8), (2, 40, 40, 32, 32)])
@pytest.mark.parametrize(
    "parts", ["", "bias", "mask", "lengths", "square", "score", "score mask", "past", "past score", "causal"]
)
def test_multi_head_attention(core: Any, sizes: tuple[int, ...], parts: str) -> None:
    b, queries, keys, hidden, value_hidden = sizes
    keys = queries if "causal" in parts or "past" in parts else keys
    value_hidden = hidden if "past" in parts else value_hidden
    heads, past, rng = 4, 3 if "past" in parts else 0, np.random.default_rng(0)
    total = keys + past
    given: list[Array | None] = [
        normal(b, queries, hidden),
        normal(b, keys, hidden, seed=1),
        normal(b, keys, value_hidden, seed=2),
    ]
    given.append(normal(2 * hidden + value_hidden) if "bias" in parts else None)
    padding = {
        "lengths": rng.integers(1, total, b, np.int32, endpoint=True),
        "mask": rng.integers(0, 2, (b, total), np.int32),
        "square": rng.integers(0, 2, (b, queries, total), np.int32),
    }
    given.append(next((v for k, v in padding.items() if k in parts), None))
    given.append(normal(1, heads, queries, total) if "score" in parts else None)
    caches = [normal(b, heads, past, hidden // heads), normal(b, heads, past, value_hidden // heads)]
    given += caches if past else [None, None]
    while given[-1] is None:
        given.pop()
    outputs = [np.float32] * (3 if past else 1)
    check(core, "MultiHeadAttention", given, {"num_heads": heads, "unidirectional": int("causal" in parts)}, outputs)


@pytest.mark.parametrize("sizes", [(1, 1, 8, 8, 8), (2, 5, 12, 16, 8), (2, 40, 24, 32, 32)])
@pytest.mark.parametrize("parts", ["", "mask", "lengths", "square", "score", "past", "causal", "past causal"])
def test_attention(core: Any, sizes: tuple[int, ...], parts: str) -> None:
    b, length, inner, hidden, value_hidden = sizes
    value_hidden = hidden if "past" in parts else value_hidden
    heads, past, rng = 4, 3 if "past" in parts else 0, np.random.default_rng(0)
    total, width = length + past, 2 * hidden + value_hidden
    padding = {
        "lengths": rng.integers(1, total, b, np.int32, endpoint=True),
        "mask": rng.integers(0, 2, (b, total), np.int32),
        "square": rng.integers(0, 2, (b, length, total), np.int32),
    }
    given = [normal(b, length, inner), normal(inner, width), normal(width)]
    given.append(next((v for k, v in padding.items() if k in parts), None))
    given.append(normal(2, b, heads, past, hidden // heads) if past else None)
    given.append(normal(1, heads, length, total) if "score" in parts else None)
    while given[-1] is None:
        given.pop()
    attrs = {
        "num_heads": heads,
        "unidirectional": int("causal" in parts),
        "qkv_hidden_sizes": [hidden, hidden, value_hidden],
    }
    check(core, "Attention", given, attrs, [np.float32] * (2 if past else 1))
    (constant,) = core.run("Attention", given, attrs, [np.float32, None], domain=DOMAIN, constant=True)[:1]
    np.testing.assert_allclose(constant, core.run("Attention", given, attrs, domain=DOMAIN)[0], 1e-4, 1e-5)
