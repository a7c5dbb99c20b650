"""Step 1: asks every device about every node. A provider that raises is recorded as a refusal, never passed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweave.dtypes import DType
from opweave.graph import Graph, Node
from opweave.plans import Reason, ReasonCode
from opweave.provider import HOST, Device
from opweave.types import TensorType


@dataclass(frozen=True)
class Capability:
    """`refusals[node][device]` says why the device does not take the node; a device that is absent there takes it."""

    refusals: Mapping[str, Mapping[str, Reason]]

    def takes(self, node: str, device: str) -> bool:
        return device not in self.refusals.get(node, {})


def capability(
    graph: Graph, devices: Sequence[Device], known: Mapping[tuple[str, str], Reason] | None = None
) -> Capability:
    """`known` holds refusals found before (over-claims), by (node, device)."""
    known = known or {}
    refusals: dict[str, dict[str, Reason]] = {}
    for node in graph.nodes:
        row = refusals.setdefault(node.name, {})
        for device in devices:
            reason = known.get((node.name, device.info.id)) or _ask(device, node)
            if reason is not None:
                row[device.info.id] = reason
    return Capability(refusals)


def _ask(device: Device, node: Node) -> Reason | None:
    name = device.info.id
    if device.info.domain != HOST and (foreign := _host_only(node)):
        return Reason(ReasonCode.UNSUPPORTED, name, foreign)
    try:
        text = device.unsupported(node)
    except Exception as error:  # noqa: BLE001 (a provider's fault must not stop the model)
        return Reason(ReasonCode.BROKEN, name, f"its provider raised {type(error).__name__}: {error}")
    if text is None:
        return None
    return Reason(ReasonCode.UNSUPPORTED, name, str(text))


def _host_only(node: Node) -> str | None:
    """Strings and containers never leave the host."""
    for value in (*node.reads(), *node.writes()):
        if value.type is None or value.constant is not None:
            continue
        if not isinstance(value.type, TensorType) or value.type.dtype is DType.STRING:
            return f"{value.name!r} is a {value.type}, which only the host holds"
    return None
