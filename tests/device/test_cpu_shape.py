"""Shape, Size, ConstantOfShape, Range and OneHot: ONNX's node tests, NumPy, and operands that lead nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["Shape", "Size", "ConstantOfShape", "Range", "OneHot"]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


@pytest.mark.parametrize("start", [None, 0, 1, -2, 9, -9])
@pytest.mark.parametrize("end", [None, 0, 2, -1, 9, -9, -(2**63)])
def test_shape_is_a_slice(core: Core, start: int | None, end: int | None) -> None:
    x = np.zeros((2, 0, 5), np.int8)
    attrs = {k: v for k, v in (("start", start), ("end", end)) if v is not None}
    (got,) = core.run("Shape", [x], attrs, [np.int64])
    assert got.tolist() == list(x.shape[start:end])


def test_shape_and_size_of_a_scalar(core: Core) -> None:
    assert core.run("Shape", [np.float32(1)], {}, [np.int64])[0].shape == (0,)
    assert core.run("Size", [np.float32(1)], {}, [np.int64])[0] == 1


@pytest.mark.parametrize("value", [np.float16(1.5), np.complex128(2j), np.bool_(True), np.uint64(2**64 - 1)])
def test_constant_of_shape(core: Core, value: Any) -> None:
    attrs = {"value": (np.array([value]), {"f2": 10, "c16": 15, "b1": 9, "u8": 13}[value.dtype.str[1:]])}
    for shape in [(), (0,), (3, 0), (300, 400)]:
        (got,) = core.run("ConstantOfShape", [np.array(shape, np.int64)], attrs, [value.dtype], threads=2)
        np.testing.assert_array_equal(got, np.full(shape, value))
    (zeros,) = core.run("ConstantOfShape", [np.array([2])], {}, [np.float32])
    assert zeros.dtype == np.float32
    assert not zeros.any()


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("bounds", [(0, 10, 3), (10, -5, -4), (3, 3, 1), (5, 1, 2), (1, 100, 98), (0, 30000, 1)])
def test_range_is_arange(core: Core, dtype: Any, bounds: tuple[int, int, int]) -> None:
    (got,) = core.run("Range", [np.array(b, dtype) for b in bounds], threads=2)
    np.testing.assert_array_equal(got, np.arange(*bounds, dtype=dtype))


def test_range_at_the_limits_of_its_type(core: Core) -> None:
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    (got,) = core.run("Range", [np.array(b) for b in (lowest, highest, highest)])
    assert got.tolist() == [lowest, -1, highest - 1]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("axis", [0, 1, -1, 2])
def test_one_hot(core: Core, dtype: Any, axis: int) -> None:
    indices = np.array([[0, 2, 9], [1, 200, 3]]).astype(dtype)
    (got,) = core.run(
        "OneHot", [indices, np.array([4.0], np.float32), np.array([-1, 7], np.int16)], {"axis": axis}, [np.int16]
    )
    hot = indices[..., None] == np.arange(4)
    np.testing.assert_array_equal(got, np.moveaxis(np.where(hot, 7, -1), -1, axis))


def test_one_hot_counts_from_the_end_and_ignores_what_is_outside(core: Core) -> None:
    indices = np.array([-1, -3, -4, 3, np.nan, np.inf, 1e300, 1.9])
    (got,) = core.run("OneHot", [indices, np.array(3), np.array([0.0, 1.0])])
    assert got.argmax(-1)[[0, 1, 7]].tolist() == [2, 0, 1]
    assert not got[2:7].any()
    (none,) = core.run("OneHot", [indices, np.array(0), np.array([0.0, 1.0])])
    assert none.shape == (8, 0)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("ConstantOfShape", [np.array([-1])], "negative"),
        ("ConstantOfShape", [np.array([2**40, 2**40])], "too large"),
        ("ConstantOfShape", [np.array([2], np.int32)], "expected int64"),
        ("Range", [np.array(0), np.array(5), np.array(0)], "delta is 0"),
        ("Range", [np.array(0), np.array(2**62), np.array(1)], "too many"),
        ("Range", [np.array(0.0), np.array(np.nan), np.array(1.0)], "not numbers"),
        ("Range", [np.array([0, 1]), np.array(5), np.array(1)], "scalar"),
        ("Range", [np.array(0), np.array(5.0), np.array(1)], "limit is"),
        ("OneHot", [np.array([0]), np.array(-2), np.array([0, 1])], "negative"),
        ("OneHot", [np.array([0]), np.array(np.nan), np.array([0, 1])], "no number"),
        ("OneHot", [np.array([0]), np.array(2**60), np.array([0, 1])], "too large"),
        ("OneHot", [np.array([0]), np.array([], np.int64), np.array([0, 1])], "one number"),
        ("OneHot", [np.array([0]), np.array(3), np.array([0])], "two elements"),
        ("OneHot", [np.zeros([1] * 12), np.array(3), np.array([0, 1])], "12 dimensions"),
    ],
)
def test_bad_operands(core: Core, op: str, inputs: list[Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run(op, inputs, {}, [np.float32])
