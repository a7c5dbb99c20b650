"""ScatterElements, ScatterND, TensorScatter: ONNX's node tests, NumPy's own scatters, and hostile indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["ScatterElements", "ScatterND", "TensorScatter"]
REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
NUMBERS = [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_meet_in_one_element(core: Core, dtype: Any, reduction: str) -> None:
    rng = np.random.default_rng(1)
    data, updates = rng.integers(0, 3, (4, 6)).astype(dtype), rng.integers(0, 3, (9, 6)).astype(dtype)
    rows = rng.integers(-4, 4, (9, 1))
    want = data.copy()
    REDUCTIONS[reduction].at(want, rows[:, 0], updates)
    attrs = {"reduction": reduction}
    (slices,) = core.run("ScatterND", [data, rows, updates], attrs)
    np.testing.assert_array_equal(slices, want)
    (elements,) = core.run("ScatterElements", [data, np.broadcast_to(rows, (9, 6)), updates], attrs)
    np.testing.assert_array_equal(elements, want)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.complex128])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements_is_put_along_axis(core: Core, dtype: Any, axis: int) -> None:
    rng = np.random.default_rng(2)
    data = rng.integers(0, 100, (3, 4, 5)).astype(dtype)
    indices = rng.permuted(np.argsort(data, axis), axis=axis).astype(np.int32)
    updates = rng.integers(0, 100, data.shape).astype(dtype)
    want = data.copy()
    np.put_along_axis(want, indices, updates, axis)
    (got,) = core.run("ScatterElements", [data, indices, updates], {"axis": axis})
    np.testing.assert_array_equal(got, want)


def test_integers_wrap_and_nan_stays(core: Core) -> None:
    most = np.array([2**63 - 1])
    (got,) = core.run("ScatterND", [most, np.array([[0]]), most], {"reduction": "add"})
    assert got.tolist() == [-2]
    for data, update in [(np.nan, 1.0), (1.0, np.nan)]:
        for reduction in REDUCTIONS:
            inputs = [np.array([data]), np.array([0]), np.array([update])]
            assert np.isnan(core.run("ScatterElements", inputs, {"reduction": reduction})[0]).all()


def test_nothing_to_scatter(core: Core) -> None:
    data = np.ones((2, 3), np.float32)
    (got,) = core.run("ScatterElements", [data, np.zeros((0, 3), np.int64), np.zeros((0, 3), np.float32)])
    np.testing.assert_array_equal(got, data)
    (got,) = core.run("ScatterND", [data, np.zeros((0, 1), np.int64), np.zeros((0, 3), np.float32)])
    np.testing.assert_array_equal(got, data)
    (got,) = core.run("TensorScatter", [data[None], np.zeros((1, 0, 3), np.float32)])
    np.testing.assert_array_equal(got, data[None])


def test_tensor_scatter_wraps(core: Core) -> None:
    cache = np.zeros((2, 3, 4, 2), np.float32)
    update = np.arange(1, 37, dtype=np.float32).reshape(2, 3, 3, 2)
    (got,) = core.run("TensorScatter", [cache, update, np.array([3, -7])], {"mode": "circular"})
    for batch, first in enumerate([3, 1]):
        want = cache[batch].copy()
        want[:, (first + np.arange(3)) % 4] = update[batch]
        np.testing.assert_array_equal(got[batch], want)


@pytest.mark.parametrize("index", [3, -4, 2**62, -(2**63)])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_indices_are_checked(core: Core, index: int, reduction: str) -> None:
    one, attrs = np.zeros(1, np.float32), {"reduction": reduction}
    for op, indices in [("ScatterElements", [index]), ("ScatterND", [[index]])]:
        with pytest.raises(Exception, match=f"index {index} is outside a dimension of 3"):
            core.run(op, [np.zeros(3, np.float32), np.array(indices), one], attrs)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("ScatterElements", ((2, 3), (1, 2)), {}, "updates of shape"),
        ("ScatterElements", ((2, 4), (2, 4)), {}, "reach past"),
        ("ScatterElements", ((2, 3), (2, 3)), {"reduction": "xor"}, "reduction is xor"),
        ("ScatterND", ((2, 1), (2, 2)), {}, "updates of shape"),
        ("ScatterND", ((2, 3), (2,)), {}, "cannot address"),
        ("ScatterND", ((2, 0), (2, 2, 3)), {}, "cannot address"),
    ],
)
def test_bad_operands(core: Core, op: str, shapes: Any, attrs: dict[str, str], message: str) -> None:
    indices, updates = np.zeros(shapes[0], np.int64), np.zeros(shapes[1], np.float32)
    with pytest.raises(Exception, match=message):
        core.run(op, [np.zeros((2, 3), np.float32), indices, updates], attrs)


@pytest.mark.parametrize("index", [2, -1, 2**63 - 1])
def test_a_cache_is_not_left(core: Core, index: int) -> None:
    with pytest.raises(Exception, match=f"3 steps from index {index} do not fit"):
        core.run("TensorScatter", [np.zeros((1, 4, 2)), np.zeros((1, 3, 2)), np.array([index])])
    with pytest.raises(Exception, match="does not fit a cache"):
        core.run("TensorScatter", [np.zeros((1, 4, 2)), np.zeros((1, 5, 2))])
