"""Step 4: takes back islands that are not worth their launch and their copies.

Assignment does not see launches. Here whole stages move to another device wherever that makes the true total smaller,
smallest stages first, until none gains; at last the plan is compared with everything on one device.
"""

from __future__ import annotations

import math

from opweave_partitioner.assign import energy
from opweave_partitioner.cost import Costs
from opweave_partitioner.order import runs

_MOVES = 200


def grow(costs: Costs, needs: list[list[int]], labels: list[int]) -> list[int]:
    """The labels with islands merged; never dearer than before, nor than all nodes on any one device."""
    best, price = labels, total(costs, needs, labels)
    for _ in range(_MOVES):
        better = _move(costs, needs, best, price)
        if better is None:
            break
        best, price = better
    for device in range(len(costs.devices)):
        alone = [device] * len(labels)
        if all(math.isfinite(row[device]) for row in costs.node) and total(costs, needs, alone) < price:
            best, price = alone, total(costs, needs, alone)
    return best


def total(costs: Costs, needs: list[list[int]], labels: list[int]) -> float:
    """Predicted seconds of the whole: compute, transfers, launches."""
    return energy(costs, labels) + sum(costs.launch[label] for label, _ in runs(needs, labels))


def _move(costs: Costs, needs: list[list[int]], labels: list[int], price: float) -> tuple[list[int], float] | None:
    stages = runs(needs, labels)
    if len(stages) < 2:
        return None
    for label, nodes in sorted(stages, key=lambda s: sum(costs.node[i][s[0]] for i in s[1])):
        for device in range(len(costs.devices)):
            if device == label or any(math.isinf(costs.node[i][device]) for i in nodes):
                continue
            moved = labels.copy()
            for i in nodes:
                moved[i] = device
            seconds = total(costs, needs, moved)
            if seconds < price:
                return moved, seconds
    return None
