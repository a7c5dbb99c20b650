"""Step 3: a device for every node that minimises compute plus transfers over the whole graph.

For two devices the problem is a minimum cut: each node is on one side, and a value pays its copy once when it is made on
one side and anything on the other reads it. For more devices every pair is solved in turn with the rest fixed
(alpha-beta swaps; Boykov, Veksler, Zabih 2001) until no swap gains. Launches depend on stages, not on nodes: they are
counted by the next step.
"""

from __future__ import annotations

import math
from itertools import combinations

from opweave.errors import PlanError
from opweave.plans import Reason
from opweave.provider import HOST

from opweave_partitioner.capability import Capability
from opweave_partitioner.cost import Costs, Flow
from opweave_partitioner.flow import Network

_SWEEPS = 8


def assign(costs: Costs, able: Capability) -> list[list[int]]:
    """Device index by node index: one placement, or two that started apart, for the next step to choose from.

    Swaps end in a local optimum. One search starts with every node on its fastest device; the other with the best that
    the last device (`cpu`) and one more can do, so that a further device makes plans hardly ever dearer. Raises
    `PlanError` with every device's reason where no device takes a node.
    """
    fastest = [_cheapest(costs, able, i) for i in range(len(costs.node))]
    if len(costs.devices) < 3:
        return [_descend(costs, fastest)]
    last = len(costs.devices) - 1
    home = [last if math.isfinite(row[last]) else label for row, label in zip(costs.node, fastest, strict=True)]
    pairs = (_swap(costs, home, other, last) for other in range(last))
    return [_descend(costs, fastest), _descend(costs, min(pairs, key=lambda labels: energy(costs, labels)))]


def _descend(costs: Costs, labels: list[int]) -> list[int]:
    """Swaps pairs of devices until none gains; a pair is not tried again before some label has changed."""
    best = energy(costs, labels)
    pairs = list(combinations(range(len(costs.devices)), 2))
    idle = -1  # tries without a gain since the one that gained
    for a, b in pairs * _SWEEPS:
        moved = _swap(costs, labels, a, b)
        total = energy(costs, moved)
        idle = 0 if total < best else idle + 1
        if total < best:
            labels, best = moved, total
        if idle + 1 >= len(pairs):  # the pair that changed them is at its optimum
            break
    return labels


def energy(costs: Costs, labels: list[int]) -> float:
    """Predicted seconds of compute and transfers, launches aside."""
    compute = sum(row[label] for row, label in zip(costs.node, labels, strict=True))
    return compute + sum(copies(costs, flow, labels) for flow in costs.flows)


def copies(costs: Costs, flow: Flow, labels: list[int]) -> float:
    """Seconds of copying one value: once to the host if it leaves its domain, from there once to each that reads it."""
    made = HOST if flow.producer is None else costs.domains[labels[flow.producer]]
    wanted = {costs.domains[labels[c]] for c in flow.consumers}
    if flow.is_output:
        wanted.add(HOST)
    wanted.discard(made)
    return sum((costs.leg(flow.nbytes, domain) for domain in wanted), costs.leg(flow.nbytes, made) if wanted else 0.0)


def _cheapest(costs: Costs, able: Capability, index: int) -> int:
    row = costs.node[index]
    best = min(range(len(row)), key=row.__getitem__)
    if math.isinf(row[best]):
        node = costs.graph.nodes[index]
        reasons: list[Reason] = list(able.refusals.get(node.name, {}).values())
        found = "; ".join(map(str, reasons)) or "its pin names a device that is not among the wanted ones"
        raise PlanError(
            f"a device for node {node.name!r}", found, "add a device or a plugin that takes it", op=node.operator
        )
    return best


def _swap(costs: Costs, labels: list[int], a: int, b: int) -> list[int]:
    """The best way to share out the nodes that are now on `a` or `b` between the two, all others fixed."""
    free = [i for i, label in enumerate(labels) if label in (a, b)]
    net = Network()
    place = {i: net.add_node() for i in free}  # source side: a, sink side: b
    big = 1.0 + sum(c for row in costs.node for c in row if math.isfinite(c))
    big += sum(costs.leg(flow.nbytes, domain) for flow in costs.flows for domain in set(costs.domains))
    for i in free:
        on_a, on_b = (min(c, big) for c in (costs.node[i][a], costs.node[i][b]))
        net.add(0, place[i], on_b)
        net.add(place[i], 1, on_a)
    if costs.domains[a] != costs.domains[b]:
        for flow in costs.flows:
            _add_flow(net, costs, flow, labels, place, (a, b), big)
    side = net.source_side()
    return [label if i not in place else (a if side[place[i]] else b) for i, label in enumerate(labels)]


def _add_flow(
    net: Network, costs: Costs, flow: Flow, labels: list[int], place: dict[int, int], pair: tuple[int, int], big: float
) -> None:
    made = HOST if flow.producer is None else costs.domains[labels[flow.producer]]
    consumers = [place[c] for c in flow.consumers if c in place]
    fixed = {costs.domains[labels[c]] for c in flow.consumers if c not in place} | ({HOST} if flow.is_output else set())
    domains = [costs.domains[d] for d in pair]
    producer = place.get(flow.producer) if flow.producer is not None else None
    legs = [costs.leg(flow.nbytes, d) for d in domains]
    if producer is None:
        leaves = bool(fixed - {made}) or made not in domains
    elif leaves := bool(fixed - set(domains)):  # it goes to the host wherever it is made
        net.add(0, producer, legs[1])
        net.add(producer, 1, legs[0])
    for mine, target in enumerate(domains):  # copies into the domain of a, then of b
        if producer is None and target == made:
            continue
        price = legs[mine] + (0.0 if leaves else legs[1 - mine])
        if target in fixed:  # it is there anyway: only where it is made decides
            if producer is not None:
                net.add(*((producer, 1) if mine else (0, producer)), price)
        elif consumers and price > 0:
            needed = net.add_node()
            start = producer if producer is not None else 1 - mine  # made elsewhere: whoever reads it here pays
            _link(net, start, needed, consumers, mine, price, big)


def _link(net: Network, start: int, needed: int, consumers: list[int], mine: int, price: float, big: float) -> None:
    """`needed` is on side `mine` as soon as one consumer is; if `start` is not there too, the price is cut."""
    if mine:  # into b's domain: b is the sink's side
        net.add(start, needed, price)
        for c in consumers:
            net.add(needed, c, big)
    else:
        net.add(needed, start, price)
        for c in consumers:
            net.add(c, needed, big)
