"""The partitioner over null devices: who gets what, why, and that faults of providers stay theirs."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from opweave.dtypes import DType
from opweave.errors import PlanError, UsageError
from opweave.graph import Constant, Graph, Node, Value
from opweave.plans import Reason, ReasonCode
from opweave.provider import HOST
from opweave.testing import Behaviour
from opweave.types import SequenceType, TensorType
from opweave_partitioner import partition
from planning import CPU, chain, check, devices, graph, labels_of, value

FAST = Behaviour(seconds=1e-6, launch=1e-6, link_latency=1e-6)
DOMAINS = {"null:0": "null:0", "null:1": HOST}


def test_one_device_is_one_stage() -> None:
    plan = partition(chain(5), devices(CPU))
    assert len(plan.stages) == len(plan.steps) == 1
    assert {p.reasons[-1].code for p in plan.placements.values()} == {ReasonCode.ONLY}
    check(plan, {"null:0": HOST})


def test_work_goes_where_it_is_faster_and_back() -> None:
    plan = partition(chain(10), devices(FAST, CPU))
    assert labels_of(plan) == ["null:0"] * 10
    assert [(t.value.name, t.source, t.target) for t in plan.transfers] == [
        ("x", HOST, "null:0"),
        ("v9", "null:0", HOST),
    ]
    check(plan, DOMAINS)


def test_a_slow_link_keeps_work_at_home_and_says_why() -> None:
    plan = partition(chain(10), devices(replace(FAST, link_latency=1.0), CPU))
    assert labels_of(plan) == ["null:1"] * 10
    reason = plan.placements["n0"].reasons[0]
    assert reason.code is ReasonCode.TOO_SMALL
    assert reason.device == "null:0"
    assert "copies and launch" in reason.text
    assert len(plan.fallbacks) == 10


def test_an_island_is_not_worth_its_launch() -> None:
    takes = {"n5"}
    plan = partition(chain(10), devices(replace(FAST, takes=takes, launch=1e-3, link_latency=0.0), CPU))
    assert labels_of(plan) == ["null:1"] * 10
    plan = partition(chain(10), devices(replace(FAST, takes=takes, launch=0.0, link_latency=0.0), CPU))
    assert labels_of(plan).count("null:0") == 1
    check(plan, DOMAINS)


def test_a_value_is_copied_once_to_each_domain() -> None:
    wide = graph([[], [0], [0], [0], [0], [1, 2, 3, 4]])
    plan = partition(wide, devices(FAST, CPU), pins={"n0": "null:1", "n1": "null:0", "n2": "null:0", "n3": "null:0"})
    assert len([t for t in plan.transfers if t.value.name == "v0"]) == 1
    check(plan, DOMAINS)


def test_two_far_domains_meet_on_the_host() -> None:
    plan = partition(chain(2), devices(FAST, FAST), pins={"n0": "null:0", "n1": "null:1"})
    assert [(t.value.name, t.source, t.target) for t in plan.transfers if t.value.name == "v0"] == [
        ("v0", "null:0", HOST),
        ("v0", HOST, "null:1"),
    ]
    check(plan, {"null:0": "null:0", "null:1": "null:1"})


def test_devices_of_one_domain_copy_nothing() -> None:
    plan = partition(chain(4), devices(replace(CPU, takes={"Add"}), replace(CPU, takes={"Mul"})))
    assert len(plan.stages) == 4
    assert not plan.transfers


def test_pins_by_node_win_over_pins_by_operator() -> None:
    plan = partition(chain(6), devices(FAST, CPU), pins={"Add": "null:1", "n3": "null:0"})
    assert labels_of(plan) == ["null:0", "null:1", "null:0", "null:0", "null:0", "null:1"]
    assert plan.placements["n1"].reasons[-1].code is ReasonCode.PINNED
    check(plan, DOMAINS)


@pytest.mark.parametrize("pins", [{"n0": "tpu:0"}, {"nobody": "null:0"}])
def test_pins_that_name_nothing_are_refused(pins: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="pin of"):
        partition(chain(2), devices(CPU), pins=pins)


def test_a_pin_that_cannot_hold_gives_the_reason() -> None:
    stubborn = replace(FAST, takes=lambda _: "no such unit")
    with pytest.raises(PlanError, match=r"n0.*null:0.*no such unit"):
        partition(chain(2), devices(stubborn, CPU), pins={"n0": "null:0"})


def test_a_node_without_a_device_gives_every_reason() -> None:
    with pytest.raises(PlanError, match=r"null:0: no unit; null:1: no kernel") as caught:
        partition(
            chain(1), devices(replace(FAST, takes=lambda _: "no unit"), replace(CPU, takes=lambda _: "no kernel"))
        )
    assert caught.value.context["op"] == "Mul"


def test_refusals_of_an_earlier_compile_are_kept() -> None:
    refused = {("n1", "null:0"): Reason(ReasonCode.REFUSED, "null:0", "out of registers")}
    plan = partition(chain(3), devices(FAST, CPU), refused=refused)
    assert plan.placements["n1"].device == "null:1"
    assert plan.placements["n1"].reasons[0] == refused["n1", "null:0"]


def test_a_provider_that_raises_is_out_for_that_node_only() -> None:
    plan = partition(chain(10), devices(replace(FAST, raises={"n9"}), CPU))
    assert labels_of(plan) == ["null:0"] * 9 + ["null:1"]
    reason = plan.placements["n9"].reasons[0]
    assert reason.code is ReasonCode.BROKEN
    assert "RuntimeError: told to break" in reason.text


def _raise(_: Node) -> float:
    raise ZeroDivisionError("no clock")


@pytest.mark.parametrize("seconds", [_raise, math.nan, math.inf, -1.0], ids=["raises", "nan", "inf", "negative"])
def test_costs_that_are_no_time_fall_back_to_the_roofline(seconds: object) -> None:
    plan = partition(chain(3), devices(replace(FAST, seconds=seconds, link_latency=math.nan), CPU))  # type: ignore[arg-type]
    assert 0 < plan.seconds < 1
    check(plan, DOMAINS)


def test_links_without_a_bandwidth_do_not_break_the_plan() -> None:
    plan = partition(chain(3), devices(replace(FAST, link_bandwidth=0.0, launch=math.nan), CPU))
    assert math.isfinite(plan.seconds)


def test_strings_and_sequences_stay_on_the_host() -> None:
    text = Value("text", TensorType(DType.STRING, (2,)))
    many = Value("many", SequenceType(TensorType(DType.FLOAT32)))
    x, y = value("x"), value("y")
    nodes = (
        Node("s", "StringNormalizer", (text,), (replace(text, name="t"),)),
        Node("c", "SequenceConstruct", (x, x), (many,)),
        Node("a", "Add", (x, x), (y,)),
    )
    plan = partition(Graph("g", (text, x), (replace(text, name="t"), many, y), nodes), devices(FAST, CPU))
    assert labels_of(plan)[:2] == ["null:1", "null:1"]
    assert "only the host holds" in plan.placements["s"].reasons[0].text
    check(plan, DOMAINS)


def test_graphs_of_no_nodes_and_outputs_that_are_inputs_or_constants() -> None:
    x = value("x")
    k = replace(value("k"), constant=Constant(np.zeros(64, np.float32)))
    plan = partition(Graph("g", (x,), (x, k), ()), devices(FAST, CPU))
    assert plan.steps == ()
    y = value("y")
    plan = partition(Graph("g", (x,), (y, x, y, k), (Node("n", "Add", (x, k), (y,)),)), devices(FAST, CPU))
    assert not any(t.value.name == "k" for t in plan.transfers)
    check(plan, DOMAINS)


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_eight_hundred_nodes_take_less_than_a_second(share: float) -> None:
    rng = np.random.default_rng(0)
    reads = [sorted({i - 1, max(0, i - int(rng.integers(1, 12)))}) if i else [] for i in range(800)]
    model = graph(reads, [int(s) for s in rng.integers(1, 100_000, 800)])
    rivals = devices(replace(FAST, takes=share, seconds=lambda n: 1e-6 * (len(n.name) % 3)), CPU)
    start = time.process_time()
    plan = partition(model, rivals)
    assert time.process_time() - start < 1.0
    check(plan, DOMAINS)


@pytest.mark.parametrize("seed", range(5))
def test_one_more_device_does_not_make_a_large_plan_dearer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reads = [sorted({i - 1, max(0, i - int(rng.integers(1, 12)))}) if i else [] for i in range(150)]
    model = graph(reads, [int(s) for s in rng.integers(1, 100_000, 150)])
    most = replace(FAST, takes=0.9, seed=seed, seconds=lambda n: 1e-6 * (len(n.name) % 3))
    two = partition(model, devices(most, CPU))
    three = partition(model, devices(most, replace(most, seed=seed + 100), CPU))
    assert three.seconds <= two.seconds * 1.001
