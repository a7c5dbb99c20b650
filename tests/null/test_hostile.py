"""Models that are damaged or made to do harm: one clear ModelError each, in bounded time and memory."""

from __future__ import annotations

import contextlib
import os
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from mutants import byte_mutants, structural_mutants
from onnx import TensorProto, helper
from onnx_models import EVERY, info, model, weight
from opweave.errors import ModelError, UsageError
from opweave.read import read_graph

SECONDS = 5  # of one small mutant; they take milliseconds


def relu(x="x", y="y", **kwargs):
    return helper.make_node("Relu", [x], [y], **kwargs)


def refuse(source, match):
    """Reading raises one ModelError that says so."""
    with pytest.raises(ModelError, match=match) as caught:
        read_graph(source)
    assert caught.value.asked
    assert "\n" not in str(caught.value)
    return caught.value


def test_no_file(tmp_path: Path):
    refuse(tmp_path / "none.onnx", "no such file")
    refuse(tmp_path, "directory")
    (tmp_path / "empty.onnx").touch()
    refuse(tmp_path / "empty.onnx", "empty")
    refuse(str(tmp_path / "a\0b"), "no such file")
    refuse("x" * 5000, "too long")
    os.mkfifo(tmp_path / "pipe")
    refuse(tmp_path / "pipe", "regular file")


@pytest.mark.parametrize(
    "data", [b"", b"not a model", b"\x7fELF\x02\x01", b"PK\x03\x04" * 50, b"\n" * 100, bytes(1000)]
)
def test_not_a_model(data: bytes):
    refuse(data, "empty|damaged|no graph")


def test_other_things_are_wrong_usage():
    with pytest.raises(UsageError, match="found int"):
        read_graph(3)  # type: ignore[arg-type]


def test_a_cycle():
    refuse(model([relu("b", "a"), relu("a", "b")], ["x"], ["b"]), "cycle")


def test_nodes_out_of_order_are_sorted():
    graph = read_graph(model([relu("a", "y"), relu("x", "a")], ["x"], ["y"]), optimise=False)
    assert [n.outputs[0].name for n in graph.nodes] == ["a", "y"]


def test_a_value_twice():
    refuse(model([relu("x", "y"), relu("x", "y")], ["x"], ["y"]), "defined twice")
    refuse(model([relu("x", "x")], ["x"], ["x"]), "defined twice")
    refuse(model([relu()], ["x", "x"], ["y"]), "stands twice")
    refuse(model([relu()], ["x"], ["y"], [weight("w", np.ones(1)), weight("w", np.ones(1))]), "stands twice")


def test_a_value_that_nothing_makes():
    assert refuse(model([relu("z")], ["x"], ["y"]), "nothing makes 'z'").context["op"] == "Relu"
    refuse(model([relu()], ["x"], ["z"]), "nothing makes 'z'")


def test_an_operator_that_does_not_exist():
    refuse(model([helper.make_node("Frobnicate", ["x"], ["y"])], ["x"], ["y"]), "no such operator")
    refuse(model([helper.make_node("", ["x"], ["y"])], ["x"], ["y"]), "names no operator")
    refuse(model([helper.make_node("Gelu", ["x"], ["y"])], ["x"], ["y"], opset=13), "no such operator")


def test_foreign_domains_are_kept():
    graph = read_graph(model([helper.make_node("Own", ["x"], ["y"], domain="their.own", odd=[1.5])], ["x"], ["y"]))
    (node,) = graph.nodes
    assert (node.operator, node.attributes) == ("their.own.Own", {"odd": [1.5]})


def test_wrong_numbers_of_operands_and_attributes():
    refuse(model([helper.make_node("Relu", ["x", "x"], ["y"])], ["x"], ["y"]), "2 inputs")
    refuse(model([helper.make_node("Add", ["x"], ["y"])], ["x"], ["y"]), "1 inputs")
    refuse(model([helper.make_node("Relu", ["x"], ["y", "z"])], ["x"], ["y"]), "2 outputs")
    refuse(model([relu(slope=1)], ["x"], ["y"]), "attribute 'slope'")
    refuse(model([helper.make_node("Concat", ["x"], ["y"])], ["x"], ["y"]), "no attribute 'axis'")
    refuse(model([helper.make_node("Concat", ["x"], ["y"], axis="0")], ["x"], ["y"]), "not of the kind int")


@pytest.mark.parametrize(("ir", "opset"), [(10, 10_000), (10_000, 21), (-1, 21), (10, -3), (2**40, 2**40)])
def test_absurd_versions(ir: int, opset: int):
    proto = model([relu()], ["x"], ["y"])
    proto.ir_version, proto.opset_import[0].version = ir, opset
    refuse(proto, "version")


def test_a_newer_version_is_tried_with_a_warning():
    proto = model([relu()], ["x"], ["y"], opset=onnx.defs.onnx_opset_version() + 1)
    with pytest.warns(UserWarning, match="newest known"):
        assert len(read_graph(proto).nodes) == 1


def tensor(**fields):
    return TensorProto(**{"name": "w", "data_type": 1, **fields})


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (tensor(dims=[2]), "0 elements of float_data"),
        (tensor(dims=[2], raw_data=b"123"), "3 bytes of raw_data"),
        (tensor(dims=[2], float_data=[1]), "1 elements"),
        (tensor(dims=[-1], raw_data=b""), "negative"),
        (tensor(dims=[2**40], raw_data=b"1234"), "4 bytes"),
        (tensor(dims=[2**62, 2**62, 4], raw_data=b"1234"), "elements"),
        (tensor(dims=[1] * 100, raw_data=b"1234"), "100 dimensions"),
        (tensor(dims=[2], data_type=99, raw_data=b"12"), "element type 99"),
        (tensor(dims=[2], data_type=0), "element type 0"),
        (tensor(dims=[2], data_type=TensorProto.INT4, raw_data=b"12"), "2 bytes"),
        (tensor(dims=[2], data_type=TensorProto.STRING, string_data=[b"a"]), "1 elements of string_data"),
    ],
)
def test_broken_weights(broken: TensorProto, match: str):
    refuse(model([helper.make_node("Identity", ["w"], ["y"])], [], [info("y", None)], [broken]), match)


def test_declared_sizes_are_never_allocated():
    huge = 2**40
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"]),
        helper.make_node("Expand", ["one", "s"], ["b"]),
        helper.make_node("Tile", ["one", "s"], ["c"]),
        helper.make_node("Range", ["zero", "end", "step"], ["d"]),
        helper.make_node("Sum", ["a", "b", "c", "d", "x"], ["y"]),
    ]
    arrays = {"s": np.array([huge]), "one": np.ones(1, np.float32), "zero": np.float32(0), "end": np.float32(huge)}
    weights = [weight(n, a) for n, a in {**arrays, "step": np.float32(1)}.items()]
    proto = model(nodes, [info("x", (huge,))], [info("y", (huge, huge))], weights)
    tracemalloc.start()
    read_graph(proto)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_a_sparse_tensor_of_a_huge_shape():
    values = helper.make_tensor("v", 1, [1], [1.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], [0]), [2**40])
    node = helper.make_node("Constant", [], ["y"], sparse_value=sparse)
    refuse(model([node], [], [info("y", None)]), "too large")


def test_many_sparse_tensors_of_large_shapes():
    """Half a gigabyte each when dense: none is made before it is needed."""
    nodes, names = [], [f"c{i}" for i in range(20)]
    for name in names:
        values = helper.make_tensor("v", 1, [1], [1.0])
        sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], [5]), [2**14, 2**12])
        nodes.append(helper.make_node("Constant", [], [name], sparse_value=sparse))
    proto = model([*nodes, helper.make_node("Sum", names, ["y"])], [], [info("y", None)])
    tracemalloc.start()
    read_graph(proto)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ([[0, 3]], "outside"),
        ([[-1, 0]], "outside"),
        ([[0, 0, 0]], "3 dimensions"),
        ([[0, 0], [1, 1]], "2 values|1 values"),
    ],
)
def test_sparse_indices_outside_the_shape(where: list[list[int]], match: str):
    values = helper.make_tensor("v", 1, [1], [1.0])
    array = np.array(where)
    sparse = onnx.SparseTensorProto(dims=[2, 3])
    sparse.values.CopyFrom(values)
    sparse.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, array.shape, array.ravel()))
    node = helper.make_node("Constant", [], ["y"], sparse_value=sparse)
    refuse(model([node], [], [info("y", None)]), match)


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If ..., made from the inside out as bytes are."""
    proto = model([helper.make_node("If", ["x"], ["y"])], [info("x", (), TensorProto.BOOL)], [info("y", None)])
    node = proto.graph.node[0]
    for _ in range(depth):
        branch = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        branch.output.add(name="y")
        node = branch.node.add(op_type="If", input=["x"], output=["y"])
    return proto


def test_bodies_ten_thousand_deep():
    refuse(nested(10_000), "deep")


def deep_bytes(depth: int) -> bytes:
    """The same as a file: each level is a graph in an attribute in a node."""

    def field(number: int, payload: bytes) -> bytes:
        size, out = len(payload), bytearray([number << 3 | 2])
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        return bytes([*out, size]) + payload

    graph = b""
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))
    return b"\x08\x0a" + field(7, graph)


def test_a_file_ten_thousand_deep():
    refuse(deep_bytes(10_000), "damaged")


def test_recursive_functions():
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]

    def calling(name: str, other: str) -> onnx.FunctionProto:
        node = helper.make_node(other, ["a"], ["b"], domain="own")
        return helper.make_function("own", name, ["a"], ["b"], [node], opsets)

    call = helper.make_node("F", ["x"], ["y"], domain="own")
    refuse(model([call], ["x"], ["y"], functions=[calling("F", "F")]), "calls itself")
    refuse(model([call], ["x"], ["y"], functions=[calling("F", "G"), calling("G", "F")]), "calls itself")


def test_functions_that_grow_without_bound():
    """Each calls the one before ten times: 10^20 nodes."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(20):
        name = ("Relu", "") if not level else (f"F{level - 1}", "own")
        calls = [helper.make_node(name[0], ["a"], [f"b{i}"], domain=name[1]) for i in range(10)]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["b0"], calls, opsets))
    call = helper.make_node("F19", ["x"], ["y"], domain="own")
    refuse(model([call], ["x"], ["y"], functions=functions), "nodes")


def external(location: str, **entries: object) -> onnx.ModelProto:
    broken = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        broken.external_data.add(key=key, value=str(value))
    return model([helper.make_node("Identity", ["w"], ["y"])], [], [info("y", (4,))], [broken])


@pytest.mark.parametrize(
    ("location", "entries", "match"),
    [
        ("/etc/passwd", {}, "in the model's folder"),
        ("../w.bin", {}, "in the model's folder"),
        ("sub/../../w.bin", {}, "in the model's folder"),
        ("", {}, "in the model's folder"),
        ("a\0b", {}, "in the model's folder"),
        ("x" * 5000, {}, "in the model's folder"),
        ("link.bin", {}, "links to"),
        ("none.bin", {}, "no file"),
        ("sub", {}, "no file"),
        ("w.bin", {"offset": 8}, "which has 16"),
        ("w.bin", {"offset": -4}, "offset"),
        ("w.bin", {"offset": 2**63}, "which has 16"),
        ("w.bin", {"offset": "1e3"}, "offset"),
        ("w.bin", {"length": 4}, "4 bytes of external data"),
        ("w.bin", {"length": 2**62}, "bytes of external data"),
    ],
)
def test_external_data_outside_its_file(tmp_path: Path, location: str, entries: dict[str, object], match: str):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (folder / "w.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "model.onnx").write_bytes(external(location, **entries).SerializeToString())
    refuse(folder / "model.onnx", match)


def small_mutants(count: int, seed: int):
    """As many of either kind."""
    protos = {name: make() for name, make in EVERY.items()}
    yield from byte_mutants({name: proto.SerializeToString() for name, proto in protos.items()}, count, seed)
    yield from structural_mutants(protos, count, seed)


def check(cases) -> None:
    for name, data in cases:
        start = time.perf_counter()
        with warnings.catch_warnings(), contextlib.suppress(ModelError):
            warnings.simplefilter("ignore")
            read_graph(data)
        assert time.perf_counter() - start < SECONDS, name


def test_mutants():
    check(small_mutants(300, seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_mutants(seed: int):
    check(small_mutants(1000, seed))
