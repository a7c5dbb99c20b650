"""Q/DQ models on the cpu device: products of integers where both operands are dequantised, the same results everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from opweave.protos import value_type
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave_cpu.device import CpuDevice
from opweave_cpu.quantised import integer_products

RNG = np.random.default_rng(0)
ACTIVATION = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"
QUANTISED = {"s": np.float32(0.05), "z": np.uint8(120)}


def weights(*shape: int) -> Any:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def positive(*shape: int) -> Any:
    return (RNG.random(shape) * 0.01 + 0.001).astype(np.float32)


def check(body: str, expected: list[str], inputs: str = "float[n,3,8] x", **constants: Any) -> None:
    """The operators that the lowering makes of a model, and its results against the reference."""
    outputs = "float[a,b,c,d] y" if ", " in inputs else "float[a,b,c] y"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())
    graph = read_graph(proto)
    shapes = {v.name: [d if isinstance(d, int) else 2 for d in v.tensor.shape or ()] for v in graph.inputs if v.tensor}
    feeds = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    graph = specialise(graph, {name: value_type(x) for name, x in feeds.items()})
    made = integer_products(graph)
    assert [n.op_type for n in made.nodes] == expected
    (found,) = CpuDevice(threads=2).compile(graph).call([feeds[v.name] for v in graph.inputs])
    (wanted,) = evaluate_graph(graph, feeds).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", ["y = Identity(m)", "y = Add(m, b)", "y = Add(b, m)"])
@pytest.mark.parametrize("by", ["tensor", "column"])
def test_product_with_weights(by: str, bias: str):
    n = (5,) if by == "column" else ()
    constants = {"w": weights(8, 5), "t": positive(*n), "u": np.zeros(n, np.int8), "b": positive(5)}
    tail = ["Identity"] if "Identity" in bias else []
    check(
        f"{ACTIVATION} v = DequantizeLinear<axis = 1>(w, t, u) m = MatMul(d, v) {bias}",
        ["QuantizeLinear", "MatMulIntegerToFloat", *tail],
        **QUANTISED,
        **constants,
    )


def test_product_of_two_activations():
    body = f"{ACTIVATION} r = QuantizeLinear(k, s, z) e = DequantizeLinear(r, s, z) y = MatMul(d, e)"
    inputs = "float[n,2,3,8] x, float[n,2,8,4] k"
    check(body, ["QuantizeLinear", "QuantizeLinear", "MatMulIntegerToFloat"], inputs, **QUANTISED)


def test_weights_that_are_scaled_by_rows_stay_real():
    constants = {"w": weights(8, 5), "t": positive(8)}
    body = f"{ACTIVATION} v = DequantizeLinear<axis = 0>(w, t) y = MatMul(d, v)"
    check(body, ["QuantizeLinear", "DequantizeLinear", "MatMul"], **QUANTISED, **constants)


def test_weights_of_real_products_are_dequantised_once():
    check("v = DequantizeLinear(w, t) y = MatMul(x, v)", ["MatMul"], w=weights(8, 5), t=positive())
