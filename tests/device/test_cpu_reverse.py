"""ReverseSequence: ONNX's node tests, NumPy over both layouts, and lengths that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Array, Core, NodeCase

NODE_OPERATORS = ["ReverseSequence"]
DTYPES = [np.bool_, np.float16, np.float32, np.float64, np.complex128]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


def filled(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.random.default_rng(1).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("tail", [(), (3,), (2, 4), (0,)])
def test_reverse_sequence(core: Core, dtype: Any, time_axis: int, tail: tuple[int, ...]) -> None:
    x = filled((4, 6, *tail), dtype)
    lens = np.array([0, 1, 3, 4, 2, 4]) if time_axis == 0 else np.array([6, 0, 5, 1])
    want = x.copy()
    steps = want if time_axis == 0 else want.swapaxes(0, 1)
    for batch, length in enumerate(lens):
        steps[:length, batch] = steps[:length, batch][::-1].copy()
    attrs = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    (got,) = core.run("ReverseSequence", [x, lens], attrs, threads=2)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ([np.zeros((4, 2)), np.array([5, 1])], {}, "length 5"),
        ([np.zeros((4, 2)), np.array([-1, 1])], {}, "length -1"),
        ([np.zeros((4, 2)), np.array([1])], {}, "for 2 sequences"),
        ([np.zeros(4), np.array([1])], {}, "at least 2"),
        ([np.zeros((4, 2)), np.array([1, 1])], {"time_axis": 1}, "must be 0 and 1"),
    ],
)
def test_bad_operands(core: Core, inputs: list[Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run("ReverseSequence", inputs, attrs)
