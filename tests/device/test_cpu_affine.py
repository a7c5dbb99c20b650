"""Normalizations of maps with no layer before them: convolutions with one tap, and results as without that."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from opweave.graph import Graph
from opweave.passes import optimise
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave_cpu.affine import normalizations
from opweave_cpu.device import CpuDevice

from .conftest import Core


def graph_of(body: str, x: str = "float[2,5,9,70] x") -> Graph:
    text = f'<ir_version: 10, opset_import: ["" : 22]>\ng ({x}, float[5] v) => (y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(1)
    for name, shape in {"a": (5,), "b": (5,), "m": (5,), "s": (5,), "k": (5, 1, 1), "l": (1, 5, 1, 1)}.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.uniform(0.5, 1.5, shape).astype(np.float32), name))
    graph = optimise(read_graph(model))
    return specialise(graph, {v.name: v.type for v in graph.inputs if v.type is not None})


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("y = BatchNormalization(x, a, b, m, s)", ["Conv"]),
        ("c = BatchNormalization(x, a, b, m, s)  d = Mul(c, k)  e = Add(l, d)  y = Relu(e)", ["Conv", "Relu"]),
        (
            "c = BatchNormalization(x, a, b, m, s)  d = BatchNormalization(c, a, b, m, s)  y = Add(c, d)",
            ["Conv", "Conv", "Add"],
        ),
        (
            "c = MaxPool<kernel_shape = [2,2]>(x)  y = BatchNormalization<epsilon = 0.1>(c, a, b, m, s)",
            ["MaxPool", "Conv"],
        ),
        ("y = BatchNormalization(x, a, b, m, v)", ["BatchNormalization"]),
    ],
)
def test_normalization(body: str, wanted: list[str]) -> None:
    graph = graph_of(body)
    assert [n.op_type for n in normalizations(graph).nodes] == wanted
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 5, 9, 70)).astype(np.float32), np.ones(5, np.float32)
    expected = evaluate_graph(graph, {"x": x, "v": v})["y"]
    for layout in ("off", "all"):
        (got,) = CpuDevice(2, layout=layout).compile(graph).call([x, v])
        np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def test_other_types_and_ranks_stay() -> None:
    body = "y = BatchNormalization(x, a, b, m, s)"
    assert normalizations(graph_of(body, "float[2,5] x")).nodes[0].op_type == "BatchNormalization"
    assert normalizations(graph_of(body, "float16[2,5,4,4] x")).nodes[0].op_type == "BatchNormalization"


@pytest.mark.parametrize("size", [1, 31, 2048, 5000])
@pytest.mark.parametrize("groups", [5, 40])
def test_one_tap(core: Core, size: int, groups: int) -> None:
    rng = np.random.default_rng(0)
    x, w, bias = (
        rng.standard_normal(s).astype(np.float32) for s in ((2, groups, size), (2 * groups, 1, 1), 2 * groups)
    )
    residual = rng.standard_normal((2, 2 * groups, size)).astype(np.float32)
    attrs = {"group": groups, "activation": "Relu"}
    wanted = np.maximum(np.repeat(x, 2, 1) * w[:, 0] + bias[:, None] + residual, 0)
    (got,) = core.run("FusedConv", [x, w, bias, residual], attrs, domain="opweave", threads=2)
    np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)
