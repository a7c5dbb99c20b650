"""Operators that only move elements: ONNX's node tests, and NumPy on random operands."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["Transpose", "DepthToSpace", "SpaceToDepth", "Concat", "Split", "Slice", "Pad"]
DTYPES = [np.int8, np.float16, np.float32, np.float64, np.complex128, np.bool_]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.random.default_rng(list(shape)).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose(core: Core, dtype: Any) -> None:
    for shape in [(), (5,), (3, 0), (37, 70), (4, 5, 3), (33, 1, 40, 2), (2, 3, 4, 5)]:
        data = numbers(shape, dtype)
        for perm in itertools.permutations(range(data.ndim)):
            (got,) = core.run("Transpose", [data], {"perm": list(perm)}, threads=2)
            np.testing.assert_array_equal(got, data.transpose(perm))
        (got,) = core.run("Transpose", [data])
        np.testing.assert_array_equal(got, data.T)


@pytest.mark.parametrize("perm", [[0], [0, 0], [0, 2], [0, 1, 2]])
def test_transpose_refuses(core: Core, perm: list[int]) -> None:
    with pytest.raises(Exception, match=r"axis|axes"):
        core.run("Transpose", [np.zeros((2, 3), np.float32)], {"perm": perm})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_and_split(core: Core, dtype: Any, axis: int) -> None:
    lengths = [3, 0, 70, 1, 2]
    for rest in [(4, 5), (1, 1), (1, 3000), (0, 2)]:
        whole = numbers((*rest[:axis], sum(lengths), *rest[axis:]) if axis >= 0 else (*rest, sum(lengths)), dtype)
        parts = np.split(whole, np.cumsum(lengths)[:-1], axis)
        (joined,) = core.run("Concat", parts, {"axis": axis}, threads=2)
        np.testing.assert_array_equal(joined, whole)
        outputs = [dtype] * len(lengths)
        divided = core.run("Split", [whole, np.array(lengths)], {"axis": axis}, outputs, threads=2)
        for got, want in zip(divided, parts, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lengths", [[3, 4], [3, 2], [-1, 7], [6], [2, 2, 2], [2**62, 2**62]])
def test_split_refuses(core: Core, lengths: list[int]) -> None:
    with pytest.raises(Exception, match="split"):
        core.run("Split", [np.zeros(6, np.float32), np.array(lengths)], {}, [np.float32] * 2)


def test_concat_refuses(core: Core) -> None:
    with pytest.raises(Exception, match="differ"):
        core.run("Concat", [np.zeros((2, 3)), np.zeros((2, 4))], {"axis": 0})
    with pytest.raises(Exception, match="rank"):
        core.run("Concat", [np.zeros((2, 3)), np.zeros(3)], {"axis": 0})


def test_slice_backwards_from_before_the_dimension(core: Core) -> None:
    data = np.arange(5, dtype=np.float32)
    for end, wanted in [(-9, [0]), (0, [])]:
        (got,) = core.run("Slice", [data, *(np.array([v]) for v in (-7, end, 0, -1))])
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_slice(core: Core, dtype: Any, index: Any) -> None:
    rng = np.random.default_rng(3)
    limit = np.iinfo(index)
    bounds = [*range(-9, 10), limit.min, limit.max]
    steps = [-8, -3, -2, -1, 1, 2, 3, 8, limit.min, limit.max]
    for shape in [(7,), (5, 7), (3, 0, 4), (4, 3, 7, 8)]:
        data = numbers(shape, dtype)
        for _ in range(40):
            axes = rng.permutation(data.ndim)[: rng.integers(0, data.ndim + 1)]
            start, end, step = (rng.choice(v, len(axes)) for v in (bounds, bounds, steps))
            want = data
            for a, *cut in zip(axes, start, end, step, strict=True):
                if cut[2] < 0 and cut[0] < -data.shape[a]:
                    cut[0] = 0  # the standard clamps to the first position, where Python takes nothing
                want = want[(slice(None),) * a + (slice(*map(int, cut)),)]
            signed = np.where(rng.integers(0, 2, len(axes)) == 1, axes, axes - data.ndim)
            operands = [v.astype(index) for v in (start, end, signed, step)]
            (got,) = core.run("Slice", [data, *operands], threads=2)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (([0], [1], [2], [1]), "outside a rank"),
        (([0, 0], [1, 1], [0, -2], [1, 1]), "named twice"),
        (([0], [1], [0], [0]), "a step of 0"),
        (([0], [1, 2], [0], [1]), "differ in length"),
        (([0, 0, 0], [1, 1, 1]), "more bounds"),
    ],
)
def test_slice_refuses(core: Core, operands: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run("Slice", [np.zeros((2, 3), np.float32), *(np.array(o) for o in operands)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(core: Core, dtype: Any, mode: str) -> None:
    rng = np.random.default_rng(4)
    for shape in [(6,), (1, 5), (3, 4, 5), (2, 3, 4, 50)]:
        data = numbers(shape, dtype)
        for _ in range(10):
            pads = rng.integers(0, 7, (2, data.ndim))
            want = np.pad(data, list(map(tuple, pads.T)), mode)  # type: ignore[call-overload]
            (got,) = core.run("Pad", [data, pads.reshape(-1)], {"mode": mode}, threads=2)
            np.testing.assert_array_equal(got, want)


def test_pad_crops_and_names_axes(core: Core) -> None:
    data, value = numbers((4, 5, 6), np.float32), np.array(7, np.float32)
    (got,) = core.run("Pad", [data, np.array([-1, 2, 0, -3]), value, np.array([-1, 0], np.int32)])
    np.testing.assert_array_equal(got, np.pad(data, [(2, 0), (0, 0), (0, 0)], constant_values=7)[:3, :, 1:])
    (got,) = core.run("Pad", [data, np.array([-6, 8]), value, np.array([2])])
    np.testing.assert_array_equal(got, np.full((4, 5, 8), 7, np.float32))
    (got,) = core.run("Pad", [value, np.zeros(0, np.int64)])
    np.testing.assert_array_equal(got, value)
    (got,) = core.run("Pad", [np.zeros((0, 2), np.float32), np.array([1, 0, 0, 1]), value])
    np.testing.assert_array_equal(got, np.full((1, 3), 7, np.float32))


@pytest.mark.parametrize(
    ("pads", "mode", "message"),
    [
        ([1, 1, 1], "constant", "pads are given"),
        ([-2, 0, -1, 0], "constant", "more than there is"),
        ([2**62, 0, 2**62, 0], "constant", "a pad of"),
        ([0, 1, 0, 0], "edge", "nothing to pad with"),
    ],
)
def test_pad_refuses(core: Core, pads: list[int], mode: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run("Pad", [np.zeros((2, 0), np.float32), np.array(pads)], {"mode": mode})
