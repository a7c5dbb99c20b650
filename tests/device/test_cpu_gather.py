"""Operators whose indices are data: ONNX's node tests, NumPy on random operands, and hostile indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["Gather", "GatherElements", "GatherND"]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64, np.complex128, np.bool_])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_is_take(core: Core, dtype: Any, index: Any, axis: int) -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(0, 100, (3, 5, 4)).astype(dtype)
    for shape in [(), (0,), (7,), (2, 3)]:
        limit = data.shape[axis]
        indices = rng.integers(-limit, limit, shape).astype(index)
        (got,) = core.run("Gather", [data, indices], {"axis": axis}, threads=2)
        np.testing.assert_array_equal(got, np.take(data, indices, axis))


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_gather_elements_is_take_along_axis(core: Core, axis: int) -> None:
    rng = np.random.default_rng(2)
    data = rng.standard_normal((30, 7, 11)).astype(np.float32)
    shape = list(data.shape)
    shape[axis] = 40
    indices = rng.integers(-data.shape[axis], data.shape[axis], shape)
    (got,) = core.run("GatherElements", [data, indices], {"axis": axis}, threads=2)
    np.testing.assert_array_equal(got, np.take_along_axis(data, indices, axis))


def test_gather_elements_of_a_part(core: Core) -> None:
    data = np.arange(12).reshape(3, 4)
    (got,) = core.run("GatherElements", [data, np.array([[2, 0, 1]])], {"axis": 0})
    assert got.tolist() == [[8, 1, 6]]


def test_gather_nd_of_a_batch(core: Core) -> None:
    rng = np.random.default_rng(3)
    data = rng.standard_normal((2, 3, 4, 5))
    indices = np.stack([rng.integers(-3, 3, (2, 6)), rng.integers(-4, 4, (2, 6))], -1)
    (got,) = core.run("GatherND", [data, indices], {"batch_dims": 1})
    np.testing.assert_array_equal(got, np.stack([data[b][indices[b, :, 0], indices[b, :, 1]] for b in range(2)]))


def test_nothing_to_gather(core: Core) -> None:
    none = np.zeros((0, 3), np.float32)
    assert core.run("Gather", [none, np.array([0, 2])], {"axis": 1})[0].shape == (0, 2)
    assert core.run("GatherElements", [none, np.zeros((0, 3), np.int64)])[0].shape == (0, 3)
    assert core.run("GatherND", [none, np.zeros((0, 1), np.int64)])[0].shape == (0, 3)


@pytest.mark.parametrize("index", [3, -4, 2**62, -(2**63)])
@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_indices_are_checked(core: Core, op: str, index: int) -> None:
    with pytest.raises(Exception, match=f"index {index} is outside a dimension of 3"):
        core.run(op, [np.zeros(3, np.float32), np.array([index])])


@pytest.mark.parametrize(
    ("op", "indices", "attrs", "message"),
    [
        ("Gather", np.zeros(1, np.int64), {"axis": 2}, "axis 2"),
        ("Gather", np.zeros(1, np.float32), {}, "indices are"),
        ("Gather", np.zeros([1] * 12, np.int64), {}, "12 dimensions"),
        ("GatherElements", np.zeros((2, 4), np.int64), {}, "reach past"),
        ("GatherElements", np.zeros(2, np.int64), {}, "rank"),
        ("GatherND", np.zeros((2, 3), np.int64), {}, "cannot address"),
        ("GatherND", np.zeros((3, 1), np.int64), {"batch_dims": 1}, "batch dimensions differ"),
        ("GatherND", np.zeros((2, 1), np.int64), {"batch_dims": 7}, "batch_dims is 7"),
        ("GatherND", np.int64(0), {}, "scalar"),
    ],
)
def test_bad_operands(core: Core, op: str, indices: Any, attrs: dict[str, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run(op, [np.zeros((2, 3), np.float32), np.asarray(indices)], attrs)
