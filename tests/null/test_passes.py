"""Optimise passes: what each makes of its pattern, where it must keep its hands off, and that results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnx_models
import onnxruntime
import pytest
from onnx import numpy_helper
from opweave.dtypes import DType
from opweave.errors import UsageError
from opweave.graph import Graph
from opweave.passes import PASSES, optimise, refine
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave.types import TensorType

RNG = np.random.default_rng(0)
NAMES = [name for name, _ in PASSES]


def model(
    body: str, inputs: str = "float[n,4] x", outputs: str = "float[n,4] y", opset: int = 22, **weights: Any
) -> Any:
    """A model from ONNX's text form; `weights` are initializers."""
    text = (
        f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>\ng ({inputs}) => ({outputs}) {{ {body} }}'
    )
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return proto


def f32(*values: Any) -> Any:
    return np.array(values, np.float32)


def random(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def ops(graph: Graph) -> list[str]:
    return [n.op_type for n in graph.walk()]


def feeds_of(graph: Graph, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Random operands for the graph's inputs; symbols stand for 3."""
    made = {}
    for value in graph.inputs:
        assert value.tensor is not None
        shape = [d if isinstance(d, int) else (sizes or {}).get(str(d), 3) for d in value.tensor.shape or ()]
        array = RNG.normal(size=shape) * 2
        made[value.name] = array.astype(value.tensor.dtype.numpy)
    return made


def check(proto: Any, expected: list[str] | None = None, without: Any = (), **sizes: int) -> Graph:
    """The optimised graph, which has these operators and the results of the graph as it was read."""
    plain, graph = read_graph(proto, optimise=False), read_graph(proto, without=without)
    if expected is not None:
        assert ops(graph) == expected
    feeds = feeds_of(plain, sizes)
    before, after = evaluate_graph(plain, feeds), evaluate_graph(graph, feeds)
    assert list(before) == list(after)
    for name, array in before.items():
        assert array.dtype == after[name].dtype
        np.testing.assert_allclose(after[name], array, rtol=1e-4, atol=1e-5)
    return graph


def test_dead_code_goes():
    check(model("a = Exp(x) b = Log(a) y = Relu(x)"), ["Relu"])


def test_identities_go_and_outputs_keep_their_names():
    check(model("a = Identity(x) b = Dropout(a) c = Cast<to = 1>(b) d = Concat<axis = 0>(c) y = Relu(d)"), ["Relu"])
    assert check(model("y = Identity(x)"), ["Identity"]).outputs[0].name == "y"
    check(model("a = Relu(x) y = Identity(a) z = Identity(a)", outputs="float[n,4] y, float[n,4] z"))


def test_neutral_operands():
    check(model("a = Mul(x, k) b = Div(a, k) c = Sub(b, z) y = Relu(c)", k=f32(1), z=f32(0)), ["Relu"])
    wider = model("a = Mul(x, k) y = Relu(a)", outputs="float[1,n,4] y", k=np.ones((1, 1, 1), np.float32))
    check(wider, ["Mul", "Relu"])
    check(model("a = Mul(k, x) y = Relu(a)", k=f32(2)), ["Mul", "Relu"])


def test_dropout_that_trains_stays():
    graph = read_graph(model("y = Dropout(x, r, t)", r=np.float32(0.5), t=np.array(True)))
    assert ops(graph) == ["Dropout"]


def test_a_mask_that_is_read_keeps_dropout():
    check(model("y, m = Dropout(x)", outputs="float[n,4] y, bool[n,4] m"), ["Dropout"])


def test_constants_are_computed():
    graph = check(
        model("a = Cast<to = 1>(w) b = Mul(a, s) y = Add(x, b)", w=np.int8([1, 2, 3, 4]), s=f32(0.5)), ["Add"]
    )
    np.testing.assert_array_equal(graph.nodes[0].inputs[1].constant.array, f32(0.5, 1, 1.5, 2))


def test_weights_larger_than_small_are_computed_and_do_not_grow():
    w = RNG.integers(-9, 9, (1024, 1200)).astype(np.int8)
    check(model("a = Cast<to = 1>(w) y = Gather(a, i)", "int64[n] i", "float[n,1200] y", w=w), ["Gather"])
    column = np.ones((2000, 1), np.float32)
    check(model("t = Transpose(c) a = Add(c, t) s = ReduceSum(a) y = Add(x, s)", c=column), ["Add", "ReduceSum", "Add"])


def test_declared_sizes_of_inputs_are_not_believed():
    graph = read_graph(model("s = Shape(x) y = ConstantOfShape(s)", "float[2,4] x", "float[a,b] y"))
    assert evaluate_graph(graph, {"x": np.zeros((5, 4), np.float32)})["y"].shape == (5, 4)


def test_dequantised_weights_stay_with_their_operator():
    proto = model("w = DequantizeLinear(q, s) y = MatMul(x, w)", q=np.int8(np.eye(4)), s=np.float32(0.5))
    check(proto, ["DequantizeLinear", "MatMul"])


def test_common_nodes_become_one():
    check(model("a = Exp(x) b = Exp(x) c = Mul(a, b) y = Add(c, a)"), ["Exp", "Mul", "Add"])
    check(model("a = Add(x, p) b = Add(x, q) y = Mul(a, b)", p=f32(2), q=f32(2)), ["Add", "Mul"])
    graph = read_graph(model("a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, b)"))
    assert ops(graph) == ["RandomUniformLike", "RandomUniformLike", "Sub"]


def test_chains():
    check(model("a = Transpose<perm = [1, 0]>(x) y = Transpose<perm = [1, 0]>(a)"), ["Identity"])
    three = model(
        "a = Transpose<perm = [1, 2, 0]>(x) y = Transpose<perm = [2, 1, 0]>(a)", "float[2,3,4] x", "float[a,b,c] y"
    )
    check(three, ["Transpose"])
    shapes = {"s": np.array([2, -1]), "t": np.array([-1, 4])}
    check(model("a = Reshape(x, s) b = Flatten(a) y = Reshape(b, t)", **shapes), ["Reshape"], n=4)
    keeps = model(
        "a = Reshape(x, s) y = Reshape(a, t)", outputs="float[a,b] y", s=np.array([2, -1]), t=np.array([0, -1])
    )
    check(keeps, ["Reshape", "Reshape"], n=4)
    check(model("a = Cast<to = 11>(x) b = Exp(a) c = Cast<to = 11>(b) y = Cast<to = 1>(c)"), ["Cast", "Exp", "Cast"])
    check(model("a = Cast<to = 7>(x) y = Cast<to = 1>(a)"), ["Cast", "Cast"])
    wide = model("a = Cast<to = 11>(x) y = Cast<to = 1>(a)")
    check(wide, ["Identity"])


BN = {k: np.abs(random(3)) + 0.5 for k in ("s", "b", "m", "v")}
IMAGE = {"inputs": "float[n,2,5,5] x", "outputs": "float[n,3,h,w] y"}


def test_batch_normalization_folds_into_layers():
    tail = "y = BatchNormalization(a, s, b, m, v)"
    check(model(f"a = Conv(x, w) {tail}", **IMAGE, w=random(3, 2, 3, 3), **BN), ["Conv"])
    check(model(f"a = Conv(x, w, c) {tail}", **IMAGE, w=random(3, 2, 1, 1), c=random(3), **BN), ["Conv"])
    six = {k: np.abs(random(6)) + 0.5 for k in BN}
    grouped = model(
        f"a = Conv<group = 2>(x, w) {tail}", IMAGE["inputs"], "float[n,6,h,w] y", w=random(6, 1, 3, 3), **six
    )
    check(grouped, ["Conv"])
    proto = model("a = ConvTranspose(x, w) y = BatchNormalization(a, s, b, m, v)", **IMAGE, w=random(2, 3, 2, 2), **BN)
    check(proto, ["ConvTranspose"])
    for trans, shape in ((0, (4, 3)), (1, (3, 4))):
        body = f"a = Gemm<transB = {trans}>(x, w) y = BatchNormalization(a, s, b, m, v)"
        check(model(body, outputs="float[n,3] y", w=random(*shape), **BN), ["Gemm"])


def test_batch_normalization_folds_into_grouped_transposed_convolution():
    weights = {k: np.abs(random(4)) + 0.5 for k in BN}
    body = "a = ConvTranspose<group = 2>(x, w) y = BatchNormalization(a, s, b, m, v)"
    proto = model(body, IMAGE["inputs"], "float[n,4,h,w] y", w=random(2, 2, 2, 2), **weights)
    graph, x = read_graph(proto), random(1, 2, 5, 5)
    assert ops(graph) == ["ConvTranspose"]
    results = [
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for m in (proto, graph.to_onnx())
    ]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_scales_and_shifts_fold_into_layers():
    w, column = random(3, 2, 3, 3), random(3, 1, 1)
    for tail in ("Mul(a, c)", "Add(c, a)", "Sub(a, c)", "Div(a, c)"):
        check(model(f"a = Conv(x, w) y = {tail}", **IMAGE, w=w, c=column), ["Conv"])
    check(model("a = Conv(x, w) b = Mul(a, c) y = Add(b, d)", **IMAGE, w=w, c=f32(2), d=random(1, 3, 1, 1)), ["Conv"])


@pytest.mark.parametrize(
    "case",
    [
        ("a = Conv(x, w) y = Sub(c, a)", {"c": random(3, 1, 1)}),
        ("a = Conv(x, w) y = Mul(a, c)", {"c": random(1, 1, 3)}),  # along the width
        ("a = Conv(x, w) y = Mul(a, c)", {"c": random(2, 3, 1, 1)}),  # a batch of its own
        ("a = Conv(x, w) b = Mul(a, c) y = Add(a, b)", {"c": random(3, 1, 1)}),  # read twice
    ],
)
def test_what_does_not_fold(case: tuple[str, dict[str, Any]]):
    body, weights = case
    assert "Conv" in ops(check(model(body, **IMAGE, w=random(3, 2, 3, 3), **weights), n=2))
    assert len(ops(read_graph(model(body, **IMAGE, w=random(3, 2, 3, 3), **weights)))) > 1


def test_a_shift_that_widens_the_result_does_not_fold():
    one = model("a = Conv(x, w) y = Add(a, c)", **IMAGE, w=random(1, 2, 3, 3), c=random(3, 1, 1))
    check(one, ["Conv", "Add"])


def test_gelu():
    half, one, root = {"h": f32(0.5)}, {"o": f32(1)}, {"r": f32(2**0.5)}
    body = "a = Div(x, r) b = Erf(a) c = Add(b, o) d = Mul(x, c) y = Mul(d, h)"
    graph = check(model(body, **half, **one, **root), ["Gelu"])
    assert graph.nodes[0].attributes["approximate"] == "none"
    other = "a = Mul(x, r) b = Erf(a) c = Add(o, b) d = Mul(h, c) y = Mul(x, d)"
    check(model(other, r=f32(0.5**0.5), **half, **one), ["Gelu"])
    check(model("e = Mul(x, h) a = Div(x, r) b = Erf(a) c = Add(b, o) y = Mul(e, c)", **half, **one, **root), ["Gelu"])
    wrong = model(body, h=f32(0.5), o=f32(1), r=f32(1.5))
    assert "Gelu" not in ops(check(wrong))


def test_tanh_gelu():
    tail = "d = Mul(c, k) e = Tanh(d) f = Add(e, o) g = Mul(x, f) y = Mul(g, h)"
    numbers = {"t": f32(3), "q": f32(0.044715), "k": f32((2 / np.pi) ** 0.5), "o": f32(1), "h": f32(0.5)}
    graph = check(model(f"a = Pow(x, t) b = Mul(a, q) c = Add(x, b) {tail}", **numbers), ["Gelu"])
    assert graph.nodes[0].attributes["approximate"] == "tanh"
    check(model(f"u = Mul(x, x) a = Mul(u, x) b = Mul(q, a) c = Add(b, x) {tail}", **numbers), ["Gelu"])


def test_swish_and_hard_swish():
    check(model("a = Sigmoid(x) y = Mul(x, a)"), ["Swish"])
    check(model("a = Sigmoid(x) y = Mul(a, x)"), ["Swish"])
    graph = check(model("b = Mul(x, k) a = Sigmoid(b) y = Mul(x, a)", k=f32(1.702)), ["Swish"])
    assert graph.nodes[0].attributes["alpha"] == pytest.approx(1.702)
    check(model("b = Mul(x, k) a = Sigmoid(b) y = Mul(x, a)", k=f32(1)), ["Swish"])
    check(model("b = Neg(x) a = Sigmoid(b) y = Mul(x, a)"), ["Neg", "Sigmoid", "Mul"])
    check(model("a = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, a)"), ["HardSwish"])
    check(model("a = HardSigmoid(x) y = Mul(x, a)"), ["HardSigmoid", "Mul"])
    numbers = {"t": f32(3)[0], "l": f32(0)[0], "u": f32(6)[0], "s": f32(1 / 6)[0]}
    for tail in ("c = Mul(x, b) y = Div(c, u)", "c = Div(b, u) y = Mul(x, c)", "c = Mul(x, b) y = Mul(c, s)"):
        check(model(f"a = Add(x, t) b = Clip(a, l, u) {tail}", **numbers), ["HardSwish"])
    check(model("a = Add(x, t) b = Clip(a, l, l) c = Mul(x, b) y = Div(c, u)", **numbers))


NORMAL = "m = ReduceMean(x, k) d = Sub(x, m) q = Pow(d, t) v = ReduceMean(q, k) e = Add(v, i) r = Sqrt(e)"
NUMBERS = {"k": np.array([-1]), "t": f32(2), "i": f32(1e-3), "s": random(4), "b": random(4)}


def test_layer_normalization():
    graph = check(model(f"{NORMAL} n = Div(d, r) p = Mul(n, s) y = Add(p, b)", **NUMBERS), ["LayerNormalization"])
    assert graph.nodes[0].attributes["epsilon"] == pytest.approx(1e-3)
    twice = NORMAL.replace("Pow(d, t)", "Mul(d, d)")
    check(
        model(f"{twice} o = Reciprocal(r) n = Mul(d, o) p = Mul(s, n) y = Add(b, p)", **NUMBERS), ["LayerNormalization"]
    )
    last = {**NUMBERS, "k": np.array([1])}
    check(model(f"{NORMAL} n = Div(d, r) p = Mul(n, s) y = Add(p, b)", **last), ["LayerNormalization"])
    first = {**NUMBERS, "k": np.array([0])}
    assert "LayerNormalization" not in ops(check(model(f"{NORMAL} n = Div(d, r) p = Mul(n, s) y = Add(p, b)", **first)))


def test_rms_normalization():
    body = "q = Mul(x, x) v = ReduceMean(q, k) e = Add(v, i) r = Sqrt(e) n = Div(x, r) y = Mul(n, s)"
    check(model(body, **NUMBERS), ["RMSNormalization"])
    one = {**NUMBERS, "s": random(1)}  # spread over the row
    assert "RMSNormalization" not in ops(check(model(body, **one)))


def test_gemm():
    check(model("a = MatMul(x, w) y = Add(b, a)", outputs="float[n,3] y", w=random(4, 3), b=random(3)), ["Gemm"])
    deep = model("a = MatMul(x, w) y = Add(a, b)", "float[n,2,4] x", "float[n,2,3] y", w=random(4, 3), b=random(3))
    check(deep, ["MatMul", "Add"])
    wide = model("a = MatMul(x, w) y = Add(a, b)", outputs="float[n,3] y", w=random(4, 1), b=random(3))
    check(wide, ["MatMul", "Add"])


def test_the_old_softmax_over_the_last_axis():
    proto = model("a = Relu(x) y = Softmax(a)", opset=9)
    check(proto, ["Relu", "Softmax"])
    check(
        model("y = Softmax(x)", "float[n,2,4] x", "float[n,2,4] y", opset=9), ["Flatten", "Softmax", "Shape", "Reshape"]
    )


HEADS = "float[n,2,s,4] q, float[n,2,t,4] k, float[n,2,t,5] v"
ATTENTION = "c = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, c)"


def attention(body: str, inputs: str = HEADS, **weights: Any) -> Any:
    return model(body, inputs, "float[n,2,s,5] y", **weights)


SIZES = {"n": 2, "s": 3, "t": 5}


def check_refined(proto: Any, expected: list[str]) -> Graph:
    """The graph specialised and refined: its operators, and results as they were."""
    plain = read_graph(proto, optimise=False)
    feeds = feeds_of(plain, SIZES)
    types = {name: TensorType(DType.of(array.dtype), array.shape) for name, array in feeds.items()}
    graph = refine(specialise(read_graph(proto), types))
    assert ops(graph) == expected
    assert all(v.tensor is not None and v.tensor.is_static for n in graph.nodes for v in n.writes())
    before, after = evaluate_graph(plain, feeds), evaluate_graph(graph, feeds)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-4, atol=1e-5)
    return graph


def test_attention():
    tail = "p = Softmax(b) y = MatMul(p, v)"
    graph = check_refined(attention(f"{ATTENTION} b = Div(a, f) {tail}", f=f32(2)), ["Attention"])
    assert graph.nodes[0].attributes["scale"] == 0.5
    masked = f"{ATTENTION} g = Mul(a, f) b = Add(g, m) {tail}"
    check_refined(attention(masked, f"{HEADS}, float[n,1,s,t] m", f=f32(0.3)), ["Attention"])
    check_refined(attention(masked, f"{HEADS}, float[n,1,1,t] m", f=f32(0.3)), ["Attention"])
    both = "u = Mul(q, f) c = Transpose<perm = [0, 1, 3, 2]>(k) w = Mul(c, f) b = MatMul(u, w)"
    check_refined(attention(f"{both} {tail}", f=f32(0.7)), ["Attention"])
    rows = "c = Transpose<perm = [0, 2, 3, 1]>(k) b = MatMul(q, c)"
    inputs = HEADS.replace("float[n,2,t,4] k", "float[n,t,2,4] k")
    check_refined(attention(f"{rows} {tail}", inputs), ["Transpose", "Attention"])


def test_attention_of_unknown_sizes_stays():
    assert "Attention" not in ops(read_graph(attention(f"{ATTENTION} p = Softmax(a) y = MatMul(p, v)")))


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (f"{ATTENTION} p = Softmax<axis = 2>(a) y = MatMul(p, v)", HEADS),
        (f"{ATTENTION} b = Add(a, m) p = Softmax(b) y = MatMul(p, v)", f"{HEADS}, float[n,2,s,1] m"),
        (f"{ATTENTION} p = Softmax(a) y = MatMul(p, v)", HEADS.replace("float[n,2,s,4]", "float[1,2,s,4]")),
        ("a = MatMul(q, k) p = Softmax(a) y = MatMul(p, v)", HEADS.replace("float[n,2,t,4]", "float[n,2,4,t]")),
    ],
    ids=["axis", "mask", "batch", "no transpose"],
)
def test_what_is_not_attention(body: str, inputs: str):
    proto = attention(body, inputs)
    check_refined(proto, ops(read_graph(proto)))


def test_scores_that_are_read_keep_their_softmax():
    proto = attention(f"{ATTENTION} p = Softmax(a) y = MatMul(p, v)")
    proto.graph.output.append(onnx_models.info("p", ("n", 2, "s", "t")))
    check_refined(proto, ["Transpose", "MatMul", "Softmax", "MatMul"])


def test_bodies_are_optimised():
    graph = read_graph(onnx_models.branches())
    assert "Identity" not in ops(graph)
    x = random(3, 4)
    expected = evaluate_graph(read_graph(onnx_models.branches(), optimise=False), {"x": x})["y"]
    np.testing.assert_allclose(evaluate_graph(graph, {"x": x})["y"], expected)


@pytest.mark.parametrize("name", ["types", *NAMES])
@pytest.mark.parametrize("source", list(onnx_models.EVERY))
def test_results_stay_without_each_pass(source: str, name: str):
    check(onnx_models.EVERY[source](), without=[name]) if source != "containers" else read_graph(
        onnx_models.EVERY[source](), without=[name]
    )


def test_no_pass_at_all_and_unknown_ones():
    proto = onnx_models.convolution()
    assert ops(read_graph(proto, without=["types", *NAMES])) == ops(read_graph(proto, optimise=False))
    with pytest.raises(UsageError, match="found nonsense"):
        read_graph(proto, without=["nonsense"])


LAST, FIRST = "Transpose<perm = [0, 2, 3, 1]>", "Transpose<perm = [0, 3, 1, 2]>"
SUNK = {
    "between convolutions": (
        f"a = Conv(x, w) b = {LAST}(a) c = Mul(b, k) d = Add(c, l) e = Relu(d) f = {FIRST}(e) y = Conv(f, u)",
        ["Conv", "Relu", "Conv"],
    ),
    "residual": (
        f"a = Conv(x, w) b = {LAST}(a) c = Relu(b) d = {FIRST}(c) e = Conv(d, u) f = {LAST}(e) "
        f"g = Add(f, c) h = {FIRST}(g) y = Conv(h, u)",
        ["Conv", "Relu", "Conv", "Add", "Conv"],
    ),
    "to the end": (f"a = Conv(x, w) b = {LAST}(a) y = Clip(b, m)", ["Conv", "Clip", "Transpose"]),
    "reduction": (f"a = Conv(x, w) b = {LAST}(a) y = ReduceMean<keepdims = 0>(b, axes)", ["Conv", "ReduceMean"]),
    "reduction that keeps": (
        f"a = Conv(x, w) b = {LAST}(a) c = ReduceMax(b, axes) d = Mul(b, c) y = {FIRST}(d)",
        ["Conv", "ReduceMax", "Mul", "Identity"],
    ),
    "reduction over channels": (
        f"a = Conv(x, w) b = {LAST}(a) y = ReduceSum<keepdims = 0>(b, last)",
        ["Conv", "ReduceSum"],
    ),
    "turned reduction": (
        "a = Conv(x, w) b = Transpose<perm = [3, 1, 2, 0]>(a) y = ReduceSum<keepdims = 0>(b, last)",
        ["Conv", "ReduceSum", "Transpose"],
    ),
    "pad": (f"a = Conv(x, w) b = {LAST}(a) c = Pad(b, pads) y = {FIRST}(c)", ["Conv", "Pad", "Identity"]),
    "concat": (
        f"a = Conv(x, w) b = Conv(a, u) c = {LAST}(a) d = {LAST}(b) e = Concat<axis = -1>(c, d) y = {FIRST}(e)",
        ["Conv", "Conv", "Concat", "Identity"],
    ),
    "another operand": (f"a = Conv(x, w) b = {LAST}(a) y = Add(b, x)", ["Conv", "Transpose", "Add"]),
    "another reader": (
        f"a = Conv(x, w) b = {LAST}(a) c = Relu(b) d = Softmax(b) y = Add(c, d)",
        ["Conv", "Transpose", "Relu", "Softmax", "Add"],
    ),
    "not behind a map": (f"a = Relu(x) b = {LAST}(a) y = Exp(b)", ["Relu", "Transpose", "Exp"]),
}


@pytest.mark.parametrize("name", SUNK)
def test_transposes_sink(name: str):
    constants = {
        "w": random(4, 4, 1, 1),
        "u": random(4, 4, 1, 1),
        "k": random(4),
        "l": random(1, 1, 4),
        "m": np.float32(-0.1),
        "axes": np.int64([1, 2]),
        "last": np.int64([-1]),
        "pads": np.int64([0, 1, 2, 0, 0, 0, 3, 0]),
    }
    body, wanted = SUNK[name]
    used = {k: v for k, v in constants.items() if f" {k})" in body}
    check(model(body, "float[4,4,4,4] x", "y", **used), wanted)


def test_optimising_twice_changes_nothing():
    for make in onnx_models.EVERY.values():
        once = read_graph(make())
        assert [str(n) for n in optimise(once).walk()] == [str(n) for n in once.walk()]


def test_weights_that_are_one_number_become_constants():
    filled = "w = ConstantOfShape<value = float[1] {0.5}>(s) y = MatMul(x, w)"
    graph = check(
        model(filled, inputs="float[n,512] x", outputs="float[n,1024] y", s=np.array([512, 1024])), ["MatMul"]
    )
    assert graph.nodes[0].inputs[1].constant.nbytes == 4 * 512 * 1024
    open_shape = model("y = ConstantOfShape(s)", inputs="int64[2] s", outputs="float[a,b] y")
    assert ops(read_graph(open_shape)) == ["ConstantOfShape"]
