"""Convolution kernels of the C++ core against ONNX Runtime and a plain float64 evaluation, over odd parameters."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy
import numpy as np
import onnxruntime
import pytest
from onnx import helper
from opweave_cpu import _core

from .conftest import Array, Core


def peer(op: str, inputs: list[Array | None], attrs: dict[str, Any], opset: int = 22) -> Array:
    """ONNX Runtime's result of one operator."""
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "one",
        [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in given.items()],
        [helper.make_empty_tensor_value_info("y")],
    )
    graph.output[0].type.tensor_type.elem_type = kind(next(iter(given.values())).dtype)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, given)[0])


def conv(x: Array, w: Array, attrs: dict[str, Any]) -> Array:
    """Convolution in float64, one tap at a time."""
    n = x.ndim - 2
    strides, dilations = attrs.get("strides", [1] * n), attrs.get("dilations", [1] * n)
    pads, groups = attrs.get("pads", [0] * 2 * n), attrs.get("group", 1)
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((pads[i], pads[n + i]) for i in range(n))])
    size = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)]
    xg = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    wg = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    y = np.zeros((x.shape[0], groups, wg.shape[1], *size))
    for tap in itertools.product(*map(range, w.shape[2:])):
        cut = tuple(
            slice(tap[i] * dilations[i], tap[i] * dilations[i] + (size[i] - 1) * strides[i] + 1, strides[i])
            for i in range(n)
        )
        y += np.einsum("ngi...,goi->ngo...", xg[(..., *cut)], wg[(..., *tap)])
    return y.reshape(x.shape[0], -1, *size)


def draw(rng: np.random.Generator, depthwise: bool) -> tuple[Array, Array, dict[str, Any]]:
    """Operands and attributes of a convolution whose output is not empty."""
    n = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 3]) if not depthwise else rng.integers(1, 6))
    ic = 1 if depthwise else int(rng.integers(1, 9))
    oc = int(rng.integers(1, 3 if depthwise else 20))
    kernel = [int(rng.choice([1, 1, 2, 3, 5])) for _ in range(n)]
    strides = [int(rng.choice([1, 1, 2, 3])) for _ in range(n)]
    dilations = [int(rng.choice([1, 1, 2, 3])) for _ in range(n)]
    pads = [int(p) for p in rng.integers(0, 4, 2 * n)]
    size = [
        max(int(rng.integers(1, 80 if n == 1 else 40 if n == 2 else 10)), (k - 1) * d + 1 - pads[i] - pads[n + i], 1)
        for i, (k, d) in enumerate(zip(kernel, dilations, strict=True))
    ]
    x = rng.standard_normal((int(rng.integers(1, 3)), groups * ic, *size))
    w = rng.standard_normal((groups * oc, ic, *kernel))
    return x, w, {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}


TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("seed", range(40))
def test_odd_parameters(core: Core, seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    x, w, attrs = draw(rng, depthwise=seed % 3 == 0)
    x, w = x.astype(dtype), w.astype(dtype)
    bias = rng.standard_normal(w.shape[0]).astype(dtype)
    wanted = conv(x, w, attrs) + bias.astype(np.float64).reshape(-1, *[1] * (x.ndim - 2))
    (got,) = core.run("Conv", [x, w, bias], attrs, threads=2, constant=bool(seed % 2))
    assert got.dtype == x.dtype
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(got.astype(np.float64) / scale, wanted / scale, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_auto_pad(core: Core, auto_pad: str, stride: int, kernel: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 7, 10)).astype(np.float32)
    w = rng.standard_normal((3, 2, kernel, kernel)).astype(np.float32)
    attrs = {"auto_pad": auto_pad, "strides": [stride, stride]}
    np.testing.assert_allclose(core.run("Conv", [x, w], attrs)[0], peer("Conv", [x, w], attrs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("groups", "kernel"), [(1, 1), (1, 3), (2, 3), (8, 3), (1, 9)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_fused(core: Core, groups: int, kernel: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 8, 9, 9)).astype(dtype)
    w = (rng.standard_normal((16, 8 // groups, kernel, kernel)) / kernel).astype(dtype)
    bias = rng.standard_normal(16).astype(dtype)
    attrs = {"group": groups}
    plain = conv(x, w, attrs)
    residual = rng.standard_normal(plain.shape).astype(dtype)
    for given in ([x, w], [x, w, bias], [x, w, None, residual], [x, w, bias, residual]):
        wanted = plain.copy()
        if len(given) > 2 and given[2] is not None:
            wanted += bias.astype(np.float64)[:, None, None]
        if len(given) > 3:
            wanted += residual.astype(np.float64)
        for activation, params, f in (
            ("Relu", [], lambda v: np.maximum(v, 0)),
            ("Clip", [-0.5, 1.5], lambda v: np.clip(v, -0.5, 1.5)),
            ("LeakyRelu", [0.25], lambda v: np.where(v < 0, v * 0.25, v)),
        ):
            more = attrs | {"activation": activation} | ({"activation_params": params} if params else {})
            (got,) = core.run("FusedConv", given, more, domain="opweave", threads=2)
            tolerance = 20 * TOLERANCE[dtype]
            np.testing.assert_allclose(got.astype(np.float64), f(wanted), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("x", "w", "group"),
    [((0, 3, 5), (4, 3, 2), 1), ((1, 0, 5), (4, 0, 2), 1), ((1, 3, 5), (0, 3, 2), 1), ((1, 3, 5), (4, 3, 6), 1),
     ((2, 0, 1, 1), (3, 0, 1, 1), 1), ((0, 4, 5), (4, 1, 2), 4)],
    ids=str,
)  # fmt: skip
def test_nothing_to_sum(core: Core, x: tuple[int, ...], w: tuple[int, ...], group: int, constant: bool) -> None:
    for dtype in (np.float32, np.float64, np.float16):
        bias = np.arange(w[0]).astype(dtype)
        (y,) = core.run("Conv", [np.ones(x, dtype), np.ones(w, dtype), bias], {"group": group}, constant=constant)
        assert y.shape == (x[0], w[0], *(i - k + 1 for i, k in zip(x[2:], w[2:], strict=True)))
        np.testing.assert_array_equal(y, np.broadcast_to(bias.reshape(-1, *[1] * (len(x) - 2)), y.shape))


BAD: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 5, 5), (3, 2, 9, 9), {}),
    ((1, 2, 5, 5), (3, 2, 3), {}),
    ((1, 2), (3, 2), {}),
    ((1, 2, 5, 5), (3, 1, 3, 3), {}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"group": 0}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"group": -1}),
    ((1, 4, 5, 5), (3, 2, 3, 3), {"group": 2}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"group": 2**62}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"kernel_shape": [2, 3]}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"strides": [0, 1]}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"strides": [1, 2**63 - 1]}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"dilations": [2**62, 1]}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"pads": [2**31] * 4}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"pads": [-1, 0, 0, 0]}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"pads": [1, 1]}),
    ((1, 2, 5, 5), (3, 2, 0, 3), {}),
    ((1, 2, 5, 5), (3, 2, 3, 3), {"auto_pad": "NONE"}),
]


@pytest.mark.parametrize(("x", "w", "attrs"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_hostile(core: Core, x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    for dtype in (np.float32, np.float64):
        with pytest.raises(_core.BadOperand):
            core.run("Conv", [np.zeros(x, dtype), np.zeros(w, dtype)], attrs, constant=True)


def test_hostile_operands(core: Core) -> None:
    x, w = np.zeros((1, 2, 5), np.float32), np.zeros((3, 2, 2), np.float32)
    for bias in (np.zeros(2, np.float32), np.zeros((3, 1), np.float32), np.zeros(3, np.float64)):
        with pytest.raises(_core.BadOperand, match="bias"):
            core.run("Conv", [x, w, bias])
    with pytest.raises(_core.BadOperand, match="residual"):
        core.run("FusedConv", [x, w, None, x], domain="opweave")
    with pytest.raises(_core.BadOperand, match="weights are"):
        core.run("Conv", [x, w.astype(np.float64)])
    with pytest.raises(_core.BadOperand, match="missing"):
        core.run("Conv", [x])


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("size", "groups"), [((2, 1), 1), ((7, 7), 1), ((3, 5), 2), ((7, 8), 1)], ids=str)
def test_many_channels_over_small_maps(
    core: Core, size: tuple[int, int], groups: int, dtype: str, constant: bool
) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 24 * groups, *size)).astype(dtype)
    w = (rng.standard_normal((70 * groups, 24, 3, 3)) / 15).astype(dtype)
    bias = rng.standard_normal(70 * groups).astype(dtype)
    residual = rng.standard_normal((2, 70 * groups, *size)).astype(dtype)
    attrs = {"group": groups, "pads": [1] * 4}
    wanted = conv(x, w, attrs) + bias.astype(np.float64)[:, None, None] + residual.astype(np.float64)
    attrs["activation"] = "Relu"
    (got,) = core.run("FusedConv", [x, w, bias, residual], attrs, domain="opweave", threads=2, constant=constant)
    tolerance = 2 * TOLERANCE[dtype]
    np.testing.assert_allclose(got.astype(np.float64), np.maximum(wanted, 0), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("pads", [[0, 0], [7, 20], [20, 0], [0, 13]], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_frames_of_a_signal(core: Core, groups: int, pads: list[int], constant: bool) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((3, groups, 300)), rng.standard_normal((35 * groups, 1, 33)) / 6
    bias, residual = (
        rng.standard_normal(35 * groups),
        rng.standard_normal((3, 35 * groups, (267 + sum(pads)) // 16 + 1)),
    )
    attrs: dict[str, Any] = {"group": groups, "strides": [16], "pads": pads}
    given = [a.astype(np.float32) for a in (x, w, bias, residual)]
    wanted = np.maximum(conv(x, w, attrs) + bias[:, None] + residual, 0)
    attrs["activation"] = "Relu"
    (got,) = core.run("FusedConv", given, attrs, domain="opweave", threads=2, constant=constant)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_no_channels_in_many_out(core: Core) -> None:
    bias = np.arange(40, dtype=np.float32)
    (y,) = core.run("Conv", [np.ones((1, 0, 5), np.float32), np.ones((40, 0, 2), np.float32), bias], constant=True)
    np.testing.assert_array_equal(y, np.broadcast_to(bias[:, None], (1, 40, 4)))
