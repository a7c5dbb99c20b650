"""Resize: ONNX's own node tests, and the reference implementation on random operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from opweave_cpu import _core

if TYPE_CHECKING:
    from .conftest import Array, Core, NodeCase

NODE_OPERATORS = ["Resize"]
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


def test_node(core: Core, node_case: NodeCase) -> None:
    if any(a.name == "antialias" and a.i for a in node_case.model.graph.node[0].attribute):
        with pytest.raises(_core.Unsupported):
            node_case.check(core)
    else:
        node_case.check(core)


def reference(x: Array, sizes: Array, attrs: dict[str, Any]) -> Array:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attrs)
    result = ReferenceEvaluator(node).run(None, {"x": x, "sizes": sizes})
    return np.asarray(result[0])


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64"])
def test_equals_reference(core: Core, dtype: str, mode: str, coordinates: str) -> None:
    rng = np.random.default_rng(7)
    for shape, sizes in [
        ((2, 3, 5, 4), (2, 3, 9, 7)),
        ((1, 2, 8, 9), (1, 2, 3, 9)),
        ((3, 4, 2), (1, 9, 6)),
        ((7,), (3,)),
    ]:
        x = rng.integers(0, 100, shape).astype(dtype)
        attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
        (y,) = core.run("Resize", [x, None, None, np.array(sizes)], attrs, threads=2)
        wanted = reference(x, np.array(sizes), attrs)
        assert y.dtype == x.dtype
        tolerance = {"float16": 0.15, "uint8": 1.0, "int64": 1.0}.get(dtype, 1e-3)
        np.testing.assert_allclose(y.astype(np.float64), wanted.astype(np.float64), atol=tolerance)


def test_nothing_to_do_and_nothing_there(core: Core) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for mode in ["nearest", "linear"]:
        (y,) = core.run("Resize", [x, None, np.array([1, 1], np.float32)], {"mode": mode})
        np.testing.assert_array_equal(y, x)
        (y,) = core.run("Resize", [x[:0], None, np.array([2, 2], np.float32)], {"mode": mode})
        assert y.shape == (0, 6)
        (y,) = core.run("Resize", [x, None, None, np.array([0, 5])], {"mode": mode})
        assert y.shape == (0, 5)


@pytest.mark.parametrize(
    ("scales", "sizes", "attrs"),
    [
        ([1.0], None, {}),
        ([0.0, 1.0], None, {}),
        ([np.nan, 1.0], None, {}),
        ([1e30, 1.0], None, {}),
        (None, [2], {}),
        (None, [-2, 2], {}),
        (None, [2, 2], {"axes": [0, 0]}),
        (None, [2, 2], {"axes": [0, 2]}),
        (None, [2, 2], {"coordinate_transformation_mode": "tf_crop_and_resize"}),
        (None, None, {}),
    ],
)
def test_refuses(core: Core, scales: list[float] | None, sizes: list[int] | None, attrs: dict[str, Any]) -> None:
    x = np.zeros((2, 3), np.float32)
    inputs = [
        x,
        None,
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes),
    ]
    with pytest.raises(_core.BadOperand):
        core.run("Resize", inputs, attrs)


def test_regions_that_are_no_numbers(core: Core) -> None:
    x = np.ones((2, 3), np.float32)
    roi = np.array([np.nan, -1e30, np.inf, 1e30], np.float32)
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    for mode in ["nearest", "linear", "cubic"]:
        (y,) = core.run("Resize", [x, roi, None, np.array([4, 4])], {**attrs, "mode": mode})
        assert y.shape == (4, 4)
