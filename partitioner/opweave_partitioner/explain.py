"""Step 6: for every node why it is where it is, and why not on each device that the user wants more."""

from __future__ import annotations

import math
from collections.abc import Mapping

from opweave.graph import Node
from opweave.plans import Placement, Reason, ReasonCode

from opweave_partitioner.capability import Capability
from opweave_partitioner.cost import Costs


def explain(costs: Costs, able: Capability, labels: list[int], pins: Mapping[str, str]) -> dict[str, Placement]:
    """Placements by node name. `reasons` follow the user's order of preference and end with the chosen device's."""
    return {
        node.name: _placement(costs, able, node, row, label, pins)
        for node, row, label in zip(costs.graph.nodes, costs.node, labels, strict=True)
    }


def _placement(
    costs: Costs, able: Capability, node: Node, row: list[float], label: int, pins: Mapping[str, str]
) -> Placement:
    chosen = costs.devices[label].info.id
    refusals = able.refusals.get(node.name, {})
    reasons = []
    for index in range(label):
        name = costs.devices[index].info.id
        if name in refusals:
            reasons.append(refusals[name])
        elif node.name in pins:
            reasons.append(Reason(ReasonCode.PINNED, name, f"pinned to {pins[node.name]}"))
        else:
            text = f"would take {_time(row[index])} here, {_time(row[label])} on {chosen}, copies and launch aside"
            reasons.append(Reason(ReasonCode.TOO_SMALL, name, text))
    others = sum(math.isfinite(seconds) for seconds in row) - 1
    code = ReasonCode.PINNED if node.name in pins else ReasonCode.BEST if others else ReasonCode.ONLY
    return Placement(node.name, chosen, (*reasons, Reason(code, chosen)), row[label])


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
