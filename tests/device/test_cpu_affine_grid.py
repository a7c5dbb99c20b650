"""AffineGrid: ONNX's node tests, NumPy on random maps, and sizes that make no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = ["AffineGrid"]


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


def places(extent: int, corners: int) -> Any:
    if corners:
        return np.linspace(-1, 1, extent) if extent > 1 else np.zeros(extent)
    return (2 * np.arange(extent) + 1) / max(extent, 1) - 1


@pytest.mark.parametrize("spatial", [(3, 4), (1, 5), (0, 2), (2, 3, 4), (60, 90)])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_random_maps(core: Core, spatial: tuple[int, ...], corners: int, dtype: Any) -> None:
    axes = len(spatial)
    theta = np.random.default_rng(7).standard_normal((2, axes, axes + 1)).astype(dtype)
    grid = np.meshgrid(*(places(e, corners) for e in spatial), indexing="ij")
    points = np.stack([*reversed(grid), np.ones(spatial)], -1)
    want = np.einsum("nkd,...d->n...k", theta.astype(np.float64), points)
    (got,) = core.run("AffineGrid", [theta, np.array([2, 3, *spatial])], {"align_corners": corners}, threads=2)
    tolerance = 5e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.parametrize(
    ("size", "message"),
    [([1, 1, 2], "expected 4 or 5"), ([2, 1, 3, 3], "is no map"), ([1, 1, -1, 3], "a dimension of -1")],
)
def test_refuses(core: Core, size: list[int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        core.run("AffineGrid", [np.zeros((1, 2, 3), np.float32), np.array(size)])
