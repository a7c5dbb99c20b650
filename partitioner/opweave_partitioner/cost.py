"""Step 2: predicted seconds of every node on every device that takes it, and of every copy.

What a provider predicts is guarded: a fault or a figure that is no time falls back to the roofline of its `DeviceInfo`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opweave.costs import nbytes, roofline
from opweave.graph import Graph, Node, Value
from opweave.provider import HOST, Device

from opweave_partitioner.capability import Capability


@dataclass(frozen=True)
class Flow:
    """A value that may have to be copied: who makes it (None: the caller), which nodes read it, whether the caller does."""

    value: Value
    producer: int | None
    consumers: tuple[int, ...]
    is_output: bool
    nbytes: int


@dataclass
class Costs:
    """Everything that assignment needs to know, by node index and device index."""

    graph: Graph
    devices: Sequence[Device]
    node: list[list[float]]  # seconds; infinite where the device does not take the node
    flows: list[Flow]
    launch: list[float]
    domains: list[str]
    _links: dict[tuple[int, str, str], float] = field(default_factory=dict)

    def copy(self, size: int, source: str, target: str) -> float:
        """Seconds of copying `size` bytes between two domains, through the host where neither side is the host."""
        if source == target:
            return 0.0
        key = (size, source, target)
        if key not in self._links:
            self._links[key] = self._leg(size, source) + self._leg(size, target)
        return self._links[key]

    def _leg(self, size: int, domain: str) -> float:
        if domain == HOST:
            return 0.0
        owner = next(d for d in self.devices if d.info.domain == domain)
        return _sane(lambda: owner.copy_cost(size, HOST), owner.info.link_latency + size / owner.info.link_bandwidth)


def costs(graph: Graph, devices: Sequence[Device], able: Capability, pins: Mapping[str, str]) -> Costs:
    """`pins` maps node names to device ids; every other device is out of the question for such a node."""
    table = [[_node_cost(n, d, able, pins) for d in devices] for n in graph.nodes]
    launch = [max(d.info.launch, 0.0) for d in devices]
    return Costs(graph, devices, table, flows(graph), launch, [d.info.domain for d in devices])


def flows(graph: Graph) -> list[Flow]:
    """Every value of the graph that is not a constant, with its ends."""
    index = {n.name: i for i, n in enumerate(graph.nodes)}
    outputs = {v.name for v in graph.outputs}
    found = []
    for name, value in graph.values.items():
        if value.constant is not None:
            continue
        producer = graph.producers.get(name)
        readers = tuple(index[n.name] for n in graph.readers.get(name, ()))
        made_by = index[producer.name] if producer is not None else None
        found.append(Flow(value, made_by, readers, name in outputs, nbytes(value)))
    return found


def _node_cost(node: Node, device: Device, able: Capability, pins: Mapping[str, str]) -> float:
    name = device.info.id
    if not able.takes(node.name, name) or pins.get(node.name, name) != name:
        return math.inf
    return _sane(lambda: device.cost(node), roofline(node, device.info))


def _sane(predict: object, otherwise: float) -> float:
    try:
        seconds = float(predict())  # type: ignore[operator]
    except Exception:  # noqa: BLE001 (a provider's fault must not stop the model)
        return otherwise
    return seconds if math.isfinite(seconds) and seconds >= 0 else otherwise
