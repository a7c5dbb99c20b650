"""Sessions over a simulated accelerator and the `cpu`: transfers, over-claims, faults, control flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx.parser
import opweave
import pytest
from opweave.errors import ExecutionError
from opweave.plans import Control, ReasonCode, Transfer
from opweave.testing import Behaviour, SimProvider, registered

CHAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) {
    a = Exp(x)
    b = Tanh(a)
    c = Neg(b)
    y = Softmax(c)
    z = Add(b, x)
}"""
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
FREE = {"seconds": 0.0, "launch": 0.0, "link_latency": 0.0, "link_bandwidth": 1e18}


@contextmanager
def over(text: str, pins: dict[str, str] | None = None, **behaviour: object) -> Iterator[opweave.Session]:
    """A session over `sim:0`, which costs nothing, and `cpu`."""
    with registered(SimProvider(Behaviour(**(FREE | behaviour)))):  # type: ignore[arg-type]
        yield opweave.load(onnx.parser.parse_model(text), devices=["sim:0"], pins=pins)


def alone(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    return list(opweave.load(onnx.parser.parse_model(text), devices="cpu").run(inputs).values())


def check(session: opweave.Session, text: str, *inputs: np.ndarray) -> None:
    for got, want in zip(session.run(inputs).values(), alone(text, *inputs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_part_of_a_graph_runs_elsewhere_and_copies_are_steps() -> None:
    pins = {"Tanh": "sim:0", "Add": "sim:0"}  # left to itself the planner saves the second launch on the cpu
    with over(CHAIN, pins, takes=["Tanh", "Add"]) as session:
        check(session, CHAIN, X)
        plan = session.plan
        devices = {
            plan.graph.producers[n].op_type: plan.placements[plan.graph.producers[n].name].device for n in "abcyz"
        }
        assert devices == {"Exp": "cpu", "Tanh": "sim:0", "Neg": "cpu", "Softmax": "cpu", "Add": "sim:0"}
        copied = [(t.value.name, t.target) for t in plan.steps if isinstance(t, Transfer)]
        assert len(copied) == len(set(copied))
        assert {"a", "b", "x", "z"} == {name for name, _ in copied}
        fallback = next(p for p in plan.fallbacks if plan.graph.producers["a"].name == p.node)
        assert fallback.reasons[0].code is ReasonCode.UNSUPPORTED
        assert "Exp" in fallback.reasons[0].text


def test_what_is_claimed_and_refused_is_demoted_with_the_reason() -> None:
    with over(CHAIN, refuses=["Tanh"]) as session:
        check(session, CHAIN, X)
        node = session.plan.graph.producers["b"]
        placement = session.plan.placements[node.name]
        assert placement.device == "cpu"
        assert placement.reasons[0].code is ReasonCode.REFUSED
        others = [p for p in session.plan.placements.values() if p.node != node.name]
        assert all(p.device == "sim:0" for p in others)


def test_a_provider_that_raises_is_left_out() -> None:
    with over(CHAIN, raises=["Tanh", "Exp"]) as session:
        check(session, CHAIN, X)
        codes = [p.reasons[0].code for p in session.plan.fallbacks]
        assert codes == [ReasonCode.BROKEN, ReasonCode.BROKEN]


def test_a_device_that_fails_at_run_is_named() -> None:
    with over(CHAIN, fails=["Tanh"]) as session, pytest.raises(ExecutionError, match="sim:0"):
        session.run([X])


def test_a_node_pinned_to_the_cpu_stays_there() -> None:
    with over(CHAIN, {"Tanh": "cpu"}) as session:
        check(session, CHAIN, X)
        assert session.plan.placements[session.plan.graph.producers["b"].name].device == "cpu"


@pytest.mark.parametrize("seed", range(6))
def test_any_share_of_the_nodes_gives_the_same(seed: int) -> None:
    with over(CHAIN, takes=0.5, seed=seed) as session:
        check(session, CHAIN, X)


BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (float[N] x, bool c) => (float[N] y) {
    d = Add(x, x)
    y = If(c) <
        then_branch = t () => (float[N] a) { e = Exp(d) a = Mul(e, x) },
        else_branch = f () => (float[N] b) { b = Neg(d) }
    >
}"""
LOOP = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, int64 n) => (float[2] y, float[K, 2] all) {
    go = Constant<value = bool {1}>()
    y, all = Loop(n, go, x) <
        body = b (int64 i, bool go_in, float[2] s) => (bool go_out, float[2] t, float[2] u) {
            go_out = Identity(go_in)
            t = Add(s, x)
            u = Exp(s)
        }
    >
}"""
SCAN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] s0, float[3, 2] x) => (float[2] s, float[3, 2] ys) {
    s, ys = Scan(s0, x) <num_scan_inputs = 1, scan_input_directions = [1],
        body = b (float[2] a, float[2] e) => (float[2] c, float[2] o) { c = Add(a, e) o = Exp(c) }
    >
}"""


def is_plain(node: object) -> bool:
    return not getattr(node, "bodies", None)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (BRANCHES, [np.array([1, 2, 3], np.float32), np.array(True)]),
        (BRANCHES, [np.array([1, 2, 3], np.float32), np.array(False)]),
        (LOOP, [np.array([1, 2], np.float32), np.array(3)]),
        (LOOP, [np.array([1, 2], np.float32), np.array(0)]),
        (SCAN, [np.zeros(2, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)]),
    ],
    ids=["then", "else", "three turns", "no turn", "scan"],
)
def test_bodies_are_planned_like_any_graph(text: str, inputs: list[np.ndarray]) -> None:
    with over(text, {"Exp": "sim:0"}, takes=is_plain) as session:
        check(session, text, *inputs)
        (step,) = (s for s in session.plan.steps if isinstance(s, Control))
        assert "sim:0" in {s.device for body in step.bodies.values() for s in body.stages}
        assert session.plan.placements[step.node.name].reasons[0].code is ReasonCode.CONTROL


def test_control_flow_that_gains_nothing_elsewhere_stays_whole() -> None:
    with over(LOOP, takes=is_plain) as session:
        check(session, LOOP, np.array([1, 2], np.float32), np.array(3))
        assert [s.device for s in session.plan.stages] == ["cpu"]
