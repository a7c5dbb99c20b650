"""The reference evaluator: control flow, containers, com.microsoft operators against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from opweave.dtypes import DType
from opweave.errors import ExecutionError
from opweave.graph import Constant, Graph, Node, Value
from opweave.protos import node_proto, value_type
from opweave.reference import evaluate, evaluate_graph, supports
from opweave.specialise import specialise
from opweave.types import TensorType

RNG = np.random.default_rng(0)
F32 = TensorType(DType.FLOAT32)


def node(op: str, inputs: int, outputs: int = 1, domain: str = "", omit: tuple[int, ...] = (), **attrs: Any) -> Node:
    ins = tuple(None if i in omit else Value(f"x{i}", F32) for i in range(inputs))
    return Node(op, op, ins, tuple(Value(f"y{i}") for i in range(outputs)), attrs, domain)


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def test_an_operator_of_onnx_reference() -> None:
    x = f32(2, 3)
    (y,) = evaluate(node("Relu", 1), [x])
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_an_operator_that_is_a_function_of_its_input_types() -> None:
    x = f32(4)
    (y,) = evaluate(node("Gelu", 1, approximate="tanh"), [x])
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_strings_come_back_as_objects() -> None:
    (y,) = evaluate(node("StringConcat", 2), [np.array(["a", "b"], object), np.array("é", object)])
    assert y.dtype == object
    assert y.tolist() == ["aé", "bé"]


def test_no_implementation_is_an_error_that_names_the_operator() -> None:
    unknown = node("Nothing", 1, domain="org.example")
    assert not supports(unknown)
    with pytest.raises(ExecutionError, match=r"org\.example\.Nothing"):
        evaluate(unknown, [f32(1)])


def test_a_failing_operator_names_node_and_shapes() -> None:
    with pytest.raises(ExecutionError, match=r"Add.*float32\[2\], float32\[3\]"):
        evaluate(node("Add", 2), [f32(2), f32(3)])


def doubling(steps: Value) -> Graph:
    """A loop that multiplies its state by a captured value; its scan output is the state of each step."""
    i, going, state, scale = (Value(n) for n in ("i", "going", "state", "scale"))
    doubled, item = Value("doubled", F32), Value("item", TensorType(DType.FLOAT32, (2,)))
    body = Graph(
        "body",
        (i, going, state),
        (going, doubled, item),
        (Node("mul", "Mul", (state, scale), (doubled,)), Node("copy", "Identity", (doubled,), (item,))),
    )
    start, end, items = Value("start"), Value("end"), Value("items")
    loop = Node("loop", "Loop", (steps, None, start), (end, items), {"body": body})
    return Graph("g", (start, scale), (end, items), (loop,))


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_loop_with_captures_and_scan_outputs(steps: int) -> None:
    graph = doubling(Value("steps", constant=Constant(np.array(steps, np.int64))))
    got = evaluate_graph(graph, {"start": np.ones(2, np.float32), "scale": np.float32(2)})
    np.testing.assert_array_equal(got["end"], np.full(2, 2.0**steps))
    assert got["items"].shape == (steps, 2)
    assert got["items"].dtype == np.float32


def test_scan_over_axes_and_directions() -> None:
    total, x, y, out = (Value(n, F32) for n in ("total", "x", "y", "out"))
    body = Graph("b", (total, x), (y, out), (Node("a", "Add", (total, x), (y,)), Node("c", "Identity", (y,), (out,))))
    scan = Node(
        "scan",
        "Scan",
        (Value("s"), Value("xs")),
        (Value("end"), Value("sums")),
        {
            "body": body,
            "num_scan_inputs": 1,
            "scan_input_axes": [-1],
            "scan_input_directions": [1],
            "scan_output_axes": [1],
            "scan_output_directions": [1],
        },
    )
    xs = np.arange(6, dtype=np.float32).reshape(2, 3)
    end, sums = evaluate(scan, [np.zeros(2, np.float32), xs])
    np.testing.assert_array_equal(end, xs.sum(axis=1))
    np.testing.assert_array_equal(sums, xs[:, ::-1].cumsum(axis=1)[:, ::-1])


def test_zip_map_gives_a_dictionary_a_row() -> None:
    (rows,) = evaluate(
        node("ZipMap", 1, domain="ai.onnx.ml", classlabels_strings=["a", "b"]),
        [np.array([[0.25, 0.75]], np.float32)],
    )
    assert rows == [{"a": 0.25, "b": 0.75}]
    assert type(rows[0]["a"]) is float


def u8(*shape: int) -> list[Any]:
    """A quantised tensor with its scale and zero point."""
    return [RNG.integers(0, 255, shape).astype(np.uint8), np.float32(0.05), np.uint8(120)]


def lstm(directions: int, hidden: int, features: int, **attrs: Any) -> tuple[Node, list[Any]]:
    n = node(
        "DynamicQuantizeLSTM", 12, 3, "com.microsoft", (4, 5, 6, 7), hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward", **attrs,
    )  # fmt: skip
    weights = [RNG.integers(-127, 127, (directions, k, 4 * hidden)).astype(np.int8) for k in (features, hidden)]
    scales, zeros = [np.full(directions, 0.01, np.float32)] * 2, [np.zeros(directions, np.int8)] * 2
    bias = f32(directions, 8 * hidden)
    x = f32(5, 1, features)
    return n, [x, weights[0], weights[1], bias, None, None, None, None, scales[0], zeros[0], scales[1], zeros[1]]


CONTRIB: Mapping[str, tuple[Node, list[Any]]] = {
    "Gelu": (node("Gelu", 1, domain="com.microsoft"), [f32(2, 3)]),
    "BiasGelu": (node("BiasGelu", 2, domain="com.microsoft"), [f32(2, 3), f32(3)]),
    "FastGelu": (node("FastGelu", 2, domain="com.microsoft"), [f32(2, 3), f32(3)]),
    "QuickGelu": (node("QuickGelu", 1, domain="com.microsoft", alpha=1.5), [f32(2, 3)]),
    "FusedMatMul": (
        node("FusedMatMul", 2, domain="com.microsoft", alpha=0.5, transA=1, transB=1),
        [f32(2, 4, 3), f32(2, 5, 4)],
    ),
    "FusedMatMul batch": (
        node("FusedMatMul", 2, domain="com.microsoft", transBatchA=1, transBatchB=1),
        [f32(3, 2, 4), f32(4, 2, 5)],
    ),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", 5, domain="com.microsoft", epsilon=1e-5),
        [f32(2, 3, 4), f32(2, 3, 4), f32(4), f32(4), f32(4)],
    ),
    "SkipSimplifiedLayerNormalization": (
        node("SkipSimplifiedLayerNormalization", 3, domain="com.microsoft", epsilon=1e-5),
        [f32(2, 3, 4), f32(2, 3, 4), f32(4)],
    ),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", 8, 2, "com.microsoft"),
        [
            np.array([[1, 2, 0]], np.int32), np.array([[0, 1, 1]], np.int32), f32(4, 8), f32(5, 8), f32(2, 8),
            f32(8), f32(8), np.array([[1, 1, 0]], np.int32),
        ],
    ),
    "MatMulIntegerToFloat": (
        node("MatMulIntegerToFloat", 7, domain="com.microsoft"),
        [
            RNG.integers(0, 255, (3, 4)).astype(np.uint8), RNG.integers(0, 255, (4, 2)).astype(np.uint8),
            np.float32(0.1), np.float32(0.02), np.uint8(7), np.uint8(9), f32(2),
        ],
    ),
    "DynamicQuantizeMatMul": (
        node("DynamicQuantizeMatMul", 4, domain="com.microsoft"),
        [f32(3, 4), RNG.integers(0, 255, (4, 2)).astype(np.uint8), np.float32(0.02), np.uint8(9)],
    ),
    "DynamicQuantizeLSTM": lstm(1, 3, 4),
    "DynamicQuantizeLSTM both ways": lstm(2, 3, 4),
    "Attention": (
        node("Attention", 4, domain="com.microsoft", num_heads=2),
        [f32(2, 3, 4), f32(4, 12), f32(12), np.array([3, 2], np.int32)],
    ),
    "Attention causal": (
        node("Attention", 3, domain="com.microsoft", num_heads=2, unidirectional=1), [f32(2, 3, 4), f32(4, 12), f32(12)],
    ),
    "MultiHeadAttention": (
        node("MultiHeadAttention", 4, domain="com.microsoft", num_heads=2),
        [f32(2, 3, 4), f32(2, 5, 4), f32(2, 5, 4), f32(12)],
    ),
    "QLinearAdd": (node("QLinearAdd", 8, domain="com.microsoft"), [*u8(2, 3), *u8(1, 3), np.float32(0.21), np.uint8(5)]),
    "QLinearMul": (node("QLinearMul", 8, domain="com.microsoft"), [*u8(2, 3), *u8(3), np.float32(0.5), np.uint8(5)]),
    "QLinearSigmoid": (node("QLinearSigmoid", 5, domain="com.microsoft"), [*u8(2, 3), np.float32(1 / 256), np.uint8(0)]),
    "QLinearLeakyRelu": (
        node("QLinearLeakyRelu", 5, domain="com.microsoft", alpha=0.1), [*u8(2, 3), np.float32(0.1), np.uint8(9)],
    ),
    "QLinearGlobalAveragePool": (
        node("QLinearGlobalAveragePool", 5, domain="com.microsoft"), [*u8(1, 3, 4, 4), np.float32(0.1), np.uint8(9)],
    ),
    "QLinearSoftmax": (
        node("QLinearSoftmax", 5, domain="com.microsoft", axis=-1, opset=13), [*u8(2, 3), np.float32(1 / 256), np.uint8(0)],
    ),
    "QLinearConcat": (
        node("QLinearConcat", 8, domain="com.microsoft", axis=1), [np.float32(0.2), np.uint8(3), *u8(2, 3), *u8(2, 2)],
    ),
    "QGemm": (
        node("QGemm", 9, domain="com.microsoft", transB=1),
        [*u8(2, 4), *u8(3, 4), np.arange(3, dtype=np.int32), np.float32(0.5), np.uint8(100)],
    ),
    "QuantizeLinear": (
        node("QuantizeLinear", 3, domain="com.microsoft"), [f32(2, 3), np.float32(0.01), np.uint16(30000)],
    ),
    "DequantizeLinear": (
        node("DequantizeLinear", 3, domain="com.microsoft", axis=1),
        [u8(2, 3)[0], np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.uint8)],
    ),
    "MatMulNBits": (
        node("MatMulNBits", 4, domain="com.microsoft", K=40, N=3, bits=4, block_size=32),
        [f32(2, 40), u8(3, 2, 16)[0], f32(3, 2), u8(3, 1)[0]],
    ),
    "FusedConv": (
        node("FusedConv", 4, domain="com.microsoft", activation="LeakyRelu", activation_params=[0.2], pads=[1, 1, 1, 1]),
        [f32(1, 2, 4, 4), f32(3, 2, 3, 3), f32(3), f32(1, 3, 4, 4)],
    ),
    "FusedGemm": (
        node("FusedGemm", 3, domain="com.microsoft", activation="LeakyRelu", activation_alpha=0.2, alpha=0.5, transB=1),
        [f32(2, 4), f32(3, 4), f32(3)],
    ),
    "RotaryEmbedding": (
        node("RotaryEmbedding", 4, domain="com.microsoft"),
        [f32(2, 3, 8), np.array([[0, 1, 2], [2, 3, 4]], np.int64), f32(6, 2), f32(6, 2)],
    ),
    "RotaryEmbedding interleaved": (
        node("RotaryEmbedding", 4, domain="com.microsoft", interleaved=1),
        [f32(2, 2, 3, 4), np.array([1], np.int64), f32(6, 2), f32(6, 2)],
    ),
    "NhwcMaxPool": (
        node("NhwcMaxPool", 1, domain="com.microsoft", kernel_shape=[2, 2], strides=[2, 2]), [u8(1, 4, 4, 3)[0]],
    ),
    "Trilu": (node("Trilu", 2, domain="com.microsoft", upper=0), [f32(2, 3, 4), np.int64(1)]),
    "Inverse": (node("Inverse", 1, domain="com.microsoft"), [f32(2, 3, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRIB)
def test_com_microsoft_operators_equal_onnx_runtime(name: str) -> None:
    import onnxruntime

    tested, inputs = CONTRIB[name]
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    expected = onnx_runtime(onnxruntime, tested, arrays)
    got = evaluate(tested, arrays)
    for want, have in zip(expected, got, strict=False):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CONTRIB)
def test_types_of_com_microsoft_operators_are_those_of_the_results(name: str) -> None:
    tested, inputs = CONTRIB[name]
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    graph = Graph("g", tuple(v for v in tested.inputs if v), tuple(tested.writes()), (tested,))
    types = {v.name: value_type(x) for v, x in zip(tested.inputs, arrays, strict=True) if v is not None}
    inferred = specialise(graph, types).outputs
    for value, result in zip(inferred, evaluate(tested, arrays), strict=False):
        assert value.type == value_type(result)


def onnx_runtime(onnxruntime: Any, tested: Node, arrays: list[Any]) -> list[Any]:
    feeds = {v.name: x for v, x in zip(tested.inputs, arrays, strict=True) if v is not None}
    inputs = [helper.make_tensor_value_info(k, int(DType.of(x.dtype)), x.shape) for k, x in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=v.name) for v in tested.writes()]
    model = helper.make_model(
        helper.make_graph([node_proto(tested)], "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_global_max_pool_of_any_rank(rank: int) -> None:
    x = f32(2, 3, *[4] * (rank - 2))
    (y,) = evaluate(node("GlobalMaxPool", 1), [x])
    np.testing.assert_array_equal(y, x.max(axis=tuple(range(2, rank)), keepdims=True))


@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [2, 3], "strides": [2, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 2], "dilations": [1, 2], "auto_pad": "VALID"},
        {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "storage_order": 1},
    ],
)
def test_max_pool_with_indices_equals_onnx_runtime(attrs: dict[str, Any]) -> None:
    import onnxruntime

    tested = node("MaxPool", 1, 2, **attrs)
    x = f32(2, 3, 5, 4)
    for want, have in zip(onnx_runtime(onnxruntime, tested, [x]), evaluate(tested, [x]), strict=True):
        np.testing.assert_array_equal(have, want)


def test_mean_broadcasts() -> None:
    (y,) = evaluate(node("Mean", 2), [f32(3, 1) * 0 + 1, f32(3) * 0 + 2])
    np.testing.assert_array_equal(y, np.full((3, 3), 1.5, np.float32))


def test_split_gives_every_part() -> None:
    parts = evaluate(node("Split", 1, 4, num_outputs=4), [np.arange(3)])
    assert [p.tolist() for p in parts] == [[0], [1], [2], []]
    with pytest.raises(ExecutionError, match="Split"):
        evaluate(node("Split", 2, 2), [np.arange(3), np.array([2, 2])])


def test_flatten_of_nothing() -> None:
    assert evaluate(node("Flatten", 1, axis=-1), [f32(2, 0, 3)])[0].shape == (0, 3)


def test_linear_classifier_with_spare_coefficients() -> None:
    attrs = {"coefficients": [1.0, 0.0, 0.0, 1.0, 5.0, 5.0], "intercepts": [0.0, 0.5], "classlabels_ints": [7, 9]}
    labels, scores = evaluate(
        node("LinearClassifier", 1, 2, "ai.onnx.ml", post_transform="NONE", **attrs),
        [np.array([[2, 1], [0, 3]], np.float32)],
    )
    assert labels.tolist() == [7, 9]
    np.testing.assert_array_equal(scores, np.array([[2, 1.5], [0, 3.5]], np.float32))
