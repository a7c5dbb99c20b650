"""Blocked layout: which nodes take it, and results as without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from opweave.errors import ExecutionError, UsageError
from opweave.graph import Graph
from opweave.passes import optimise
from opweave.read import read_graph
from opweave.specialise import specialise
from opweave_cpu import _core
from opweave_cpu.device import CpuDevice, CpuProvider
from opweave_cpu.fuse import fuse
from opweave_cpu.layout import CHOICES, KERNEL, blocked_regions

from .conftest import Array, NodeCase

NODE_OPERATORS = ["Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Concat"]
runs = pytest.mark.skipif(KERNEL not in _core.operators(), reason="the core has no blocked convolution yet")


def weights(name: str, *shape: int) -> onnx.TensorProto:
    array = np.random.default_rng(len(name)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
    return numpy_helper.from_array(array.astype(np.float32), name)


def graph_of(text: str, *constants: onnx.TensorProto) -> Graph:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 22]>\n' + text)
    model.graph.initializer.extend(constants)
    graph = optimise(read_graph(model))
    return specialise(graph, {v.name: v.type for v in graph.inputs if v.type is not None})


def operators(graph: Graph, layout: str = "all") -> list[str]:
    found = blocked_regions(fuse(graph, _core.operators()), CHOICES[layout])
    return [n.op_type for n in found.graph.nodes]


def check(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=v.tensor.static_shape).astype(np.float32) for v in graph.inputs if v.tensor]
    plain, wide = (CpuDevice(2, layout=layout).compile(graph).call(inputs) for layout in ("off", "all"))
    for a, b in zip(plain, wide, strict=True):
        np.testing.assert_allclose(b, a, 1e-4, 1e-5)


W, V, D, P = (
    weights("w", 24, 3, 3, 3),
    weights("vv", 40, 24, 1, 1),
    weights("ddd", 24, 1, 3, 3),
    weights("pppp", 24, 1, 1),
)
CASES = {
    "residual and tail": (
        "g (float[1,3,9,8] x) => (y) { a = Conv<pads = [1,1,1,1]>(x, w)  b = Relu(a) "
        "c = Conv<group = 24, pads = [1,1,1,1]>(b, ddd)  d = Add(c, b)  e = Relu(d)  f = Conv(e, vv)  y = Softmax(f) }",
        ["BlockedConv", "BlockedDepthwise", "BlockedConv", "FromBlocked", "Softmax"],
    ),
    "pools and elementwise": (
        "g (float[1,3,9,8] x) => (y) { a = Conv(x, w)  b = MaxPool<kernel_shape = [2,2]>(a)  c = Mul(b, pppp)  d = Exp(c) "
        "e = GlobalAveragePool(d)  f = Sigmoid(e)  y = Mul(d, f) }",
        ["BlockedConv", "BlockedPool", "Tape", "BlockedPool", "Sigmoid", "Mul", "FromBlocked"],
    ),
    "concat of whole blocks": (
        "g (float[1,16,9,8] x, float[1,5,9,8] z) => (y) { a = Relu(x)  b = Concat<axis = -3>(a, z)  y = Neg(b) }",
        ["ToBlocked", "Relu", "ToBlocked", "Concat", "Neg", "FromBlocked"],
    ),
    "concat of torn blocks": (
        "g (float[1,5,9,8] x, float[1,16,9,8] z) => (y) { y = Concat<axis = 1>(x, z) }",
        ["Concat"],
    ),
    "one spatial axis": (
        "g (float[2,24,9] x) => (y) { a = AveragePool<kernel_shape = [3], strides = [2]>(x)  y = Mul(a, a) }",
        ["ToBlocked", "BlockedPool", "Mul", "FromBlocked"],
    ),
    "read in both layouts": (
        "g (float[1,3,9,8] x) => (y, a) { a = Conv(x, w)  b = Softmax(a)  c = Neg(a)  y = Add(b, c) }",
        ["BlockedConv", "FromBlocked", "Softmax", "ToBlocked", "Tape", "FromBlocked"],
    ),
    "operands of other shapes stay": (
        "g (float[1,24,9,8] x, float[9,8] z, float[1,1,9,8] s) => (y) { a = Add(x, z)  b = Softmax(a)  y = Mul(b, s) }",
        ["Add", "Softmax", "Mul"],
    ),
    "groups": (
        "g (float[1,96,6,6] x) => (y, z) { y = Conv<group = 3>(x, u)  z = Conv<group = 4>(x, t) }",
        ["ToBlocked", "BlockedConv", "FromBlocked", "Conv"],
    ),
    "pads and sizes": (
        "g (float[1,3,9,8] x) => (y) { a = Conv(x, w)  p = Constant<value_ints = [0,0,1,0,0,0,0,3]>()  b = Pad(a, p) "
        "s = Constant<value_floats = [1.0,1.0,2.0,1.5]>()  c = Resize(b, , s) "
        'size = Constant<value_ints = [1,24,5,5]>()  d = Resize<mode = "linear">(c, , , size)  y = Softmax(d) }',
        ["BlockedConv", "Pad", "Resize", "Resize", "FromBlocked", "Softmax"],
    ),
    "pads and sizes of channels": (
        "g (float[1,16,9,8] x) => (y) { p = Constant<value_ints = [0,1,1,0,0,0,0,3]>()  b = Pad(x, p) "
        "s = Constant<value_floats = [1.0,2.0,2.0,1.5]>()  y = Resize(b, , s) }",
        ["Pad", "Resize"],
    ),
    "in a body": (
        "g (bool c, float[1,3,9,8] x) => (float[1,24,7,6] y) { y = If(c) <then_branch = t () => (float[1,24,7,6] p) "
        "{ q = Conv(x, w)  p = Relu(q) }, else_branch = e () => (float[1,24,7,6] r) { m = Conv(x, w)  r = Neg(m) }> }",
        ["If"],
    ),
}
CONSTANTS = (W, V, D, P, weights("u", 48, 32, 3, 3), weights("t", 48, 24, 3, 3))


def case(name: str) -> Graph:
    return graph_of(CASES[name][0], *(c for c in CONSTANTS if f"{c.name})" in CASES[name][0]))


@pytest.mark.parametrize("name", CASES)
def test_forms(name: str) -> None:
    assert operators(case(name)) == CASES[name][1]


@runs
@pytest.mark.parametrize("name", [n for n in CASES if n != "in a body"])
def test_results(name: str) -> None:
    check(case(name))


@runs
def test_body() -> None:
    graph = case("in a body")
    x = np.random.default_rng(0).standard_normal((1, 3, 9, 8)).astype(np.float32)
    plain, wide = (CpuDevice(1, layout=layout).compile(graph) for layout in ("off", "all"))
    _, rows = wide.profile([np.array(True), x])
    assert [r.operator for r in rows][:2] == ["opweave.BlockedConv", "opweave.FromBlocked"]
    for branch in (True, False):
        (a,), (b,) = (p.call([np.array(branch), x]) for p in (plain, wide))
        np.testing.assert_allclose(b, a, 1e-4, 1e-5)


def with_constants(model: onnx.ModelProto, inputs: list[Array]) -> onnx.ModelProto:
    """All but the first input become constants, as weights are in models."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value, array in list(zip(model.graph.input, inputs, strict=True))[1:]:
        made.graph.initializer.append(numpy_helper.from_array(array, value.name))
    kept = list(made.graph.input)[:1]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    return made


@runs
def test_node(node_case: NodeCase) -> None:
    """ONNX's own tests, whichever of them can be blocked."""
    constant = node_case.model.graph.node[0].op_type == "Conv"
    inputs = list(node_case.inputs)
    graph = read_graph(with_constants(node_case.model, inputs) if constant else node_case.model, optimise=False)
    got = CpuDevice(2, layout="all").compile(graph).call(inputs[:1] if constant else inputs)
    for g, w in zip(got, node_case.outputs, strict=True):
        np.testing.assert_allclose(g, w, node_case.rtol, node_case.atol)


def net(size: int, channels: int, middle: str = "") -> Graph:
    head = f"g (float[1,{channels},{size},{size}] x) => (y)"
    text = f"{head} {{ a = Transpose<perm = [0,1,3,2]>(x)  {middle}  y = Softmax(b) }}"
    return graph_of(text, weights("w", channels, channels, 3, 3))


def test_choice() -> None:
    """A convolution is worth two changes of layout, an elementwise operator or a tiny convolution is not."""
    assert operators(net(56, 64, "b = Conv(a, w)"), "auto").count("BlockedConv") == 1
    assert operators(net(3, 2, "b = Conv(a, w)"), "auto") == ["Transpose", "Conv", "Softmax"]
    alone = graph_of("g (float[1,64,56,56] x) => (y) { y = Relu(x) }")
    assert operators(alone, "auto") == ["Relu"]


def test_choice_moves_the_change_to_the_smaller_value() -> None:
    graph = net(56, 64, "p = Conv(a, w)  b = MaxPool<kernel_shape = [4,4], strides = [4,4]>(p)")
    changed = ["ToBlocked", "BlockedConv", "BlockedPool", "FromBlocked"]
    assert operators(graph, "auto") == ["Transpose", *changed, "Softmax"]


@runs
def test_failures_name_the_node() -> None:
    graph = graph_of("g (float[1,16,h,v] x) => (y) { [conv] a = Conv(x, w)  y = Relu(a) }", weights("w", 24, 16, 3, 3))
    program = CpuDevice(1, layout="all").compile(graph)
    assert program.call([np.zeros((1, 16, 9, 3), np.float32)])[0].shape == (1, 24, 7, 1)
    with pytest.raises(ExecutionError, match="node conv,"):
        program.call([np.zeros((1, 16, 9, 1), np.float32)])


def test_option() -> None:
    device: Any = CpuProvider().open("cpu", {"layout": "off"})
    assert device.layout == "off"
    with pytest.raises(UsageError, match="layout"):
        CpuProvider().open("cpu", {"layout": "NHWC"})
