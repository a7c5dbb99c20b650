"""Step 4: takes back islands that are not worth their launch and their copies.

Assignment does not see launches. Here whole stages move to another device wherever that makes the true total smaller,
smallest stages first, until none gains; at last the plan is compared with everything on one device.
"""

from __future__ import annotations

import math

from opweave_partitioner.assign import copies, energy
from opweave_partitioner.cost import Costs, Flow
from opweave_partitioner.order import runs

_SWEEPS = 8
_LAUNCHES = 4  # more launches than a moved stage can be expected to save: its own, and where its neighbours meet
_ROUNDING = 1e-9  # of the seconds compared: a smaller gain may be none


def grow(costs: Costs, needs: list[list[int]], starts: list[list[int]]) -> list[int]:
    """The cheapest of `starts` with islands merged; never dearer than any of them, nor than all nodes on one device."""
    found = [_grown(costs, needs, labels) for labels in starts]
    for device in range(len(costs.devices)):
        if all(math.isfinite(row[device]) for row in costs.node):
            found.append([device] * len(costs.node))
    return min(found, key=lambda labels: total(costs, needs, labels))


def _grown(costs: Costs, needs: list[list[int]], labels: list[int]) -> list[int]:
    growth = _Growth(costs, needs, labels)
    for _ in range(_SWEEPS):
        if not growth.sweep():
            break
    return growth.labels


def total(costs: Costs, needs: list[list[int]], labels: list[int]) -> float:
    """Predicted seconds of the whole: compute, transfers, launches."""
    return energy(costs, labels) + _launches(costs, needs, labels)


def _launches(costs: Costs, needs: list[list[int]], labels: list[int]) -> float:
    return sum(costs.launch[label] for label, _ in runs(needs, labels))


class _Growth:
    """Labels that only get cheaper, with what a move needs to be priced from the change alone."""

    def __init__(self, costs: Costs, needs: list[list[int]], labels: list[int]) -> None:
        self.costs, self.needs, self.labels = costs, needs, labels.copy()
        self.launches = _launches(costs, needs, labels)
        self.touching: list[list[int]] = [[] for _ in labels]
        for index, flow in enumerate(costs.flows):
            for node in {*flow.consumers, *(() if flow.producer is None else (flow.producer,))}:
                self.touching[node].append(index)

    def sweep(self) -> bool:
        """Tries every stage once on every other device; whether any moved."""
        stages = runs(self.needs, self.labels)
        if len(stages) < 2:
            return False
        small_first = sorted(stages, key=lambda s: sum(self.costs.node[i][s[0]] for i in s[1]))
        return sum(self._try(nodes) for _, nodes in small_first) > 0

    def _try(self, nodes: list[int]) -> bool:
        flows = [self.costs.flows[f] for f in {f for i in nodes for f in self.touching[i]}]
        others = [d for d in range(len(self.costs.devices)) if d != self.labels[nodes[0]]]
        return sum(self._move(nodes, flows, device) for device in others) > 0

    def _move(self, nodes: list[int], flows: list[Flow], device: int) -> bool:
        """Moves the nodes if that makes the total smaller."""
        before = self._seconds(nodes, flows)
        old = self.labels
        self.labels = old.copy()
        for i in nodes:
            self.labels[i] = device
        dearer = self._seconds(nodes, flows) - before
        if dearer < _LAUNCHES * max(self.costs.launch):
            launches = _launches(self.costs, self.needs, self.labels)
            if dearer + launches - self.launches < -_ROUNDING * before:
                self.launches = launches
                return True
        self.labels = old
        return False

    def _seconds(self, nodes: list[int], flows: list[Flow]) -> float:
        compute = sum(self.costs.node[i][self.labels[i]] for i in nodes)
        return compute + sum(copies(self.costs, flow, self.labels) for flow in flows)
