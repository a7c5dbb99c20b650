"""Specialising: types, known data, decided branches, contradictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Graph
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave.types import TensorType, Type


def f32(*shape: Any) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def read(text: str) -> Graph:
    """A graph from ONNX's textual form."""
    header = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
    return read_graph(onnx.parser.parse_model(header + text), optimise=False)


def shapes(graph: Graph) -> dict[str, Any]:
    return {v.name: v.tensor.shape if v.tensor else None for v in graph.outputs}


def test_shapes_flow_from_the_inputs_not_from_what_the_model_declares() -> None:
    graph = read("g (float[N, 4] x, float[4, 3] w) => (float[9, 9] y) { y = MatMul(x, w) }")
    assert shapes(specialise(graph, {"x": f32(2, 4)})) == {"y": (2, 3)}


def test_shape_arithmetic_folds_away() -> None:
    graph = read(
        """g (float[N, C, H, W] x) => (float[A, B] y) {
            s = Shape(x)
            zero = Constant<value = int64[1] {0}>()
            n = Gather(s, zero)
            rest = Constant<value = int64[1] {-1}>()
            target = Concat<axis = 0>(n, rest)
            y = Reshape(x, target)
        }"""
    )
    made = specialise(graph, {"x": f32(2, 3, 4, 5)})
    assert [n.op_type for n in made.nodes] == ["Reshape"]
    assert shapes(made) == {"y": (2, 60)}


def test_symbols_flow_where_nothing_else_is_known() -> None:
    graph = read("g (float[N, 4] x, float[4, 3] w) => (float[A, B] y) { h = MatMul(x, w) y = Relu(h) }")
    assert shapes(specialise(graph, {})) == {"y": ("N", 3)}


def test_a_symbol_settled_by_one_input_is_settled_in_the_others() -> None:
    graph = read("g (float[N, 4] x, float[N, 1] z) => (float[A, B] y) { y = Add(x, z) }")
    made = specialise(graph, {"x": f32(7, 4)})
    assert made.inputs[1].type == f32(7, 1)


def test_data_of_inputs_settles_shapes() -> None:
    graph = read("g (float[N] x, int64[R] shape) => (float[A, B] y) { y = Reshape(x, shape) }")
    types: dict[str, Type] = {"x": f32(6), "shape": TensorType(DType.INT64, (2,))}
    made = specialise(graph, types, {"shape": np.array([2, -1])})
    assert shapes(made) == {"y": (2, 3)}
    assert [v.name for v in made.inputs] == ["x", "shape"]


BRANCHES = """g (float[N] x, bool c) => (float[M] y, float[K] z) {
    y, z = If (c) <
        then_branch = t () => (float[A] ty, float[B] tz) { ty = Relu(x) tz = Identity(x) },
        else_branch = e () => (float[C] ey, float[D] ez) { ey = Concat<axis = 0>(x, x) ez = Neg(x) }
    >
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_a_decided_if_becomes_its_branch(condition: bool) -> None:
    graph = read(BRANCHES)
    made = specialise(graph, {"x": f32(3)}, {"c": np.array(condition)})
    assert "If" not in [n.op_type for n in made.walk()]
    assert shapes(made) == {"y": (3 if condition else 6,), "z": (3,)}
    feeds = {"x": np.array([-1, 0, 2], np.float32), "c": np.array(condition)}
    for name, value in evaluate_graph(graph, feeds).items():
        np.testing.assert_array_equal(evaluate_graph(made, feeds)[name], value)


def test_an_undecided_if_gets_what_both_branches_agree_on() -> None:
    made = specialise(read(BRANCHES), {"x": f32(3)})
    assert shapes(made) == {"y": (None,), "z": (3,)}
    branch = made.nodes[0].attributes["else_branch"]
    assert shapes(branch) == {branch.outputs[0].name: (6,), branch.outputs[1].name: (3,)}


def test_loops_keep_stable_shapes_and_widen_growing_ones() -> None:
    graph = read(
        """g (float[2] x) => (float[A] kept, float[B] grown, float[C, D] items) {
            n = Constant<value = int64 {3}>()
            yes = Constant<value = bool {1}>()
            kept, grown, items = Loop (n, yes, x, x) <
                body = b (int64 i, bool c, float[P] a, float[Q] g) => (bool d, float[R] a2, float[S] g2, float[T] item) {
                    d = Identity(c)
                    a2 = Neg(a)
                    g2 = Concat<axis = 0>(g, a)
                    item = Relu(a)
                }
            >
        }"""
    )
    made = specialise(graph, {})
    assert shapes(made) == {"kept": (2,), "grown": (None,), "items": (3, 2)}
    feeds = {"x": np.array([1, -2], np.float32)}
    for name, value in evaluate_graph(graph, feeds).items():
        np.testing.assert_array_equal(evaluate_graph(made, feeds)[name], value)


def test_a_shape_that_depends_on_data_leaves_the_rest_running() -> None:
    graph = read("g (float[N] x) => (int64[A, B] y) { z = NonZero(x) y = Transpose(z) }")
    assert shapes(specialise(graph, {"x": f32(4)})) == {"y": (None, 1)}


def test_com_microsoft_operators_have_shapes() -> None:
    graph = read(
        """g (float[N, 4] x, float[4, 3] w, float[3] g) => (float[A, B] y) {
            h = com.microsoft.FusedMatMul<alpha = 0.5>(x, w)
            f = com.microsoft.FastGelu(h)
            y = com.microsoft.SkipLayerNormalization(f, h, g)
        }"""
    )
    assert shapes(specialise(graph, {"x": f32(2, 4)})) == {"y": (2, 3)}


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, 3] x, float[4] z) => (float[A] y) { y = Add(x, z) }",
        "g (float[2, 3] x, float[4, 2] z) => (float[A] y) { y = MatMul(x, z) }",
        "g (float[2, 3] x, float[4, 2] z) => (float[A] y) { y = com.microsoft.FusedMatMul(x, z) }",
    ],
)
def test_contradictions_name_node_operator_and_shapes(text: str) -> None:
    with pytest.raises(ModelError, match=r"(Add|MatMul).*x: float32\[2,3\], z: float32\[4"):
        specialise(read(text), {})


def test_random_operators_are_not_folded() -> None:
    graph = read("g () => (float[A] y) { y = RandomNormal<shape = [3]>() }")
    assert [n.op_type for n in specialise(graph, {}).nodes] == ["RandomNormal"]


def test_large_results_are_not_folded() -> None:
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [4096, 4096])
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", [], [y], [shape]), ir_version=10)
    made = specialise(read_graph(model, optimise=False), {})
    assert [n.op_type for n in made.nodes] == ["ConstantOfShape"]
    assert shapes(made) == {"y": (4096, 4096)}


def test_partly_known_shapes_reach_reshape_and_expand() -> None:
    graph = read(
        """g (float[N, L, 12] x, float[1, 1] m) => (float[A, B, C, D] y, float[E, F] z) {
            s = Shape(x)
            zero = Constant<value = int64 {0}>()
            one = Constant<value = int64 {1}>()
            axis = Constant<value = int64[1] {0}>()
            n0 = Gather(s, zero)
            l0 = Gather(s, one)
            n = Unsqueeze(n0, axis)
            l = Unsqueeze(l0, axis)
            rest = Constant<value = int64[2] {3, -1}>()
            target = Concat<axis = 0>(n, l, rest)
            y = Reshape(x, target)
            two = Concat<axis = 0>(n, l)
            z = Expand(m, two)
        }"""
    )
    assert shapes(specialise(graph, {})) == {"y": ("N", "L", 3, 4), "z": ("N", "L")}
    assert shapes(specialise(graph, {"x": f32(2, None, 12)})) == {"y": (2, None, 3, None), "z": (2, None)}


def test_known_sizes_of_partly_known_shapes_are_constants() -> None:
    graph = read(
        """g (float[N, 3, H] x) => (int64[1] c, int64 twice) {
            s = Shape(x)
            from = Constant<value = int64[1] {1}>()
            to = Constant<value = int64[1] {2}>()
            c = Slice(s, from, to)
            one = Constant<value = int64 {1}>()
            size = Gather(s, one)
            twice = Add(size, size)
        }"""
    )
    made = specialise(graph, {})
    assert made.nodes == ()
    assert [v.constant.array.tolist() for v in made.outputs if v.constant] == [[3], 6]


def nested_loops(depth: int) -> onnx.ModelProto:
    """Loops in loops, the innermost of which doubles its vector."""
    constants = "n{0} = Constant<value = int64 {{2}}>() yes{0} = Constant<value = bool {{1}}>() "
    text = "y0 = Concat<axis = 0>(x0, x0)"
    for d in range(1, depth + 1):
        body = f"b{d} (int64 i{d}, bool c{d}, float[P] x{d - 1}) => (bool d{d}, float[Q] y{d - 1})"
        inner = f"{{ d{d} = Identity(c{d}) {text} }}"
        text = constants.format(d) + f"y{d} = Loop(n{d}, yes{d}, x{d}) <body = {body} {inner}>"
    header = '<ir_version: 10, opset_import: ["" : 20]>\n'
    return onnx.parser.parse_model(f"{header}g (float[2] x{depth}) => (float[A] y{depth}) {{ {text} }}")


def test_loops_in_loops_take_no_exponential_time() -> None:
    made = specialise(read_graph(nested_loops(12), optimise=False), {})
    assert made.outputs[0].type in (TensorType(DType.FLOAT32), f32(None))
