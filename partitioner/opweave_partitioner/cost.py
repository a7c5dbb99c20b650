"""Step 2: predicted seconds of every node on every device that takes it, and of every copy.

What a provider predicts is guarded: a fault or a figure that is no time falls back to the roofline of its `DeviceInfo`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opweave.costs import NODE_SECONDS, nbytes, roofline
from opweave.graph import Graph, Node, Value
from opweave.provider import HOST, Device

from opweave_partitioner.capability import Capability

_GUESSED_LINK = 5e9  # bytes a second, where a provider gives no usable figure


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
    _legs: dict[tuple[int, str], float] = field(default_factory=dict)

    def copy(self, size: int, source: str, target: str) -> float:
        """Seconds of copying `size` bytes between two domains, through the host where neither side is the host."""
        return 0.0 if source == target else self.leg(size, source) + self.leg(size, target)

    def leg(self, size: int, domain: str) -> float:
        """Seconds of copying `size` bytes between the host and a domain."""
        if domain == HOST:
            return 0.0
        key = (size, domain)
        if key not in self._legs:
            owner = next(d for d in self.devices if d.info.domain == domain)
            self._legs[key] = _sane(lambda: owner.copy_cost(size, HOST), lambda: size / _GUESSED_LINK)
        return self._legs[key]


def costs(
    graph: Graph,
    devices: Sequence[Device],
    able: Capability,
    pins: Mapping[str, str],
    controls: Mapping[str, float] | None = None,
) -> Costs:
    """`pins` maps node names to device ids; every other device is out of the question for such a node.

    `controls` holds the seconds of control flow that the scheduler may run from the host, by node name.
    """
    table = [[_node_cost(n, d, able, pins) for d in devices] for n in graph.nodes]
    for node, row in zip(graph.nodes, table, strict=True):
        if controls and node.name in controls:
            host = next(i for i, d in enumerate(devices) if d.info.domain == HOST)
            if _pinned_away(node, pins, devices[host].info.id):
                row[:] = [math.inf] * len(row)
            row[host] = min(row[host], controls[node.name])
    launch = [_launch(d) for d in devices]
    return Costs(graph, devices, table, flows(graph), launch, [d.info.domain for d in devices])


def _pinned_away(node: Node, pins: Mapping[str, str], device: str) -> bool:
    """A node inside the bodies is pinned to another device: the host cannot run the whole in one of its stages."""
    return any(pins.get(n.name, device) != device for body in node.bodies.values() for n in body.walk())


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
    return _sane(lambda: device.cost(node), lambda: _sane(lambda: roofline(node, device.info), lambda: NODE_SECONDS))


def _launch(device: Device) -> float:
    return _sane(lambda: device.info.launch, lambda: 0.0)


def _sane(predict: Callable[[], float], otherwise: Callable[[], float]) -> float:
    try:
        seconds = float(predict())
    except Exception:  # noqa: BLE001 (a provider's fault must not stop the model)
        return otherwise()
    return seconds if math.isfinite(seconds) and seconds >= 0 else otherwise()
