"""Random graphs: plans are valid, never dearer than one device alone, and close to the best that brute force finds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from opweave.errors import PlanError
from opweave.graph import Graph
from opweave.provider import HOST, Device
from opweave.testing import Behaviour
from opweave_partitioner import partition
from opweave_partitioner.assign import assign, energy
from opweave_partitioner.capability import capability
from opweave_partitioner.cost import Costs, costs
from opweave_partitioner.grow import grow, total
from opweave_partitioner.order import dependencies
from planning import cheapest, check, devices, graph

SECONDS = st.sampled_from([0.0, 1e-6, 2e-6, 5e-6, 20e-6, 80e-6])


@st.composite
def graphs(draw: st.DrawFn, most: int = 10) -> Graph:
    """Any wiring, values of one byte to some megabytes."""
    length = draw(st.integers(1, most))
    reads = [draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else [] for i in range(length)]
    sizes = draw(st.lists(st.sampled_from([1, 64, 10_000, 1_000_000]), min_size=length, max_size=length))
    return graph(reads, sizes, draw(st.lists(st.integers(0, length - 1), max_size=2)))


@st.composite
def rivals(draw: st.DrawFn, model: Graph, count: int, launches: bool) -> list[Device]:
    """Accelerators of any figures that take some of the nodes, and a host device, which takes all, at the end."""
    names = [n.name for n in model.nodes]
    made = []
    for index in range(count):
        last = index == count - 1
        figures: Mapping[str, float] = {name: draw(SECONDS) for name in names}
        made.append(
            Behaviour(
                takes=None if last else draw(st.sets(st.sampled_from(names))),
                seconds=figures,
                launch=draw(SECONDS) if launches else 0.0,
                link_latency=draw(SECONDS),
                link_bandwidth=draw(st.sampled_from([1e9, 1e11])),
                domain=HOST if last else None,
            )
        )
    return devices(*made)


def table_of(model: Graph, rivals: list[Device]) -> tuple[Costs, list[list[int]]]:
    able = capability(model, rivals)
    table = costs(model, rivals, able, {})
    return table, assign(table, able)


def least_energy(table: Costs) -> float:
    every = itertools.product(range(len(table.devices)), repeat=len(table.node))
    fit = (p for p in every if all(math.isfinite(row[d]) for row, d in zip(table.node, p, strict=True)))
    return min(energy(table, list(p)) for p in fit)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_assignment_of_two_devices_is_exact(data: st.DataObject) -> None:
    model = data.draw(graphs())
    table, (labels,) = table_of(model, data.draw(rivals(model, 2, launches=False)))
    assert math.isclose(energy(table, labels), least_energy(table), rel_tol=1e-9, abs_tol=1e-12)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_assignment_of_three_devices_is_close(data: st.DataObject) -> None:
    model = data.draw(graphs(most=7))
    table, starts = table_of(model, data.draw(rivals(model, 3, launches=False)))
    assert min(energy(table, labels) for labels in starts) <= 1.5 * least_energy(table) + 1e-12


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_plans_hold_and_are_never_dearer_than_the_host_alone(data: st.DataObject) -> None:
    model = data.draw(graphs(most=16))
    count = data.draw(st.integers(1, 3))
    found = data.draw(rivals(model, count, launches=True))
    names = [n.name for n in model.nodes]
    pins = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from([d.info.id for d in found]), max_size=2))
    try:
        plan = partition(model, found, pins=pins)
    except PlanError:
        assert any(found[int(d[-1])].unsupported(model.producers[n.replace("n", "v")]) for n, d in pins.items())
        return
    check(plan, {d.info.id: d.info.domain for d in found})
    assert all(plan.placements[n].device == d for n, d in pins.items())
    alone = partition(model, found[-1:])
    assert pins or plan.seconds <= alone.seconds * (1 + 1e-9)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_predicted_total_is_that_of_the_steps(data: st.DataObject) -> None:
    model = data.draw(graphs(most=16))
    found = data.draw(rivals(model, 3, launches=True))
    table, starts = table_of(model, found)
    needs = dependencies(model)
    seconds = total(table, needs, grow(table, needs, starts))
    assert math.isclose(partition(model, found).seconds, seconds, rel_tol=1e-9, abs_tol=1e-12)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_with_launches_placement_is_close_to_the_best(data: st.DataObject) -> None:
    model = data.draw(graphs(most=8))
    table, starts = table_of(model, data.draw(rivals(model, 2, launches=True)))
    needs = dependencies(model)
    assert total(table, needs, grow(table, needs, starts)) <= 2 * cheapest(table, needs) + 1e-12
