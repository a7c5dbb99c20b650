"""GridSample against ONNX's node tests and its reference implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["GridSample"]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


def reference(data: Any, grid: Any, attrs: dict[str, Any]) -> Any:
    return ReferenceEvaluator(helper.make_node("GridSample", ["x", "g"], ["y"], **attrs)).run(
        None, {"x": data, "g": grid}
    )[0]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("spatial", [(7,), (4, 5), (3, 2, 4)])
def test_against_reference(core: Core, mode: str, padding: str, corners: int, spatial: tuple[int, ...]) -> None:
    rng = np.random.default_rng([5, *spatial])
    data = rng.standard_normal((2, 3, *spatial)).astype(np.float32)
    grid = rng.uniform(-2.5, 2.5, (2, *(3,) * len(spatial), len(spatial))).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    want = reference(data, grid, attrs)
    for threads in [1, 2]:
        (got,) = core.run("GridSample", [data, grid], attrs, threads=threads)
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)
    (got,) = core.run("GridSample", [data.astype(np.float16), grid], attrs)
    np.testing.assert_allclose(got, reference(data.astype(np.float16).astype(np.float32), grid, attrs), 2e-2, 2e-2)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("far", [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10])
def test_far_points_stay_inside(core: Core, mode: str, padding: str, corners: int, far: float) -> None:
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    for width in [1, 4]:
        data = np.ones((1, 1, 2, width), np.float32)
        grid = np.full((1, 1, 1, 2), far, np.float32)
        (got,) = core.run("GridSample", [data, grid], attrs)
        np.testing.assert_allclose(got, 0 if padding == "zeros" else 1, atol=1e-5)


def test_refuses(core: Core) -> None:
    data = np.zeros((2, 3, 4, 5), np.float32)
    for shape in [(2, 3, 3, 3), (1, 3, 3, 2), (2, 3, 2)]:
        with pytest.raises(Exception, match="does not fit"):
            core.run("GridSample", [data, np.zeros(shape, np.float32)])
    with pytest.raises(Exception, match="nothing to sample"):
        core.run("GridSample", [data[:, :, :0], np.zeros((2, 1, 1, 2), np.float32)], {"padding_mode": "border"})
