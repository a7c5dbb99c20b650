"""Graphs back to ONNX: other engines load them, and they give the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_models
import onnxruntime
import pytest
from onnx import TensorProto, helper
from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.export import opsets_of, to_onnx
from opweave.graph import Constant, Graph, Node, Value
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.types import MapType, OptionalType, SequenceType, TensorType

F32 = DType.FLOAT32
RNG = np.random.default_rng(0)


def run(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def feeds_for(name: str) -> dict[str, Any]:
    shape = (1, 2, 5, 5) if name == "convolution" else (3, 4)
    return {"x": RNG.normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("name", list(onnx_models.EVERY))
def test_round_trip(name: str, optimise: bool):
    source, feeds = onnx_models.EVERY[name](), feeds_for(name)
    exported = read_graph(source, optimise=optimise).to_onnx()
    onnx.checker.check_model(exported, full_check=True)
    assert [o.name for o in exported.graph.output] == [o.name for o in source.graph.output]
    again = read_graph(exported.SerializeToString(), optimise=optimise)
    expected = evaluate_graph(read_graph(source, optimise=False), feeds)
    for found in (run(exported, feeds), list(evaluate_graph(again, feeds).values())):
        for array, other in zip(expected.values(), found, strict=True):
            if array.dtype == object:
                assert list(array) == list(other)
            else:
                np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6)


def graph_of(*nodes: Node, inputs: tuple[Value, ...] = (), outputs: tuple[Value, ...] = ()) -> Graph:
    return Graph("g", inputs, outputs, nodes)


def value(name: str, dtype: DType = F32, shape: Any = (2,), data: Any = None) -> Value:
    constant = None if data is None else Constant(np.asarray(data, dtype.numpy))
    return Value(name, TensorType(dtype, shape), constant)


X, Y, Z = value("x"), value("y"), value("z")


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("y = Relu(x)", 17),
        ("y = Gelu(x)", 20),
        ("y = Swish(x)", 24),
        ("y = ReduceMean(x)", 18),
        ("y = ReduceMean(x, k)", 18),
        ("y = Split<num_outputs = 1>(x)", 18),
        ("y = Cast<to = 1>(x)", 17),
        ("y = Cast<to = 23>(x)", 17),
        ("y = Identity(x)", 17),
    ],
)
def test_the_lowest_operator_set_is_chosen(text: str, opset: int):
    proto = onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["" : 25]> g (float[2] x) => (float[2] y) <int64[1] k = {{0}}> {{ {text} }}'
    )
    assert opsets_of(read_graph(proto, optimise=False)) == {"": opset}


def test_element_types_raise_the_operator_set_and_the_ir_version():
    node = Node("n", "Identity", (value("x", DType.INT4),), (value("y", DType.INT4),), version=25)
    graph = graph_of(node, inputs=(value("x", DType.INT4),), outputs=(value("y", DType.INT4),))
    exported = to_onnx(graph)
    assert exported.opset_import[0].version == 21
    assert exported.ir_version >= 10


def test_old_forms_hold_the_operator_set_down():
    old = Node("n", "Resize", (X, None, value("s", data=[2.0, 2.0])), (Y,), {"mode": "nearest"}, version=11)
    graph = graph_of(old, inputs=(X,), outputs=(Y,))
    assert opsets_of(graph)[""] == 12
    newer = Node("m", "Gelu", (Y,), (Z,), version=20)
    with pytest.raises(ModelError, match="no one operator set"):
        opsets_of(graph_of(old, newer, inputs=(X,), outputs=(Z,)))


def test_captures_become_inputs():
    graph = graph_of(Node("n", "Add", (X, value("w")), (Y,), version=14), inputs=(X,), outputs=(Y,))
    exported = to_onnx(graph)
    assert [i.name for i in exported.graph.input] == ["x", "w"]
    (result,) = run(exported, {"x": np.ones(2, np.float32), "w": np.ones(2, np.float32)})
    np.testing.assert_array_equal(result, [2, 2])


def test_outputs_that_repeat_get_names_of_their_own():
    graph = graph_of(Node("n", "Relu", (X,), (Y,), version=14), inputs=(X,), outputs=(Y, Y, X))
    exported = to_onnx(graph)
    names = [o.name for o in exported.graph.output]
    assert names[0] == "y"
    assert len(set(names)) == 3
    results = run(exported, {"x": np.array([-1, 1], np.float32)})
    np.testing.assert_array_equal(results, [[0, 1], [0, 1], [-1, 1]])


def test_bodies_give_out_captured_values_and_constants():
    """Both branches give out what they did not make."""
    shared = value("shared", data=[5, 6])
    then = Graph("then", (), (X,), ())
    other = Graph("else", (), (shared,), ())
    flag = value("flag", DType.BOOL, ())
    node = Node("n", "If", (flag,), (Y,), {"then_branch": then, "else_branch": other}, version=25)
    add = Node("a", "Add", (Y, shared), (Z,), version=14)
    exported = to_onnx(graph_of(node, add, inputs=(X, flag), outputs=(Z,)))
    onnx.checker.check_model(exported)
    for condition, expected in ((True, [6, 7]), (False, [10, 12])):
        (result,) = run(exported, {"x": np.ones(2, np.float32), "flag": np.array(condition)})
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.UNDEFINED], ids=str)
def test_constants_of_every_element_type(dtype: DType):
    data = np.array(["a", "é", "b"], object) if dtype is DType.STRING else np.array([1, 0.5, 1]).astype(dtype.numpy)
    source = value("c", dtype, (3,), data)
    out = value("y", dtype, (3,))
    graph = graph_of(Node("n", "Identity", (source,), (out,), version=25), outputs=(out,))
    again = read_graph(to_onnx(graph).SerializeToString(), optimise=False)
    found = again.nodes[0].inputs[0]
    assert found is not None
    assert found.type == source.type
    assert found.constant is not None
    np.testing.assert_array_equal(found.constant.array, data)


def test_attributes_of_every_kind():
    attributes = {
        "integer": 3,
        "real": 1.5,
        "text": "é",
        "integers": [1, 2],
        "reals": [0.5, 2.0],
        "texts": ["a", "b"],
        "tensor": np.arange(3),
        "kind": OptionalType(SequenceType(TensorType(F32, ("n", None)))),
        "body": Graph("b", (), (value("q"),), (Node("i", "Relu", (X,), (value("q"),), version=14),)),
    }
    node = Node("n", "Own", (X,), (Y,), attributes, "their.own", 1)
    again = read_graph(to_onnx(graph_of(node, inputs=(X,), outputs=(Y,))), optimise=False).nodes[0]
    assert set(again.attributes) == set(attributes)
    for name, expected in attributes.items():
        if name == "tensor":
            np.testing.assert_array_equal(again.attributes[name], expected)
        elif name == "body":
            assert [str(n) for n in again.attributes[name].nodes] == ["q = Relu(x)"]
        else:
            assert again.attributes[name] == expected


def test_empty_lists_keep_their_kind():
    proto = helper.make_node("StringNormalizer", ["x"], ["y"], stopwords=["a"])
    declared = [onnx_models.info(n, (2,), TensorProto.STRING) for n in "xy"]
    graph = read_graph(helper.make_model(helper.make_graph([proto], "g", declared[:1], declared[1:])), optimise=False)
    empty = replace(graph.nodes[0], attributes={"stopwords": []})
    exported = to_onnx(replace(graph, nodes=(empty,)))
    assert exported.graph.node[0].attribute[0].type == onnx.AttributeProto.STRINGS


def test_types_of_containers_are_declared():
    kinds = [SequenceType(TensorType(F32)), OptionalType(TensorType(F32, ())), MapType(DType.INT64, TensorType(F32))]
    for kind in kinds:
        x, y = Value("x", kind), Value("y", kind)
        node = Node("n", "Own", (x,), (y,), domain="their.own", version=1)
        graph = read_graph(to_onnx(graph_of(node, inputs=(x,), outputs=(y,))), optimise=False)
        assert graph.inputs[0].type == kind
