"""Fusion in the lowering: what is fused, what is not, and results as without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from opweave.graph import Graph
from opweave.passes import optimise
from opweave.read import read_graph
from opweave.specialise import specialise
from opweave_cpu import _core
from opweave_cpu.device import CpuDevice
from opweave_cpu.fuse import fuse
from opweave_cpu.lower import NATIVE, Lowering


def graph_of(text: str) -> Graph:
    graph = optimise(read_graph(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 22]>\n' + text)))
    return specialise(graph, {v.name: v.type for v in graph.inputs if v.type is not None})


def operators(graph: Graph) -> list[str]:
    return [n.op_type for n in fuse(graph, _core.operators()).graph.nodes]


def check(graph: Graph, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=v.tensor.static_shape).astype(np.float32) for v in graph.inputs if v.tensor]
    plain, fused = (CpuDevice(2, fuse=f).compile(graph).call(inputs) for f in (False, True))
    for a, b in zip(plain, fused, strict=True):
        np.testing.assert_allclose(b, a, 1e-4, 1e-5)


CONV = "g (float[1,3,6,6] x, float[4,3,3,3] w, float[4] b, float[1,4,4,4] r) => (float[1,4,4,4] y) {{ {} }}"
PRODUCT = "g (float[2,5] x, float[5,4] w, float[4] b, float[2,4] r) => (float[2,4] y) {{ {} }}"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("c = Conv(x, w, b)  y = Relu(c)", ["FusedConv"]),
        ("c = Conv(x, w, b)  d = Add(r, c)  y = LeakyRelu<alpha = 0.3>(d)", ["FusedConv"]),
        ("c = Conv(x, w)  d = Sum(c, r)  y = HardSwish(d)", ["FusedConv"]),
        ("l = Constant<value = float {-0.5}>() c = Conv(x, w)  y = Clip(c, l)", ["FusedConv"]),
        ("c = Conv(x, w)  y = Gelu<approximate = 'tanh'>(c)", ["FusedConv"]),
        ("c = Conv(x, w)  d = Relu(c)  y = Sub(d, c)", ["Conv", "Tape"]),
        ("c = Conv(x, w)  d = Relu(c)  y = Add(d, r)", ["FusedConv", "Add"]),
    ],
)
def test_convolution(body: str, wanted: list[str]) -> None:
    graph = graph_of(CONV.format(body.replace("'", '"')))
    assert operators(graph) == wanted
    check(graph)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("c = MatMul(x, w)  d = Add(c, b)  e = Add(d, r)  y = Sigmoid(e)", ["FusedMatMul"]),
        ("c = Gemm(x, w, b)  y = Tanh(c)", ["FusedMatMul"]),
        ("c = Gemm<alpha = 0.5>(x, w, b)  d = Add(r, c)  y = Elu(d)", ["FusedMatMul"]),
        ("c = Gemm<beta = 0.5>(x, w, b)  y = Relu(c)", ["Gemm", "Relu"]),
        ("c = MatMul(x, w)  d = Mul(c, r)  y = Relu(d)", ["MatMul", "Tape"]),
    ],
)
def test_product(body: str, wanted: list[str]) -> None:
    graph = graph_of(PRODUCT.format(body))
    assert operators(graph) == wanted
    check(graph)


def test_bodies_are_fused() -> None:
    text = """g (float[2,3] x, float[3,3] w) => (float[2,3] y) {
        n = Constant<value = int64 {3}>()  c = Constant<value = bool {1}>()
        y = Loop(n, c, x) <body = b (int64 i, bool go, float[2,3] v) => (bool go2, float[2,3] u) {
            go2 = Identity(go)  p = MatMul(v, w)  u = Relu(p)
        }> }"""
    graph = graph_of(text)
    check(graph)
    (loop,) = fuse(graph, _core.operators()).graph.nodes
    assert "FusedMatMul" in [n.op_type for n in loop.bodies["body"].nodes]


def test_a_refused_kernel_falls_back_to_what_was_fused() -> None:
    graph = graph_of(CONV.format("c = Conv(x, w, b)  y = Relu(c)"))
    fused = fuse(graph, _core.operators())
    (node,) = fused.graph.nodes
    broken: Any = replace(node, attributes={**node.attributes, "activation": "no such activation"})
    lowering = Lowering(_core.operators(), fused.origins)
    block = lowering.block(replace(fused.graph, nodes=(broken,)))
    assert block[2][0][0] == NATIVE
    program = _core.Program(lowering.values, block, 1)
    assert [op for _, op in program.calls()] == ["opweave.FusedConv"]
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=v.tensor.static_shape).astype(np.float32) for v in graph.inputs if v.tensor]
    program.lay_out([-1] * len(lowering.values), 0)
    np.testing.assert_allclose(program.call(inputs)[0], CpuDevice(1).compile(graph).call(inputs)[0], 1e-4, 1e-5)
