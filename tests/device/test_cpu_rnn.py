"""Recurrent nets of the `cpu` provider against a NumPy form of ONNX's equations, ONNX Runtime and ONNX's node tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from opweave_cpu import _core

Array = np.ndarray[Any, Any]
NODE_OPERATORS = ["LSTM", "GRU", "RNN"]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSigmoid": lambda x: np.clip(0.3 * x + 0.4, 0, 1),
    "LeakyRelu": lambda x: np.where(x < 0, 0.2 * x, x),
    "Affine": lambda x: 0.7 * x + 0.1,
}
PARAMETERS = {"HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.2, None), "Affine": (0.7, 0.1)}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
OTHERS = {"LSTM": ["HardSigmoid", "Softsign", "Affine"], "GRU": ["HardSigmoid", "LeakyRelu"], "RNN": ["Affine"]}


def test_node(core: Any, node_case: Any) -> None:
    node_case.check(core)


def cell(
    op: str, x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, p: Array, attrs: dict[str, Any], f: Any
) -> Any:
    """One step of one sample: (h, c)."""
    n, limit = h.size, attrs.get("clip", np.inf)
    wb, rb = np.split(b, 2)
    bound = lambda v: np.clip(v, -limit, limit)  # noqa: E731
    gx, gh = w @ x + wb, r @ h + rb
    if op == "RNN":
        return f[0](bound(gx + gh)), c
    if op == "GRU":
        z, reset = (f[0](bound(v)) for v in np.split((gx + gh)[: 2 * n], 2))
        if attrs.get("linear_before_reset"):
            hidden = gx[2 * n :] + reset * gh[2 * n :]
        else:
            hidden = gx[2 * n :] + r[2 * n :] @ (reset * h) + rb[2 * n :]
        return (1 - z) * f[1](bound(hidden)) + z * h, c
    i, o, forget, candidate = np.split(gx + gh, 4)
    pi, po, pf = np.split(p, 3)
    i = f[0](bound(i + pi * c))
    forget = 1 - i if attrs.get("input_forget") else f[0](bound(forget + pf * c))
    c = forget * c + i * f[1](bound(candidate))
    return f[0](bound(o + po * c)) * f[2](c), c


def reference(op: str, given: Sequence[Array | None], attrs: dict[str, Any], functions: list[str]) -> list[Array]:
    """Y, Y_h, Y_c with layout 0, in float64."""
    x, w, r = (np.asarray(a, np.float64) for a in given[:3] if a is not None)
    (steps, batch, _), dirs, n = x.shape, w.shape[0], r.shape[2]
    shapes = [(dirs, 2 * w.shape[1]), (batch,), (dirs, batch, n), (dirs, batch, n), (dirs, 3 * n)]
    rest = [*given[3:], *[None] * 5]
    b, lengths, h0, c0, p = (
        np.zeros(s) if a is None else a.astype(np.float64) for a, s in zip(rest[:5], shapes, strict=True)
    )
    lengths = np.full(batch, steps) if rest[1] is None else rest[1]
    y, h, c = np.zeros((steps, dirs, batch, n)), h0.copy(), c0.copy()
    for d in range(dirs):
        f = [FUNCTIONS[name] for name in functions[d * len(USUAL[op]) :]]
        for k in range(batch):
            order = range(lengths[k])
            for t in reversed(order) if d == 1 or attrs.get("direction") == "reverse" else order:
                h[d, k], c[d, k] = cell(op, x[t, k], h[d, k], c[d, k], w[d], r[d], b[d], p[d], attrs, f)
                y[t, d, k] = h[d, k]
    return [y, h, c][: 3 if op == "LSTM" else 2]


def operands(op: str, steps: int, batch: int, inputs: int, n: int, dirs: int, full: bool) -> list[Array | None]:
    rng = np.random.default_rng([steps, batch, n])
    make = lambda *s: (rng.standard_normal(s) * 0.5).astype(np.float32)  # noqa: E731
    given: list[Array | None] = [
        make(steps, batch, inputs),
        make(dirs, GATES[op] * n, inputs),
        make(dirs, GATES[op] * n, n),
    ]
    if full:
        given += [
            make(dirs, 2 * GATES[op] * n),
            rng.integers(0, steps, batch, np.int32, endpoint=True),
            make(dirs, batch, n),
        ]
        given += [make(dirs, batch, n), make(dirs, 3 * n)] if op == "LSTM" else []
    return given


def batch_first(given: Sequence[Array | None]) -> list[Array | None]:
    return [a.swapaxes(0, 1) if a is not None and i in (0, 5, 6) else a for i, a in enumerate(given)]


def check(core: Any, op: str, given: Sequence[Array | None], attrs: dict[str, Any], functions: list[str]) -> None:
    want = reference(op, given, attrs, functions)
    for constant in [False, True]:
        got = core.run(op, given, attrs, [np.float32] * len(want), constant=constant, threads=2)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, 1e-4, 2e-5)
    got = core.run(op, batch_first(given), {**attrs, "layout": 1}, [np.float32] * len(want))
    want = [want[0].transpose(2, 0, 1, 3), *(w.swapaxes(0, 1) for w in want[1:])]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, 1e-4, 2e-5)


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("direction", sorted(DIRECTIONS))
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (5, 3, 7, 9), (9, 2, 20, 33), (3, 9, 4, 16), (0, 2, 3, 4), (3, 0, 3, 4)]
)
def test_equations(core: Any, op: str, direction: str, full: bool, sizes: tuple[int, ...]) -> None:
    dirs = DIRECTIONS[direction]
    check(
        core, op, operands(op, *sizes, dirs, full), {"direction": direction, "hidden_size": sizes[3]}, USUAL[op] * dirs
    )


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("attrs", [{"clip": 0.4}, {"linear_before_reset": 1}, {"input_forget": 1}])
def test_variants(core: Any, op: str, attrs: dict[str, Any]) -> None:
    for full in [False, True]:
        check(core, op, operands(op, 6, 3, 5, 17, 1, full), attrs, USUAL[op])


@pytest.mark.parametrize("op", sorted(GATES))
def test_activations_take_parameters_in_order(core: Any, op: str) -> None:
    names = OTHERS[op] + USUAL[op]
    parameters = [PARAMETERS.get(name, (None, None)) for name in names]
    attrs = {
        "direction": "bidirectional",
        "activations": names,
        "activation_alpha": [a for a, _ in parameters if a is not None],
        "activation_beta": [b for _, b in parameters if b is not None],
    }
    check(core, op, operands(op, 4, 2, 3, 6, 2, True), attrs, names)


@pytest.mark.parametrize("op", sorted(GATES))
def test_omitted_outputs(core: Any, op: str) -> None:
    given = operands(op, 4, 2, 3, 6, 1, True)
    full = core.run(op, given, {}, [np.float32] * (3 if op == "LSTM" else 2))
    for keep in range(len(full)):
        (got,) = core.run(op, given, {}, [np.float32 if i == keep else None for i in range(len(full))])
        np.testing.assert_array_equal(got, full[keep])


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types(core: Any, op: str, dtype: Any) -> None:
    given = [a if a is None or a.dtype == np.int32 else a.astype(dtype) for a in operands(op, 4, 3, 5, 7, 2, True)]
    for constant in [False, True]:
        got = core.run(op, given, {"direction": "bidirectional"}, [dtype, dtype], constant=constant)
        for g, w in zip(got, reference(op, given, {"direction": "bidirectional"}, USUAL[op] * 2), strict=False):
            np.testing.assert_allclose(g.astype(np.float64), w, 0, 2e-3 if dtype is np.float16 else 2e-2)


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("attrs", [{}, {"clip": 0.3}, {"linear_before_reset": 1}, {"direction": "bidirectional"}])
def test_onnxruntime(core: Any, op: str, attrs: dict[str, Any]) -> None:
    ort = pytest.importorskip("onnxruntime")
    from onnx import helper

    given = operands(op, 7, 3, 12, 20, DIRECTIONS[attrs.get("direction", "forward")], True)
    given[4] = np.array([7, 1, 4], np.int32)  # ONNX Runtime forgets the state of an empty sequence
    names = [f"i{i}" for i in range(len(given))]
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    extra = {k: v for k, v in attrs.items() if k != "linear_before_reset" or op == "GRU"}
    node = helper.make_node(op, names, outputs, hidden_size=20, **extra)
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in given if a is not None]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, dict(zip(names, given, strict=True)))
    for g, w in zip(core.run(op, given, attrs, [np.float32] * len(want)), want, strict=True):
        np.testing.assert_allclose(g, w, 1e-4, 2e-5)


def test_operands_are_checked(core: Any) -> None:
    good = operands("LSTM", 4, 2, 3, 6, 1, True)
    for i in range(8):
        bad = list(good)
        bad[i] = np.zeros((1, *good[i].shape), good[i].dtype)  # type: ignore[union-attr]
        with pytest.raises(_core.BadOperand):
            core.run("LSTM", bad)
    for length in [-1, 5]:
        with pytest.raises(_core.BadOperand):
            core.run("LSTM", [*good[:4], np.array([1, length], np.int32)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("direction", sorted(DIRECTIONS))
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(core: Any, dtype: Any, direction: str, per_column: bool) -> None:
    dirs, n, rng = DIRECTIONS[direction], 20, np.random.default_rng(1)
    x, _, _, bias, lengths, h, c, peephole = operands("LSTM", 6, 3, 12, n, dirs, True)
    limits = np.iinfo(dtype)
    shape = (dirs, 4 * n) if per_column else (dirs,)
    quantised: list[Any] = []
    real: list[Array] = []
    for k in [12, n]:
        weights = rng.integers(limits.min, limits.max, (dirs, k, 4 * n), dtype)
        scale = rng.uniform(0.002, 0.004, shape).astype(np.float32)
        zero = rng.integers(limits.min, limits.max, shape, dtype) // 4
        column = (lambda v: v[:, None, :]) if per_column else (lambda v: v[:, None, None])
        real.append(((weights.astype(np.float64) - column(zero)) * column(scale)).swapaxes(1, 2))
        quantised.append((weights, scale, zero))
    (w, *w_scale), (r, *r_scale) = quantised
    given = [x, w, r, bias, lengths, h, c, peephole, *w_scale, *r_scale]
    want = reference("LSTM", [x, *real, bias, lengths, h, c, peephole], {"direction": direction}, USUAL["LSTM"] * dirs)
    for constant in [False, True]:
        attrs = {"direction": direction, "hidden_size": n}
        got = core.run("DynamicQuantizeLSTM", given, attrs, [np.float32] * 3, domain="com.microsoft", constant=constant)
        for g, v in zip(got, want, strict=True):
            np.testing.assert_allclose(g, v, 0, 0.05)
            assert np.sqrt(np.mean((g - v) ** 2)) < 0.01
