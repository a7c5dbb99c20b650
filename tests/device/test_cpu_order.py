"""Operators that order, select and accumulate, of the `cpu` provider, against NumPy and ONNX's node tests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = [
    "ArgMax", "ArgMin", "TopK", "CumSum", "CumProd", "Unique", "NonZero", "Compress", "NonMaxSuppression", "Trilu",
    "EyeLike",
]  # fmt: skip
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
WIDE = [*FLOATS, np.int32, np.int64, np.uint32, np.uint64]
SHAPES = [(1,), (7,), (3, 5), (2, 1, 33), (3, 2, 5, 4), (2, 300, 3), (2, 9, 600), (5, 1100)]
INT64 = np.int64


def few(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    """Numbers with many repetitions, negative where the type has them, some NaN where it has that."""
    x = np.random.default_rng(seed).integers(0, 9, shape)
    if dtype in FLOATS:
        return np.where(x == 8, np.nan, x - 4).astype(dtype)
    return (x - (0 if np.issubdtype(dtype, np.unsignedinteger) else 4)).astype(dtype)


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("shape", SHAPES)
def test_arg_max_and_min(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = few(shape, dtype)
    wide = x.astype(np.float64) if dtype in FLOATS else x
    for axis in range(-len(shape), len(shape)):
        for op, function in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            (first,) = core.run(op, [x], {"axis": axis, "keepdims": 0}, [INT64], threads=2)
            np.testing.assert_array_equal(first, function(wide, axis))
            (last,) = core.run(op, [x], {"axis": axis, "select_last_index": 1}, [INT64])
            want = shape[axis] - 1 - function(np.flip(wide, axis), axis, keepdims=True)
            np.testing.assert_array_equal(last, want)


def test_arg_max_of_nothing(core: Any) -> None:
    (y,) = core.run("ArgMax", [np.zeros((0, 3), np.float32)], {"axis": 1}, [INT64])
    assert y.shape == (0, 1)
    for shape, axis in [((0, 3), 0), ((3,), 1), ((), 0)]:
        with pytest.raises(_core.BadOperand):
            core.run("ArgMax", [np.zeros(shape, np.float32)], {"axis": axis}, [INT64])


def test_arg_max_of_infinities_and_extremes(core: Any) -> None:
    x = np.array([[-np.inf, -np.inf, np.inf], [-np.inf] * 3], np.float32)
    np.testing.assert_array_equal(core.run("ArgMax", [x], {"axis": 1}, [INT64])[0], [[2], [0]])
    np.testing.assert_array_equal(core.run("ArgMin", [x], {"axis": 0}, [INT64])[0], [[0, 0, 1]])
    y = np.array([127, -128, 127], np.int8)
    assert core.run("ArgMax", [y], {"axis": 0, "select_last_index": 1}, [INT64])[0] == 2


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("shape", SHAPES)
def test_top_k(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = few(shape, dtype)
    wide = x.astype(np.float64) if dtype in FLOATS else x
    for axis in range(-len(shape), len(shape)):
        n = shape[axis]
        index = np.indices(shape)[axis]
        for largest in (0, 1):
            order = np.lexsort((-index if largest else index, wide), axis)
            order = np.flip(order, axis) if largest else order
            for k in {0, 1, min(n, 2), n // 2, n}:
                operands = [x, np.array([k], INT64)]
                attrs = {"axis": axis, "largest": largest}
                values, indices = core.run("TopK", operands, attrs, [dtype, INT64], threads=2)
                want = np.take(order, range(k), axis)
                np.testing.assert_array_equal(indices, want)
                np.testing.assert_array_equal(values.astype(wide.dtype), np.take_along_axis(wide, want, axis))


def test_top_k_of_large_integers_and_outputs_alone(core: Any) -> None:
    x = np.array([2**63 - 1, -(2**63), 0, 2**63 - 2, 2**63 - 1], INT64)
    k = np.array([3], INT64)
    np.testing.assert_array_equal(core.run("TopK", [x, k], outputs=[None, INT64])[0], [0, 4, 3])
    np.testing.assert_array_equal(core.run("TopK", [x, k])[0], x[[0, 4, 3]])
    zeros = np.array([0.0, -0.0, 0.0, -1.0], np.float32)
    np.testing.assert_array_equal(core.run("TopK", [zeros, k], outputs=[np.float32, INT64])[1], [0, 1, 2])


@pytest.mark.parametrize("k", [np.array([4]), np.array([-1]), np.array([1, 2]), np.array([1.0])])
def test_top_k_refuses(core: Any, k: Array) -> None:
    with pytest.raises(_core.BadOperand):
        core.run("TopK", [np.ones(3, np.float32), k], outputs=[np.float32, INT64])


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("shape", [(1,), (9,), (3, 5), (2, 40, 33), (2, 3, 4, 600), (0, 3), (3, 0)])
@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_cumulative(core: Any, op: str, shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(0).integers(1, 4, shape).astype(dtype)
    if op == "CumProd" and dtype in FLOATS:
        x = x / np.array(2, dtype)
    kind = np.float64 if dtype in FLOATS else dtype
    for axis in range(-len(shape), len(shape)):
        for exclusive, reverse in [(0, 0), (1, 0), (0, 1), (1, 1)]:
            wide = x.astype(kind)
            wide = np.flip(wide, axis) if reverse else wide
            if exclusive and x.size:
                start = np.full_like(np.take(wide, [0], axis), 0 if op == "CumSum" else 1)
                wide = np.concatenate([start, np.delete(wide, -1, axis)], axis)
            want = (np.cumsum if op == "CumSum" else np.cumprod)(wide, axis, dtype=kind)
            want = np.flip(want, axis) if reverse else want
            attrs = {"exclusive": exclusive, "reverse": reverse}
            (y,) = core.run(op, [x, np.array(axis, np.int32)], attrs, threads=2)
            assert y.dtype == dtype
            if dtype in FLOATS:
                with np.errstate(over="ignore"):
                    rounded = want.astype(dtype).astype(np.float64)
                np.testing.assert_allclose(y.astype(np.float64), rounded, 1e-2 if y.itemsize == 2 else 1e-5)
            else:
                np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.bool_])
@pytest.mark.parametrize("shape", [(1,), (50,), (30, 2), (4, 30), (2, 20, 2), (0,), (3, 0)])
def test_unique(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = few(shape, dtype) if dtype != np.bool_ else few(shape, np.uint8) > 4
    x = np.where(np.isnan(x), np.array(1, dtype), x).astype(dtype)
    wide = x.astype(np.float64) if dtype in FLOATS else x
    for axis in (None, *range(-len(shape), len(shape))):
        if x.size == 0 and axis is not None:
            continue
        y, first, inverse, count = np.unique(wide, True, True, True, axis=axis)
        where = {} if axis is None else {"axis": axis}
        got = core.run("Unique", [x], where, [dtype, INT64, INT64, INT64])
        for g, w in zip(got, (y, first, inverse.reshape(-1), count), strict=True):
            np.testing.assert_array_equal(g.astype(w.dtype), w)
        order = np.argsort(first)
        got = core.run("Unique", [x], {"sorted": 0, **where}, [dtype, INT64, INT64, INT64])
        rank = np.argsort(order)
        wanted = (np.take(y, order, axis or 0), first[order], rank[inverse.reshape(-1)], count[order])
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(g.astype(w.dtype), w)


def test_unique_takes_nans_and_zeros_as_equal(core: Any) -> None:
    x = np.array([np.nan, 0.0, -0.0, np.nan, -1], np.float32)
    y, count = core.run("Unique", [x], {}, [np.float32, None, None, INT64])
    np.testing.assert_array_equal(y, [-1, 0, np.nan])
    np.testing.assert_array_equal(count, [1, 2, 2])


def test_unique_of_empty_slices(core: Any) -> None:
    y, count = core.run("Unique", [np.zeros((3, 0), np.float32)], {"axis": 0}, [np.float32, None, None, INT64])
    assert y.shape == (1, 0)
    np.testing.assert_array_equal(count, [3])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.bool_])
@pytest.mark.parametrize("shape", [(), (1,), (50,), (6, 7), (2, 3, 4, 5), (0,), (3, 0)])
def test_nonzero(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = few(shape, np.int8).astype(dtype) if dtype != np.bool_ else few(shape, np.uint8) > 4
    (y,) = core.run("NonZero", [x], outputs=[INT64])
    want = np.array(np.nonzero(x)) if shape else np.zeros((0, int(bool(x))), INT64)
    assert y.shape == want.shape
    np.testing.assert_array_equal(y, want)


def test_nonzero_of_special_floats(core: Any) -> None:
    x = np.array([0.0, -0.0, np.nan, 1e-45, np.inf], np.float32)
    np.testing.assert_array_equal(core.run("NonZero", [x], outputs=[INT64])[0], [[2, 3, 4]])


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16, np.complex64, np.bool_])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0, 3), (2, 0)])
def test_compress(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = few(shape, np.int8).astype(dtype)
    rng = np.random.default_rng(1)
    for axis in (None, *range(-len(shape), len(shape))):
        n = x.size if axis is None else shape[axis]
        for length in {n, n // 2, 0}:
            condition = rng.integers(0, 2, length).astype(bool)
            (y,) = core.run("Compress", [x, condition], {} if axis is None else {"axis": axis})
            np.testing.assert_array_equal(y, np.compress(condition, x, axis))
    (y,) = core.run("Compress", [x, np.array([False] * 99)])
    assert y.shape == (0,)
    with pytest.raises(_core.BadOperand):
        core.run("Compress", [x, np.array([False] * 98 + [True])])


def suppressed(boxes: Array, scores: Array, limit: int, overlap: float, least: float) -> list[list[int]]:
    """The definition, one box after the other."""
    found = []
    for b, c in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for i in np.argsort(-scores[b, c], kind="stable"):
            y0, x0, y1, x1 = boxes[b, i]
            clear = scores[b, c, i] > least and len(kept) < limit
            for j in kept:
                w = min(x1, boxes[b, j, 3]) - max(x0, boxes[b, j, 1])
                h = min(y1, boxes[b, j, 2]) - max(y0, boxes[b, j, 0])
                areas = (y1 - y0) * (x1 - x0) + np.prod(boxes[b, j, 2:] - boxes[b, j, :2])
                clear = clear and not (w > 0 and h > 0 and w * h / (areas - w * h) > overlap)
            if clear:
                kept.append(int(i))
        found += [[b, c, i] for i in kept]
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression(core: Any, seed: int, centred: int) -> None:
    rng = np.random.default_rng(seed)
    corner = rng.random((2, 40, 2), np.float32)
    size = rng.random((2, 40, 2), np.float32)
    boxes = np.concatenate([corner, corner + size], 2)
    scores = rng.integers(0, 20, (2, 3, 40)).astype(np.float32) / 20
    given = boxes
    if centred:
        middle = corner + size / 2
        given = np.concatenate([middle[..., ::-1], size[..., ::-1]], 2)
    else:
        given = np.where(rng.random((2, 40, 1)) < 0.5, boxes, boxes[..., [2, 3, 0, 1]])
    limit, overlap, least = int(rng.integers(1, 30)), 0.3, 0.25
    operands = [given, scores, np.array([limit]), np.array([overlap], np.float32), np.array([least], np.float32)]
    (y,) = core.run("NonMaxSuppression", operands, {"center_point_box": centred}, [INT64])
    np.testing.assert_array_equal(y, suppressed(boxes, scores, limit, overlap, least))


def test_non_max_suppression_without_options_or_boxes(core: Any) -> None:
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    assert core.run("NonMaxSuppression", [boxes, scores], outputs=[INT64])[0].shape == (0, 3)
    limit = np.array(5)
    flat = core.run("NonMaxSuppression", [boxes, scores, limit], outputs=[INT64])[0]
    assert flat.shape == (6, 3)  # boxes without an area overlap nothing
    scores[0, 0] = np.nan
    assert core.run("NonMaxSuppression", [boxes, scores, limit, None, None], outputs=[INT64])[0].shape == (3, 3)
    empty = core.run("NonMaxSuppression", [boxes[:, :0], scores[..., :0], limit], outputs=[INT64])[0]
    assert empty.shape == (0, 3)
    for bad in ([boxes, scores[..., :2], limit], [boxes, scores, limit, np.array([1.5], np.float32)]):
        with pytest.raises(_core.BadOperand):
            core.run("NonMaxSuppression", bad, outputs=[INT64])


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex128, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 5), (5, 3), (2, 3, 4, 3), (0, 4), (4, 0), (0, 2, 3)])
def test_trilu_and_eye(core: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = np.ones(shape, dtype)
    for k in (-(2**63), -5, -2, 0, 1, 4, 2**63 - 1):
        near = max(-9, min(9, k))
        (upper,) = core.run("Trilu", [x, np.array(k, INT64)], threads=2)
        np.testing.assert_array_equal(upper, np.triu(x, near))
        (lower,) = core.run("Trilu", [x, np.array(k, INT64)], {"upper": 0})
        np.testing.assert_array_equal(lower, np.tril(x, near))
        if len(shape) == 2 and dtype != np.complex128:
            np.testing.assert_array_equal(core.run("EyeLike", [x], {"k": k})[0], np.eye(*shape, near, dtype))
    np.testing.assert_array_equal(core.run("Trilu", [x])[0], np.triu(x))
