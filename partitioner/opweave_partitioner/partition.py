"""The steps in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweave.errors import PlanError, UsageError
from opweave.graph import Graph
from opweave.plans import Plan, Reason
from opweave.provider import Device

from opweave_partitioner.assign import assign
from opweave_partitioner.capability import Capability, capability
from opweave_partitioner.control import control_flow, placement, taken
from opweave_partitioner.cost import costs
from opweave_partitioner.explain import explain
from opweave_partitioner.grow import grow
from opweave_partitioner.order import dependencies
from opweave_partitioner.split import split


def partition(
    graph: Graph,
    devices: Sequence[Device],
    pins: Mapping[str, str] | None = None,
    refused: Mapping[tuple[str, str], Reason] | None = None,
) -> Plan:
    """A plan for `graph` over `devices` (most wanted first).

    `pins` maps node names, or operators such as `Conv`, to device ids; `refused` holds what devices claimed and then
    refused to compile, by (node, device). Raises `PlanError` where a node has no device, `UsageError` for a bad pin.
    """
    return _partition(graph, devices, _pins(graph, devices, pins or {}), refused or {})


def _partition(
    graph: Graph, devices: Sequence[Device], pins: Mapping[str, str], refused: Mapping[tuple[str, str], Reason]
) -> Plan:
    able = capability(graph, devices, refused)
    _holdable(able, pins)
    offers = control_flow(graph, devices, able, pins, lambda body: _partition(body, devices, pins, refused))
    table = costs(graph, devices, able, pins, {name: c.seconds for name, c in offers.items()})
    needs = dependencies(graph)
    labels = grow(table, needs, assign(table, able))
    controls = taken(table, labels, offers)
    steps = split(table, needs, labels, controls)
    placements = explain(table, able, labels, pins)
    for control in controls.values():
        placements[control.node.name] = placement(control, placements[control.node.name].device)
        for body in control.bodies.values():
            placements.update(body.placements)
    return Plan(graph, tuple(d.info.id for d in devices), steps, placements, sum(s.seconds for s in steps))


def _holdable(able: Capability, pins: Mapping[str, str]) -> None:
    for node, device in pins.items():
        if not able.takes(node, device):
            reason = able.refusals[node][device].text
            raise PlanError(f"node {node!r} on {device!r}, as pinned", reason, "pin it elsewhere or not at all")


def _pins(graph: Graph, devices: Sequence[Device], pins: Mapping[str, str]) -> dict[str, str]:
    known = [d.info.id for d in devices]
    names = {n.name for n in graph.walk()}
    operators = {n.operator for n in graph.walk()}
    for what, device in pins.items():
        if device not in known:
            raise UsageError(
                f"pin of {what!r} to {device!r}", f"the devices are {', '.join(known)}", "name one of them"
            )
        if what not in names and what not in operators:
            raise UsageError(f"pin of {what!r}", "the graph has no node or operator of that name", "see `opweave plan`")
    by_operator = {n.name: pins[n.operator] for n in graph.walk() if n.operator in pins}
    return by_operator | {what: device for what, device in pins.items() if what in names}
