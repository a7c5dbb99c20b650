"""Reading models: every form that ONNX allows ends in one frozen graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from opweave.errors import ModelError
from opweave.graph import Graph
from opweave.read import read_graph
from opweave.types import TensorType


def model(nodes, inputs, outputs, initializers=(), opset=21, functions=(), **graph):
    """A model over float tensors of rank 1, its inputs and outputs given by name."""

    def info(name):
        return name if isinstance(name, onnx.ValueInfoProto) else helper.make_tensor_value_info(name, 1, ["n"])

    g = helper.make_graph(nodes, "g", [*map(info, inputs)], [*map(info, outputs)], list(initializers), **graph)
    opsets = [helper.make_opsetid("", opset), *{f.domain: helper.make_opsetid(f.domain, 1) for f in functions}.values()]
    return helper.make_model(g, opset_imports=opsets, functions=list(functions), ir_version=10)


def ops(graph: Graph) -> list[str]:
    return [n.op_type for n in graph.nodes]


def test_names_types_and_omitted_inputs():
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    high = numpy_helper.from_array(np.float32(2), "high")
    graph = read_graph(model([clip], ["x"], ["y"], [high]), optimise=False)
    (node,) = graph.nodes
    assert [v and v.name for v in node.inputs] == ["x", None, "high"]
    assert node.inputs[2].constant.array == 2
    assert str(graph.inputs[0]) == "x: float32[n]"
    assert node.name == "Clip"


def test_an_initializer_that_is_an_input_is_a_constant():
    add = helper.make_node("Add", ["x", "w"], ["y"])
    w = numpy_helper.from_array(np.ones(3, np.float32), "w")
    graph = read_graph(model([add], ["x", "w"], ["y"], [w]), optimise=False)
    assert [v.name for v in graph.inputs] == ["x"]
    assert list(graph.constants) == ["w"]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, 2]}, np.array([1.5, 2], np.float32)),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4])),
        ({"value_string": "é"}, np.array("é", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
        ({"value": numpy_helper.from_array(np.eye(2))}, np.eye(2)),
    ],
)
def test_constant_nodes_become_constants(attribute, expected):
    nodes = [helper.make_node("Constant", [], ["c"], **attribute), helper.make_node("Identity", ["c"], ["y"])]
    graph = read_graph(model(nodes, [], ["y"]), optimise=False)
    array = graph.nodes[0].inputs[0].constant.array
    np.testing.assert_array_equal(array, expected)
    assert array.dtype == np.asarray(expected).dtype
    assert graph.nodes[0].inputs[0].type == TensorType(graph.nodes[0].inputs[0].type.dtype, array.shape)


def test_an_undefined_value_is_refused_with_its_node():
    with pytest.raises(ModelError, match="nothing makes 'z'"):
        read_graph(model([helper.make_node("Relu", ["z"], ["y"])], ["x"], ["y"]))
