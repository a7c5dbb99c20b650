"""Attention of the `cpu` provider against ONNX's reference and node tests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.reference.ops.op_attention import _compute_attention
from onnx.reference.ops.op_rotary_embedding import rotary_embedding
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = ["Attention", "RotaryEmbedding"]


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def check(
    core: Any, given: list[Any], attrs: dict[str, Any], outputs: tuple[int, ...] = (0,), tolerance: float = 2e-5
) -> None:
    """Every output in `outputs` against the reference in float64."""
    wide = [a.astype(np.float64) if a is not None and a.dtype.kind in "fV" else a for a in given]
    if (
        len(given) > 3 and given[3] is not None
    ):  # the reference takes the number of rows from the mask where it is causal
        rows, shape = given[0].shape[-2], given[3].shape
        wide[3] = np.broadcast_to(wide[3], (*shape[:-2], rows, shape[-1]))
    names = ["attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    want = _compute_attention(
        *wide[:3], **dict(zip(names, wide[3:], strict=False)), **attrs, _validate_attention25=False
    )
    dtype = given[0].dtype
    wanted = [dtype if i in outputs else None for i in range(max(outputs) + 1)]
    for threads in [1, 2]:
        got = core.run("Attention", given, attrs, wanted, threads=threads)
        for i, g in zip(outputs, got, strict=True):
            assert g.shape == want[i].shape
            np.testing.assert_allclose(g.astype(np.float64), want[i], tolerance, tolerance)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1), (2, 5, 7, 8, 8), (1, 70, 130, 33, 17), (2, 1, 50, 64, 64), (3, 9, 9, 20, 5)]
)
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("rank", [3, 4])
def test_heads(core: Any, sizes: tuple[int, ...], heads: tuple[int, int], rank: int) -> None:
    b, queries, keys, size, value_size = sizes
    q = normal(b, heads[0], queries, size)
    k, v = normal(b, heads[1], keys, size, seed=1), normal(b, heads[1], keys, value_size, seed=2)
    attrs: dict[str, Any] = {}
    if rank == 3:
        q, k, v = (np.ascontiguousarray(a.swapaxes(1, 2)).reshape(b, a.shape[2], -1) for a in (q, k, v))
        attrs = {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    for more in [{}, {"is_causal": 1}, {"scale": 0.3, "softcap": 0.8}]:
        check(core, [q, k, v], {**attrs, **more})


MASKS = [
    (7,),
    (5, 7),
    (1, 7),
    (4, 5, 7),
    (4, 1, 7),
    (2, 1, 5, 7),
    (2, 4, 1, 7),
    (1, 1, 1, 7),
    (2, 4, 5, 7),
    (5, 4),
    (1,),
]


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("kind", [bool, np.float32])
@pytest.mark.parametrize("attrs", [{}, {"is_causal": 1}, {"left_window_size": 2, "right_window_size": 1}], ids=str)
def test_masks(core: Any, shape: tuple[int, ...], kind: Any, attrs: dict[str, Any]) -> None:
    q, k, v = normal(2, 4, 5, 8), normal(2, 4, 7, 8, seed=1), normal(2, 4, 7, 8, seed=2)
    mask = (
        normal(*shape) > -0.5
        if kind is bool
        else np.where(normal(*shape) > 1, -np.inf, normal(*shape)).astype(np.float32)
    )
    check(core, [q, k, v, mask], attrs)
    for mode in range(4):
        check(core, [q, k, v, mask], {**attrs, "qk_matmul_output_mode": mode}, (0, 3))


@pytest.mark.parametrize("attrs", [{}, {"is_causal": 1}, {"left_window_size": 3}, {"right_window_size": 0}], ids=str)
@pytest.mark.parametrize("new", [1, 4])
@pytest.mark.parametrize("past", [0, 6])
def test_caches(core: Any, attrs: dict[str, Any], new: int, past: int) -> None:
    q, k, v = normal(2, 4, new, 8), normal(2, 2, new, 8, seed=1), normal(2, 2, new, 5, seed=2)
    caches = [normal(2, 2, past, 8, seed=3), normal(2, 2, past, 5, seed=4)]
    for outputs in [(0,), (0, 1, 2), (0, 1), (0, 3)]:
        check(core, [q, k, v, None, *caches], attrs, outputs)
    check(core, [q, k, v, normal(new, past + new), *caches], attrs, (0, 1, 2, 3))
    check(core, [q, k, v], attrs, (0, 1, 2))
    flat = [np.ascontiguousarray(a.swapaxes(1, 2)).reshape(2, new, -1) for a in (q, k, v)]
    check(core, [*flat, None, *caches], {**attrs, "q_num_heads": 4, "kv_num_heads": 2}, (0, 1, 2))


@pytest.mark.parametrize("attrs", [{}, {"is_causal": 1}, {"is_causal": 1, "left_window_size": 2}], ids=str)
@pytest.mark.parametrize("visible", [(0, 9), (4, 2), (9, 9)])
def test_visible_lengths(core: Any, attrs: dict[str, Any], visible: tuple[int, int]) -> None:
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 9, 8, seed=1), normal(2, 3, 9, 8, seed=2)
    counts = np.array(visible, np.int64)
    check(core, [q, k, v, None, None, None, counts], attrs, (0, 3))
    check(core, [q, k, v, normal(4, 9), None, None, counts], attrs)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types(core: Any, dtype: Any) -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=i).astype(dtype) for i in range(3))
    tolerance = 2e-3 if dtype is np.float16 else 1.6e-2
    check(core, [q, k, v, normal(20, 20).astype(dtype)], {"is_causal": 1}, tolerance=tolerance)
    caches = [normal(2, 4, 3, 16, seed=i).astype(dtype) for i in range(2)]
    check(core, [q, k, v, None, *caches], {}, (0, 1, 2), tolerance=tolerance)


def test_empty(core: Any) -> None:
    for b, queries, keys in [(0, 3, 4), (2, 0, 4), (2, 3, 0)]:
        (y,) = core.run("Attention", [normal(b, 2, queries, 4), normal(b, 2, keys, 4), normal(b, 2, keys, 6)])
        np.testing.assert_array_equal(y, np.zeros((b, 2, queries, 6), np.float32))


def test_operands_are_checked(core: Any) -> None:
    q, k = normal(2, 4, 5, 8), normal(2, 4, 7, 8)
    good = [q, k, k]
    for bad in [
        [q, k[:, :3], k[:, :3]], [q, k, k[:, :, :6]], [q, k[:1], k[:1]], [q, k[..., :7], k], [q[0], k[0], k[0]],
        [*good, normal(5, 8)], [*good, normal(3, 7)], [*good, np.zeros((), np.float32)],
        [*good, None, normal(2, 4, 3, 7), normal(2, 4, 3, 8)], [*good, None, None, None, np.array([7, 8])],
        [*good, None, None, None, np.array([7, -1])], [*good, None, None, None, np.array([7])],
    ]:  # fmt: skip
        with pytest.raises(_core.BadOperand):
            core.run("Attention", bad)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 6])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary(core: Any, dtype: Any, interleaved: int, rotated: int, rank: int) -> None:
    x = normal(2, 3, 5, 8) if rank == 4 else normal(2, 5, 24)
    half = (rotated or 8) // 2
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": rotated, "num_heads": 3}
    positions = np.array([[4, 3, 2, 1, 0], [6, 6, 0, 5, 1]])
    tables = [normal(7, half, seed=i) for i in range(2)], [normal(2, 5, half, seed=i) for i in range(2)]
    tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-5}[np.dtype(dtype).itemsize]
    for given in [[*tables[0], positions], tables[1]]:
        cast = [a.astype(dtype) if a.dtype == np.float32 else a for a in [x, *given]]
        wide = [a.astype(np.float64) if a.dtype == dtype else a for a in cast]
        (got,) = core.run("RotaryEmbedding", cast, attrs)
        np.testing.assert_allclose(got.astype(np.float64), rotary_embedding(*wide, **attrs), tolerance, tolerance)
    (got,) = core.run("RotaryEmbedding", [x, positions, *tables[0]], attrs, domain="com.microsoft")
    np.testing.assert_allclose(got, rotary_embedding(x, *tables[0], positions, **attrs), 1e-5, 1e-5)
    (got,) = core.run("RotaryEmbedding", [x, positions[0, 2:3], *tables[0]], attrs, domain="com.microsoft")
    run = np.broadcast_to(np.arange(2, 7), (2, 5))
    np.testing.assert_allclose(got, rotary_embedding(x, *tables[0], run, **attrs), 1e-5, 1e-5)


@pytest.mark.parametrize("position", [-1, 7])
def test_rotary_positions_are_checked(core: Any, position: int) -> None:
    tables = [normal(7, 4), normal(7, 4)]
    with pytest.raises(_core.BadOperand):
        core.run("RotaryEmbedding", [normal(1, 2, 1, 8), *tables, np.array([[position]])])
