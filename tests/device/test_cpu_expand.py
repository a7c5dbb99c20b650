"""Expand and Tile: ONNX's node tests, and NumPy on shapes that mix repeated and copied dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["Expand", "Tile"]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.int64, np.complex128])
def test_expand_is_broadcast_to(core: Core, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        to = tuple(int(d) for d in rng.integers(1, 6, rng.integers(0, 6)))
        shape = tuple(d if rng.random() < 0.5 else 1 for d in to)[rng.integers(0, len(to) + 1) :]
        x = rng.integers(0, 100, shape).astype(dtype)
        (got,) = core.run("Expand", [x, np.array(to, np.int64)], threads=2)
        np.testing.assert_array_equal(got, np.broadcast_to(x, to))


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float32, np.float64, np.complex128])
def test_tile_is_tile(core: Core, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        shape = tuple(rng.integers(1, 5, rng.integers(0, 5)))
        repeats = rng.integers(1, 4, len(shape))
        x = rng.integers(0, 100, shape).astype(dtype)
        (got,) = core.run("Tile", [x, repeats], threads=2)
        np.testing.assert_array_equal(got, np.tile(x, repeats))


@pytest.mark.parametrize("inner", [1, 3, 1000, 70000])
def test_large_repeats(core: Core, inner: int) -> None:
    x = np.arange(2 * inner, dtype=np.float32).reshape(2, 1, inner)
    (got,) = core.run("Expand", [x, np.array([2, 37, inner])], threads=2)
    np.testing.assert_array_equal(got, np.broadcast_to(x, (2, 37, inner)))


def test_either_side_of_expand_may_be_one(core: Core) -> None:
    (got,) = core.run("Expand", [np.ones((3, 1), np.float32), np.array([2, 1, 4])])
    assert got.shape == (2, 3, 4)
    (got,) = core.run("Expand", [np.ones((3, 4), np.float32), np.array([1])])
    assert got.shape == (3, 4)


def test_nothing_to_repeat(core: Core) -> None:
    one, none = np.ones((1, 2), np.float32), np.ones((0, 2), np.float32)
    assert core.run("Expand", [one, np.array([0, 2])])[0].shape == (0, 2)
    assert core.run("Expand", [none, np.array([3, 1, 1])])[0].shape == (3, 0, 2)
    assert core.run("Tile", [one, np.array([0, 5])])[0].shape == (0, 10)
    assert core.run("Tile", [none, np.array([4, 5])])[0].shape == (0, 10)


@pytest.mark.parametrize(
    ("op", "operand", "message"),
    [
        ("Expand", [2, 4], "cannot expand"),
        ("Expand", [0, 3], "cannot expand"),
        ("Expand", [-1, 3], "negative dimension -1"),
        ("Expand", [1] * 13, "more than 12"),
        ("Expand", [[2, 3]], "one dimension"),
        ("Expand", [2**40, 2**40, 2, 3], "too large"),
        ("Tile", [1], "1 repeats"),
        ("Tile", [1, -1], "negative dimension"),
        ("Tile", [2**62, 2**62], "too large"),
        ("Tile", [2**40, 2**40], "too large"),
    ],
)
def test_bad_operands(core: Core, op: str, operand: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run(op, [np.zeros((2, 3), np.float32), np.array(operand, np.int64)])
