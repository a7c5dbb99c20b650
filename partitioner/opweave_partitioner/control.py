"""Control flow over several devices: bodies are planned like any graph.

A device that takes an If, Loop or Scan whole runs it inside one of its stages. Where the plan of a body would use a device
that does not, the scheduler can run the node from the host instead, each body by its own plan; that is offered here, with
its price, and assignment chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from opweave.graph import Graph, Node
from opweave.plans import Control, Placement, Plan, Reason, ReasonCode
from opweave.provider import HOST, Device
from opweave.types import TensorType

from opweave_partitioner.capability import Capability
from opweave_partitioner.cost import Costs

_TURN = 50e-6  # seconds of one run of a body from the host


def control_flow(
    graph: Graph,
    devices: Sequence[Device],
    able: Capability,
    pins: Mapping[str, str],
    plan: Callable[[Graph], Plan],
) -> dict[str, Control]:
    """What the scheduler could run itself, by node name."""
    if len(devices) < 2 or not any(d.info.domain == HOST for d in devices):
        return {}
    offers = {}
    for node in graph.nodes:
        if node.domain or node.op_type not in ("If", "Loop", "Scan") or node.name in pins or not _tensors_only(node):
            continue
        bodies = {name: plan(closed(body)) for name, body in node.bodies.items()}
        takers = {d.info.id for d in devices if able.takes(node.name, d.info.id)}
        used = {s.device for body in bodies.values() for p in body.walk() for s in p.stages}
        if not used <= takers:
            seconds = sum(body.seconds for body in bodies.values()) + _TURN * len(bodies)
            offers[node.name] = Control(0, node, bodies, seconds)
    return offers


def taken(costs: Costs, labels: list[int], offers: Mapping[str, Control]) -> dict[str, Control]:
    """The offers that assignment took: on the host, at the offer's price."""
    rows = zip(costs.graph.nodes, costs.node, labels, strict=True)
    return {
        n.name: offers[n.name]
        for n, row, label in rows
        if n.name in offers and math.isclose(row[label], offers[n.name].seconds) and costs.domains[label] == HOST
    }


def placement(control: Control, device: str) -> Placement:
    """Where a control step is: on the host, for the sake of its bodies."""
    used = sorted({s.device for b in control.bodies.values() for p in b.walk() for s in p.stages})
    reason = Reason(ReasonCode.CONTROL, device, f"its bodies use {', '.join(used)}")
    return Placement(control.node.name, device, (reason,), control.seconds)


def closed(body: Graph) -> Graph:
    """The body as a graph of its own: captured values are inputs, after its own."""
    return replace(body, inputs=(*body.inputs, *body.captures))


def _tensors_only(node: Node) -> bool:
    ends = [*node.reads(), *node.writes(), *(v for b in node.bodies.values() for v in (*b.inputs, *b.outputs))]
    return all(v.type is None or isinstance(v.type, TensorType) for v in ends)
