"""CenterCropPad: ONNX's node tests, NumPy on random shapes, and shapes that make no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["CenterCropPad"]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.complex128])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_random_shapes(core: Core, dtype: Any, index: Any) -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        shape, target = rng.integers(0, 9, (2, rng.integers(1, 5)))
        data = rng.integers(1, 100, shape).astype(dtype)
        want = np.zeros(target, dtype)
        sides = [(max(a - b, 0) // 2, max(b - a, 0) // 2, min(a, b)) for a, b in zip(shape, target, strict=True)]
        source = tuple(slice(f, f + n) for f, _, n in sides)
        want[tuple(slice(t, t + n) for _, t, n in sides)] = data[source]
        (got,) = core.run("CenterCropPad", [data, target.astype(index)], threads=2)
        np.testing.assert_array_equal(got, want)
        order = rng.permutation(len(shape))
        attrs = {"axes": [int(a) - len(shape) for a in order]}
        (got,) = core.run("CenterCropPad", [data, target[order].astype(index)], attrs)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("shape", "axes", "message"),
    [([1], [0, 1], "names 1 dimensions"), ([1, -1], [0, 1], "a dimension of -1"), ([1, 1], [0, -2], "named twice")],
)
def test_refuses(core: Core, shape: list[int], axes: list[int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run("CenterCropPad", [np.zeros((2, 3), np.float32), np.array(shape)], {"axes": axes})
