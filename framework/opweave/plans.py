"""The plan: which node runs where and why, in what order, and what is copied between. Frozen; the partitioner writes it,
the scheduler runs it, `opweave plan` prints it."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from opweave.graph import Graph, Node, Value


class ReasonCode(enum.Enum):
    """Why a node is where it is."""

    BEST = "best"  # the cheapest placement of the whole puts it here
    ONLY = "only"  # no other wanted device takes it
    PINNED = "pinned"  # the user said so
    UNSUPPORTED = "unsupported"  # a preferred device does not take it
    TOO_SMALL = "too small"  # a preferred device takes it, but the copies or the launch cost more than they gain
    REFUSED = "refused"  # a preferred device claimed it and then refused to compile it
    BROKEN = "broken"  # a preferred device's provider raised while it was asked
    CONTROL = "control"  # control flow whose bodies use several devices


@dataclass(frozen=True)
class Reason:
    """Why a node is not on `device` (or why it is, for BEST, ONLY, PINNED)."""

    code: ReasonCode
    device: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.device}: {self.text or self.code.value}"


@dataclass(frozen=True)
class Placement:
    """The device of one node, its predicted seconds there, and the reasons, the most wanted device's first."""

    node: str
    device: str
    reasons: tuple[Reason, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Stage:
    """A convex subgraph for one device; `graph.inputs` and `graph.outputs` are what it takes and gives."""

    index: int
    device: str
    domain: str
    graph: Graph
    seconds: float = 0.0

    @property
    def bytes_in(self) -> int | None:
        return _nbytes(self.graph.inputs)

    @property
    def bytes_out(self) -> int | None:
        return _nbytes(self.graph.outputs)


@dataclass(frozen=True)
class Transfer:
    """The copy of one value from one memory domain to another."""

    value: Value
    source: str
    target: str
    device: str  # who copies
    seconds: float = 0.0

    @property
    def nbytes(self) -> int | None:
        return _nbytes((self.value,))


@dataclass(frozen=True)
class Control:
    """An If, Loop or Scan whose bodies use several devices: run by the scheduler, each body by a plan of its own.

    A body's plan is of the body with its captured values appended to its inputs.
    """

    index: int
    node: Node
    bodies: Mapping[str, Plan]
    seconds: float = 0.0


Step: TypeAlias = Stage | Transfer | Control


@dataclass(frozen=True)
class Plan:
    """Steps in an order that respects every dependency. `graph` is what was partitioned (typed for this signature)."""

    graph: Graph
    devices: tuple[str, ...]  # in the order of the user's preference
    steps: tuple[Step, ...]
    placements: Mapping[str, Placement]  # by node name
    seconds: float = 0.0

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.steps if isinstance(s, Stage))

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        return tuple(s for s in self.steps if isinstance(s, Transfer))

    def walk(self) -> Iterator[Plan]:
        """The plan and those of the bodies of its control steps, outer ones first."""
        yield self
        for step in self.steps:
            if isinstance(step, Control):
                for body in step.bodies.values():
                    yield from body.walk()

    @functools.cached_property
    def fallbacks(self) -> tuple[Placement, ...]:
        """Placements that are not on the most wanted device, in the order of the graph."""
        every = (self.placements[n.name] for n in self.graph.nodes if n.name in self.placements)
        return tuple(p for p in every if self.devices and p.device != self.devices[0])

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-ready data, as `opweave plan --json` prints it."""
        from opweave.report import plan_json

        return plan_json(self)

    def __str__(self) -> str:
        from opweave.report import plan_text

        return plan_text(self)


def _nbytes(values: tuple[Value, ...]) -> int | None:
    total = 0
    for value in values:
        size = value.tensor.nbytes if value.tensor is not None else None
        if size is None:
            return None
        total += size
    return total
