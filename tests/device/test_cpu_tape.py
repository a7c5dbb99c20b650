"""The fused elementwise operator of the `cpu` provider, and the choice of what it fuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opweave.dtypes import DType
from opweave.graph import Constant, Graph, Node, Value
from opweave.types import TensorType
from opweave_cpu import _core, tape
from opweave_cpu.fuse import fuse

Array = np.ndarray[Any, Any]
SHAPE = (3, 4, 700)


def value(name: str, shape: tuple[Any, ...] = SHAPE, dtype: DType = DType.FLOAT32) -> Value:
    return Value(name, TensorType(dtype, shape))


def number(name: str, x: float) -> Value:
    return Value(name, TensorType(DType.FLOAT32, ()), Constant(np.float32(x).reshape(())))


class Chain:
    """Builds graphs of elementwise nodes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __call__(self, op: str, *inputs: Value | None, dtype: DType = DType.FLOAT32, **attributes: Any) -> Value:
        shapes = [
            v.tensor.shape for v in inputs if v is not None and v.tensor is not None and v.tensor.shape is not None
        ]
        shape = np.broadcast_shapes(*shapes)
        out = value(f"v{len(self.nodes)}", shape, dtype)
        self.nodes.append(Node(f"n{len(self.nodes)}", op, inputs, (out,), attributes))
        return out

    def graph(self, *outputs: Value) -> Graph:
        made = {v.name for n in self.nodes for v in n.writes()}
        read = {v.name: v for n in self.nodes for v in n.reads() if v.name not in made and v.constant is None}
        return Graph("g", tuple(read.values()), outputs, tuple(self.nodes))


def evaluate(core: Any, graph: Graph, feeds: dict[str, Array], threads: int = 1) -> dict[str, Array]:
    values = {**feeds, **{name: v.constant.array for name, v in graph.constants.items() if v.constant}}
    for node in graph.nodes:
        out = node.outputs[0]
        assert out is not None
        assert out.tensor is not None
        inputs = [None if v is None else values[v.name] for v in node.inputs]
        (values[out.name],) = core.run(
            node.op_type, inputs, node.attributes, [out.tensor.dtype.numpy], node.domain, threads
        )
    return values


def check(core: Any, graph: Graph, tapes: int) -> Graph:
    """Fused and plain give the same numbers, up to the rounding that a fused multiply-add saves."""
    fused = fuse(graph, [("opweave", "Tape")]).graph
    assert sum(n.op_type == "Tape" for n in fused.nodes) == tapes
    rng = np.random.default_rng(1)
    feeds = {
        v.name: np.asarray(rng.uniform(0.2, 0.9, v.tensor.static_shape)).astype(v.tensor.dtype.numpy)
        for v in graph.inputs
        if v.tensor
    }
    want = evaluate(core, graph, feeds)
    for threads in (1, 2):
        got = evaluate(core, fused, feeds, threads)
        for v in graph.outputs:
            assert got[v.name].shape == want[v.name].shape
            np.testing.assert_allclose(got[v.name], want[v.name], 1e-6, 1e-6)
    return fused


def test_chain_with_broadcast_inputs(core: Any) -> None:
    c, x = Chain(), value("x")
    y = c("Mul", x, value("scale", (4, 1)))
    y = c("Add", y, value("bias", (700,)))
    y = c("Mul", c("Sigmoid", y), y)
    y = c("LeakyRelu", c("Sub", y, number("k", 0.5)), alpha=0.3)
    assert len(check(core, c.graph(y), 1).nodes) == 1


def test_products_become_fused_multiply_adds(core: Any) -> None:
    a, b, d = value("a"), value("b", (700,)), value("d", (4, 1))
    for op, swap in [("Add", False), ("Add", True), ("Sub", False), ("Sub", True)]:
        c = Chain()
        product = c("Mul", a, b)
        check(core, c.graph(c(op, d, product) if swap else c(op, product, d)), 1)


def test_diamond_and_repeated_operands(core: Any) -> None:
    c, x = Chain(), value("x")
    e = c("Exp", x)
    left, right = c("Mul", e, e), c("Add", c("Sqrt", e), e)
    y = c("Div", c("Max", left, right), c("Add", e, e))
    assert len(check(core, c.graph(y), 1).nodes) == 1


def test_comparisons_selects_and_casts(core: Any) -> None:
    c, x = Chain(), value("x")
    low = c("Less", x, number("t", 0.5), dtype=DType.BOOL)
    high = c("Greater", x, number("u", 0.7), dtype=DType.BOOL)
    either = c("Or", low, c("Not", high, dtype=DType.BOOL), dtype=DType.BOOL)
    y = c("Where", either, c("Neg", x), c("Cast", high, to=1))
    y = c("Clip", y, number("least", -0.4), None)
    assert len(check(core, c.graph(y), 1).nodes) == 1
    c = Chain()
    check(core, c.graph(c("Not", c("IsNaN", c("Log", x), dtype=DType.BOOL), dtype=DType.BOOL)), 1)


def test_results_seen_outside_stay_results(core: Any) -> None:
    c, x = Chain(), value("x")
    a = c("Exp", x)
    b = c("Neg", a)
    d = c("Abs", b)
    fused = check(core, c.graph(d, a), 1)
    assert [n.op_type for n in fused.nodes] == ["Exp", "Tape"]


def test_a_small_operand_is_not_computed_at_full_size(core: Any) -> None:
    c, x = Chain(), value("x")
    gate = c("Sigmoid", c("Neg", value("g", (4, 1))))
    y = c("Relu", c("Mul", x, gate))
    fused = check(core, c.graph(y), 2)
    assert [len(n.attributes["ops"]) for n in fused.nodes] == [2, 2]


def test_a_group_never_spans_another_node() -> None:
    c, x = Chain(), value("x", (5, 5))
    a = c("Exp", x)
    b = c("MatMul", a, a)
    y = c("Add", c("Neg", a), c("Relu", b))
    graph = c.graph(y)
    groups = tape.group_elementwise(graph)
    assert [[n.op_type for n in g] for g in groups] == [["Neg", "Relu", "Add"]]


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 1, 5), (1023,), (1025,), (100_001,)])
def test_sizes(core: Any, shape: tuple[int, ...]) -> None:
    c, x = Chain(), value("x", shape)
    check(core, c.graph(c("Add", c("Tanh", c("Mul", x, number("two", 2))), x)), 1)


SINGLE = [(op, form) for form, names in tape._FORMS.items() for op in names.split()]


@pytest.mark.parametrize(("op", "form"), SINGLE)
def test_every_accepted_operator(core: Any, op: str, form: str) -> None:
    types = {"F": DType.FLOAT32, "B": DType.BOOL}
    c = Chain()
    inputs = [value(f"x{i}", (3, 50), types[letter]) for i, letter in enumerate(form[:-1])]
    first = c("Neg", inputs[0]) if form[0] == "F" else c("Not", inputs[0], dtype=DType.BOOL)
    if form[0] == "F":
        first = c("Abs", first)
    y = c(op, first, *inputs[1:], dtype=types[form[-1]])
    check_all_equal(core, c.graph(y))


def check_all_equal(core: Any, graph: Graph) -> None:
    with np.errstate(all="ignore"):
        check(core, graph, 1)


def test_long_chain_in_many_registers(core: Any) -> None:
    c, x = Chain(), value("x", (2, 999))
    results = [c("Mul", x, number(f"c{i}", 0.1 * i + 0.5)) for i in range(8)]
    while len(results) > 1:
        results = [c("Min", *results[:2]), *results[2:]] if len(results) % 2 else [*results[2:], c("Add", *results[:2])]
    assert len(check(core, c.graph(results[0]), 1).nodes) == 1


def test_the_widest_group_fits(core: Any) -> None:
    """Every result waits for a sum at the end: as many live values as a group can have."""
    c, inputs = Chain(), [value(f"x{i}", (1500,)) for i in range(tape.MOST_INPUTS - 2)]
    results = [c("Abs", inputs[i % len(inputs)]) for i in range(tape.MOST_STEPS // 2)]
    y = results[0]
    for r in results[1:]:
        y = c("Add", y, r)
    assert len(check(core, c.graph(y), 1).nodes) == 1


def test_what_no_tape_holds() -> None:
    c = Chain()
    c("Add", value("x", SHAPE, DType.INT32), value("y", SHAPE, DType.INT32), dtype=DType.INT32)
    c("Clip", value("x"), value("low", (1,)))
    c("Sum", value("x"), value("y"), value("z"))
    c("Softmax", value("x"), axis=1)
    c("Cast", value("x"), to=7, dtype=DType.INT64)
    assert not any(map(tape.fusible, c.nodes))


@pytest.mark.parametrize(
    ("attrs", "error"),
    [
        ({"ops": ["Neg"], "program": [0, -1]}, _core.BadOperand),
        ({"ops": [], "program": []}, _core.BadOperand),
        ({"ops": ["Neg"], "program": [1, -1, -1]}, _core.BadOperand),
        ({"ops": ["Neg"], "program": [-2, -1, -1]}, _core.BadOperand),
        ({"ops": ["Neg"], "program": [-1, -1, -1]}, _core.Unsupported),
        ({"ops": ["Softmax"], "program": [0, -1, -1]}, _core.Unsupported),
    ],
)
def test_bad_programs_are_refused(core: Any, attrs: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        core.run("Tape", [np.ones(3, np.float32)], attrs, domain="opweave")
