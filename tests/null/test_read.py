"""Reading models: every form that ONNX allows ends in one frozen graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import TensorProto, helper, numpy_helper
from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Graph
from opweave.protos import tensor_proto
from opweave.read import read_graph
from opweave.reference import evaluate_graph
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


ELEMENTS = [int(d) for d in DType if d not in (DType.UNDEFINED, DType.STRING)]


def values_of(dtype: DType) -> np.ndarray:
    if dtype in (DType.BOOL, DType.UINT2, DType.UINT4):
        return np.array([0, 1, 1, 0, 1]).astype(dtype.numpy)
    if dtype is DType.FLOAT8E8M0:
        return np.array([4, 1, 1, 2, 1]).astype(dtype.numpy)
    return np.array([0, 1, 1, -1 if dtype.name[0] != "U" else 2, 1]).astype(dtype.numpy)


@pytest.mark.parametrize("code", ELEMENTS, ids=[DType(c).name for c in ELEMENTS])
@pytest.mark.parametrize("form", ["raw", "field"])
def test_weights_of_every_element_type(code: int, form: str):
    dtype = DType(code)
    expected = values_of(dtype)
    proto = tensor_proto(expected, "w")
    if form == "field":
        floats = expected.astype(np.complex128 if dtype.name.startswith("COMPLEX") else np.float64)
        proto = helper.make_tensor("w", code, expected.shape, floats if "FLOAT" in dtype.name else expected.tolist())
    graph = read_graph(model([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], [proto]), optimise=False)
    value = graph.nodes[0].inputs[0]
    assert value.type == TensorType(dtype, (5,))
    assert value.constant.nbytes == value.constant.array.nbytes
    np.testing.assert_array_equal(value.constant.array, expected)
    assert not value.constant.array.flags.writeable


def test_strings_keep_bytes_that_are_not_text():
    words = helper.make_tensor("w", TensorProto.STRING, [2], ["é".encode(), b"\xff"])
    graph = read_graph(model([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], [words]), optimise=False)
    array = graph.nodes[0].inputs[0].constant.array
    assert array[0] == "é"
    assert array[1].encode("utf-8", "surrogateescape") == b"\xff"


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_weights_are_dense(flat: bool):
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    where = [1, 5] if flat else [0, 1, 1, 2]
    indices = helper.make_tensor("i", TensorProto.INT64, [2] if flat else [2, 2], where)
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    graph = read_graph(
        model([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], sparse_initializer=[sparse]), optimise=False
    )
    np.testing.assert_array_equal(graph.nodes[0].inputs[0].constant.array, [[0, 1, 0], [0, 0, 2]])


@pytest.mark.parametrize("how", ["path", "text", "bytes", "proto"])
def test_sources(tmp_path: Path, how: str):
    proto = model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    source = {"path": path, "text": str(path), "bytes": path.read_bytes(), "proto": proto}[how]
    assert ops(read_graph(source)) == ["Relu"]


def test_external_data_is_mapped_when_it_is_asked_for(tmp_path: Path):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "sub").mkdir()
    data = tmp_path / "sub" / "w.bin"
    data.write_bytes(b"1234" + weights.tobytes() + b"rest")
    proto = TensorProto(name="w", data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "sub/w.bin"), ("offset", "4"), ("length", "24"), ("checksum", "none")):
        proto.external_data.add(key=key, value=value)
    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [proto]).SerializeToString())
    constant = read_graph(path).nodes[0].inputs[1].constant
    assert constant.nbytes == 24
    np.testing.assert_array_equal(constant.array, weights)
    base = constant.array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_names_are_unique_across_bodies_and_functions():
    """A body's own names never hide outer ones: both branches and the graph call a value `h`."""

    def branch(op):
        return helper.make_graph([helper.make_node(op, ["x"], ["h"])], op, [], [onnx_models.info("h", None)])

    nodes = [
        helper.make_node("Constant", [], ["c"], value_int=1),
        helper.make_node("Cast", ["c"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["h"], then_branch=branch("Relu"), else_branch=branch("Neg")),
        helper.make_node("Exp", ["h"], ["y"]),
    ]
    graph = read_graph(model(nodes, ["x"], ["y"]), optimise=False)
    written = [v.name for n in graph.walk() for v in n.writes()]
    assert len(set(written)) == len(written)
    assert len({n.name for n in graph.walk()}) == len(list(graph.walk()))
    x = np.array([-1, 2], np.float32)
    np.testing.assert_allclose(evaluate_graph(graph, {"x": x})["y"], np.exp(np.maximum(x, 0)))


def test_functions_of_another_operator_set_are_inlined():
    x = np.array([[-4, -1, 0.5, 9]], np.float32)
    first = np.minimum(np.where(x < 0, 0.25 * x, x), 1)
    expected = np.minimum(np.where(first < 0, 0.5 * first, first), 1)
    for optimise in (False, True):
        graph = read_graph(onnx_models.calls(), optimise=optimise)
        assert {n.domain for n in graph.nodes} == {""}
        np.testing.assert_allclose(evaluate_graph(graph, {"x": x})["y"], expected, rtol=1e-6)


def test_a_function_with_an_omitted_operand_and_a_body_by_attribute():
    """A function hands its operand, or nothing, to Clip; its If is handed over by the caller."""
    clip = helper.make_node("Clip", ["a", "low", "high"], ["b"])
    function = helper.make_function("own", "F", ["a", "low", "high"], ["b"], [clip], [helper.make_opsetid("", 13)])
    call = helper.make_node("F", ["x", "", "m"], ["y"], domain="own")
    high = numpy_helper.from_array(np.float32(1), "m")
    graph = read_graph(model([call], ["x"], ["y"], [high], functions=[function]))
    (node,) = [n for n in graph.nodes if n.op_type == "Clip"]
    assert node.inputs[1] is None
    assert node.inputs[2].constant.array == 1


def test_a_model_without_the_default_domain():
    node = helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml")
    proto = model([node], ["x"], ["y"])
    del proto.opset_import[:]
    proto.opset_import.add(domain="ai.onnx.ml", version=2)
    assert read_graph(proto).nodes[0].operator == "ai.onnx.ml.Normalizer"


def test_both_spellings_of_the_default_domain_and_imports_that_nothing_uses():
    proto = model([helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")], ["x"], ["y"])
    proto.opset_import[0].domain = "ai.onnx"
    proto.opset_import.add(domain="nobody.knows", version=3)
    graph = read_graph(proto)
    assert graph.nodes[0].operator == "Relu"
    assert graph.opsets == {"": 21, "nobody.knows": 3}


def test_declared_types():
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    optional = helper.make_value_info("o", helper.make_optional_type_proto(sequence.type))
    mapping = onnx.ValueInfoProto(name="m")
    mapping.type.map_type.key_type = TensorProto.STRING
    mapping.type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    dims = helper.make_tensor_value_info("d", TensorProto.INT8, ["a", 3, -1, None, 0])
    nodes = [helper.make_node("Identity", [n], [f"{n}2"], domain="own") for n in ("s", "o", "m", "d")]
    graph = read_graph(model(nodes, [sequence, optional, mapping, dims], ["d2"]), optimise=False)
    assert [str(v.type) for v in graph.inputs] == [
        "sequence(float32[...])",
        "optional(sequence(float32[...]))",
        "map(string,float32[...])",
        "int8[a,3,?,?,0]",
    ]


def test_outputs_that_are_inputs_constants_and_repeated():
    w = numpy_helper.from_array(np.ones(2, np.float32), "w")
    graph = read_graph(model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["x", "w", "y", "y"], [w]))
    results = evaluate_graph(graph, {"x": np.array([-1, 1], np.float32)})
    assert [v.name for v in graph.outputs] == ["x", "w", "y", "y"]
    np.testing.assert_array_equal(results["w"], [1, 1])


def large_model(path: Path) -> np.ndarray:
    """A file over a megabyte: a weight as an initializer, and as a Constant node."""
    w = np.arange(300_000, dtype=np.float32)
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(w[::-1].copy()))
    nodes = [constant, helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "c"], ["y"])]
    path.write_bytes(model(nodes, ["x"], ["y"], [numpy_helper.from_array(w, "w")]).SerializeToString())
    return w


@pytest.mark.parametrize("how", ["path", "bytes"])
def test_large_weights_are_read_when_they_are_asked_for(tmp_path: Path, how: str):
    path = tmp_path / "m.onnx"
    w = large_model(path)
    graph = read_graph(path if how == "path" else path.read_bytes(), optimise=False)
    found = [v.constant.array for n in graph.nodes for v in n.inputs if v.constant is not None]
    np.testing.assert_array_equal(found, [w, w[::-1]])
    assert all(a.flags.aligned and not a.flags.writeable for a in found)


def test_a_file_that_shrinks_after_it_was_read(tmp_path: Path):
    path = tmp_path / "m.onnx"
    large_model(path)
    graph = read_graph(path, optimise=False)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelError, match="has become shorter"):
        _ = graph.nodes[0].inputs[1].constant.array


def test_large_weights_of_the_wrong_size_are_refused():
    proto = tensor_proto(np.zeros(5000, np.float32), "w")
    proto.dims[0] = 6000
    data = model([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], [proto]).SerializeToString()
    with pytest.raises(ModelError, match="20000 bytes of raw_data"):
        read_graph(data)
