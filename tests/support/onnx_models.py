"""Small models that between them use every part of the format: weights of all kinds, bodies, functions, containers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def info(name, shape=("n", 4), dtype=TensorProto.FLOAT):
    """A tensor's declaration."""
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, weights=(), opset=21, functions=(), ir_version=10, **graph):
    """A model; inputs and outputs are declarations, or names of float tensors of shape n x 4."""

    def declared(items):
        return [info(i) if isinstance(i, str) else i for i in items]

    proto = helper.make_graph(nodes, "g", declared(inputs), declared(outputs), list(weights), **graph)
    domains = dict.fromkeys(f.domain for f in functions)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(proto, opset_imports=opsets, functions=list(functions), ir_version=ir_version)


def weight(name, array):
    """An initializer."""
    return numpy_helper.from_array(np.asarray(array), name)


def convolution():
    """Conv, BatchNormalization, Relu, pooling, Gemm, Softmax of an old operator set."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "k", "d"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    arrays = {"w": (3, 2, 3, 3), "s": (3,), "b": (3,), "m": (3,), "v": (3,), "k": (3, 4), "d": (4,)}
    weights = [weight(n, np.abs(rng.normal(size=s)).astype(np.float32)) for n, s in arrays.items()]
    return model(nodes, [info("x", (1, 2, 5, 5))], [info("y", (1, 4))], weights, opset=9)


def branches():
    """If in Loop, capturing values of all levels."""
    then = helper.make_graph([helper.make_node("Add", ["s", "x"], ["t"])], "then", [], [info("t", None)])
    other = helper.make_graph([helper.make_node("Sub", ["s", "k"], ["e"])], "else", [], [info("e", None)])
    body_nodes = [
        helper.make_node("Constant", [], ["two"], value_int=2),
        helper.make_node("Mod", ["i", "two"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["o"], then_branch=then, else_branch=other),
        helper.make_node("Identity", ["cond"], ["again"]),
    ]
    body_inputs = [info("i", (), TensorProto.INT64), info("cond", (), TensorProto.BOOL), info("s", None)]
    body = helper.make_graph(body_nodes, "body", body_inputs, [info("again", (), TensorProto.BOOL), info("o", None)])
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    return model([loop], ["x"], ["y"], [weight("count", np.int64(3)), weight("k", np.float32(0.5))])


def _reference(name, of):
    return onnx.AttributeProto(name=name, ref_attr_name=of, type=onnx.AttributeProto.FLOAT)


def calls():
    """A function that calls a function, with attributes by reference and defaults, of another operator set."""
    inner_node = helper.make_node("LeakyRelu", ["a"], ["b"])
    inner_node.attribute.append(_reference("alpha", "slope"))
    inner = helper.make_function(
        *("own", "Inner", ["a"], ["b"], [inner_node], [helper.make_opsetid("", 15)]), attributes=["slope"]
    )
    call = helper.make_node("Inner", ["p"], ["q"], domain="own")
    call.attribute.append(_reference("slope", "slope"))
    clip = helper.make_node("Clip", ["q"], ["r"], max=1.0)
    opsets = [helper.make_opsetid("", 6), helper.make_opsetid("own", 1)]
    outer = helper.make_function("own", "Outer", ["p"], ["r"], [call, clip], opsets, attributes=["slope"])
    nodes = [
        helper.make_node("Outer", ["x"], ["h"], domain="own", slope=0.25),
        helper.make_node("Outer", ["h"], ["y"], domain="own", slope=0.5),
    ]
    return model(nodes, ["x"], ["y"], functions=[inner, outer])


def containers():
    """Strings, a sequence, a sparse constant, an attribute of every simple kind."""
    values = helper.make_tensor("sv", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("si", TensorProto.INT64, [2, 2], [0, 1, 1, 0])
    sparse = helper.make_sparse_tensor(values, indices, [2, 2])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("SequenceConstruct", ["x", "x"], ["seq"]),
        helper.make_node("SequenceAt", ["seq", "zero"], ["at"]),
        helper.make_node("Add", ["at", "at"], ["y"]),
        helper.make_node("Identity", ["words"], ["z"]),
        helper.make_node("Identity", ["c"], ["s"]),
    ]
    weights = [weight("zero", np.int64(0)), helper.make_tensor("words", TensorProto.STRING, [2], [b"a", "é".encode()])]
    outputs = ["y", info("z", (2,), TensorProto.STRING), info("s", (2, 2))]
    return model(nodes, ["x"], outputs, weights)


EVERY = {f.__name__: f for f in (convolution, branches, calls, containers)}
