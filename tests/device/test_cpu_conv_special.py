"""DeformConv, CausalConvWithState, RoiAlign and MaxRoiPool of the C++ core, against ONNX's reference and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from opweave_cpu import _core

from .conftest import Array, Core
from .test_cpu_conv import TOLERANCE, conv, peer


def reference(
    op: str, inputs: list[Array | None], attrs: dict[str, Any], outputs: int = 1, opset: int = 27
) -> list[Array]:
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{i}" for i in range(outputs)], **attrs)
    given = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()
    ]
    graph = helper.make_graph([node], "one", values, [helper.make_empty_tensor_value_info(o) for o in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, given)]


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("seed", range(4))
def test_deform(core: Core, seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    groups, offset_groups = int(rng.choice([1, 2])), int(rng.choice([1, 2, 4]))
    kernel = [int(k) for k in rng.integers(1, 4, 2)]
    x = rng.standard_normal((1, 4, 5, 6)).astype(dtype)
    w = rng.standard_normal((2 * groups, 4 // groups, *kernel)).astype(dtype)
    attrs = {
        "group": groups,
        "offset_group": offset_groups,
        "pads": [1, 0, 1, 2],
        "strides": [1, 2],
        "dilations": [2, 1],
    }
    size = conv(x, w, {k: v for k, v in attrs.items() if k != "offset_group"}).shape[2:]
    taps = kernel[0] * kernel[1] * offset_groups
    offset = (3 * rng.standard_normal((1, 2 * taps, *size))).astype(dtype)
    bias, mask = rng.standard_normal(2 * groups).astype(dtype), rng.random((1, taps, *size)).astype(dtype)
    for given in ([x, w, offset], [x, w, offset, None, mask], [x, w, offset, bias, mask]):
        wide = [None if g is None else g.astype(np.float64) for g in given]
        (wanted,) = reference("DeformConv", wide, attrs | {"kernel_shape": kernel}, opset=22)
        (got,) = core.run("DeformConv", given, attrs, threads=2)
        assert got.dtype == x.dtype
        atol = 20 * max(TOLERANCE[dtype], 2e-5)  # the reference samples in float32
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=atol)


def test_deform_without_offsets_is_a_convolution(core: Core) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 30, 31)).astype(np.float32), rng.standard_normal((5, 3, 3, 3)).astype(np.float32)
    (got,) = core.run("DeformConv", [x, w, np.zeros((1, 18, 28, 29), np.float32)], threads=2)
    np.testing.assert_allclose(got, conv(x, w, {}), rtol=1e-4, atol=1e-4)


def test_hostile_deform(core: Core) -> None:
    x, w, offset = (
        np.zeros((1, 2, 5, 5), np.float32),
        np.zeros((3, 2, 3, 3), np.float32),
        np.zeros((1, 18, 3, 3), np.float32),
    )
    for value in (np.nan, np.inf, 1e30, -1e30):
        assert not core.run("DeformConv", [x, w, np.full_like(offset, value)])[0].any()
    for bad in (offset[:, :17], offset[..., :2], offset.astype(np.float64), np.zeros((2, 18, 3, 3), np.float32)):
        with pytest.raises(_core.BadOperand):
            core.run("DeformConv", [x, w, bad])
    with pytest.raises(_core.BadOperand, match="mask"):
        core.run("DeformConv", [x, w, offset, None, offset])
    for groups in (0, 3, 2**62):
        with pytest.raises(_core.BadOperand, match="offset_group"):
            core.run("DeformConv", [x, w, offset], {"offset_group": groups})


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("length", "taps"), [(1, 1), (1, 4), (5, 4), (100, 3), (0, 2)], ids=str)
def test_causal(core: Core, length: int, taps: int, dtype: str, activation: str) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, length)).astype(dtype), rng.standard_normal((3, 1, taps)).astype(dtype)
    bias, past = rng.standard_normal(3).astype(dtype), rng.standard_normal((2, 3, taps - 1)).astype(dtype)
    for given in ([x, w], [x, w, bias], [x, w, None, past], [x, w, bias, past]):
        padded = np.concatenate([given[3] if len(given) > 3 else np.zeros_like(past), x], 2)
        wanted = sum(
            padded[..., t : t + length].astype(np.float64) * w[:, 0, t, None].astype(np.float64) for t in range(taps)
        )
        if len(given) > 2 and given[2] is not None:
            wanted = wanted + bias.astype(np.float64)[:, None]
        if activation == "silu":
            wanted = wanted / (1 + np.exp(-wanted))
        y, state = core.run("CausalConvWithState", given, {"activation": activation}, [x.dtype, x.dtype], threads=2)
        tolerance = 4 * TOLERANCE[dtype]
        np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(state, padded[..., length:])
        np.testing.assert_array_equal(core.run("CausalConvWithState", given, {"activation": activation})[0], y)


def test_hostile_causal(core: Core) -> None:
    x, w = np.zeros((2, 3, 5), np.float32), np.zeros((3, 1, 4), np.float32)
    for given in (
        [x, w[:2]],
        [x, w[:, :, :0]],
        [x[0], w],
        [x, w, w],
        [x, w, None, x],
        [x, w, None, np.zeros((2, 3, 3))],
    ):
        with pytest.raises(_core.BadOperand):
            core.run("CausalConvWithState", given)
    with pytest.raises(_core.BadOperand, match="activation"):
        core.run("CausalConvWithState", [x, w], {"activation": "relu"})


def boxes(rng: np.random.Generator, count: int, size: int) -> Array:
    corners = rng.uniform(-3, size + 3, (count, 2, 2))
    return np.concatenate([corners.min(1), corners.max(1)], 1)


@pytest.mark.parametrize("sampling", [0, 1, 3])
@pytest.mark.parametrize("corner", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(core: Core, mode: str, corner: str, sampling: int) -> None:
    rng = np.random.default_rng(1)
    x, rois = rng.random((2, 3, 9, 11)), boxes(rng, 6, 20)
    images = rng.integers(0, 2, 6)
    attrs = {"mode": mode, "coordinate_transformation_mode": corner, "sampling_ratio": sampling, "output_height": 3,
             "output_width": 2, "spatial_scale": 0.5}  # fmt: skip
    wanted = peer("RoiAlign", [x.astype(np.float32), rois.astype(np.float32), images], attrs, opset=16)
    for dtype in ("float32", "float64"):
        (got,) = core.run("RoiAlign", [x.astype(dtype), rois.astype(dtype), images], attrs, threads=2)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    (got,) = core.run("RoiAlign", [x.astype(np.float16), np.rint(rois).astype(np.float16), images], attrs)
    (wide,) = core.run("RoiAlign", [x.astype(np.float16).astype(np.float64), np.rint(rois), images], attrs)
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_max_roi_pool(core: Core, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-99, 99, (2, 3, 9, 11)).astype(dtype)
    rois = np.concatenate([rng.integers(0, 2, (8, 1)), np.rint(boxes(rng, 8, 20))], 1).astype(dtype)
    attrs = {"pooled_shape": [3, 2], "spatial_scale": 0.5}
    wanted = peer("MaxRoiPool", [x.astype(np.float32), rois.astype(np.float32)], attrs, opset=16)
    np.testing.assert_array_equal(core.run("MaxRoiPool", [x, rois], attrs, threads=2)[0], wanted.astype(dtype))


def test_hostile_regions(core: Core) -> None:
    x, roi = np.ones((1, 2, 4, 4), np.float32), np.array([[0, 0, 3, 3]], np.float32)
    big = np.array([[0, 0, 1e30, 1e30]], np.float32)
    for image in (-1, 1, 2**62):
        with pytest.raises(_core.BadOperand, match="image"):
            core.run("RoiAlign", [x, roi, np.array([image])])
        with pytest.raises(_core.BadOperand, match="image"):
            core.run("MaxRoiPool", [x, np.array([[image, 0, 0, 3, 3]], np.float32)], {"pooled_shape": [2, 2]})
    for bad in (big, np.full_like(roi, np.nan), np.array([[0, 0, 6e4, 6e4]], np.float32)):
        with pytest.raises(_core.BadOperand, match="region"):
            core.run("RoiAlign", [x, bad, np.array([0])])
    assert not core.run("RoiAlign", [x, big, np.array([0])], {"sampling_ratio": 2})[0].any()
    assert core.run("RoiAlign", [x[..., :0], roi, np.array([0])])[0].shape == (1, 2, 1, 1)
    for size in ([0, 1], [2**62, 2**62], [1], []):
        with pytest.raises(_core.BadOperand):
            core.run("MaxRoiPool", [x, np.zeros((1, 5), np.float32)], {"pooled_shape": size})
    with pytest.raises(_core.BadOperand, match="number"):
        core.run("MaxRoiPool", [x, np.array([[0, 0, np.nan, 1, 1]], np.float32)], {"pooled_shape": [1, 1]})
    assert core.run("MaxRoiPool", [x, np.array([[0, 0, 0, 3e38, 3e38]], np.float32)], {"pooled_shape": [1, 1]})[0].all()
