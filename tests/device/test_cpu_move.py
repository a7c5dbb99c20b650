"""Operators that only move elements: ONNX's node tests, and NumPy on random operands."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["Transpose", "DepthToSpace", "SpaceToDepth"]
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
