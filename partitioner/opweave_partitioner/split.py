"""Step 5: from labels to steps: subgraphs with explicit inputs and outputs, and one copy of a value per domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from opweave.graph import Graph, Value
from opweave.plans import Control, Stage, Step, Transfer
from opweave.provider import HOST

from opweave_partitioner.cost import Costs
from opweave_partitioner.order import runs


def split(
    costs: Costs, needs: list[list[int]], labels: list[int], controls: Mapping[str, Control] | None = None
) -> tuple[Step, ...]:
    """The steps of the plan in order: before each stage the transfers that it needs, at the end those of the outputs.

    Nodes of `controls` become steps of their own, which the scheduler runs from the host.
    """
    apart = len(costs.devices)
    labels = [apart if controls and n.name in controls else i for n, i in zip(costs.graph.nodes, labels, strict=True)]
    return _Splitter(costs, controls or {}).steps(runs(needs, labels))


class _Splitter:
    def __init__(self, costs: Costs, controls: Mapping[str, Control]) -> None:
        self.costs, self.graph, self.controls = costs, costs.graph, controls
        self.where: dict[str, list[str]] = {v.name: [HOST] for v in (*self.graph.inputs, *self.graph.captures)}
        self.sizes = {f.value.name: f.nbytes for f in costs.flows}
        self.wanted = {v.name for v in self.graph.outputs}
        self.done: list[Step] = []

    def steps(self, stages: Sequence[tuple[int, list[int]]]) -> tuple[Step, ...]:
        self.last_read = self._last_reads(stages)
        places = [self.costs.domains[label] for label, _ in stages if label < len(self.costs.devices)]
        self.alone = len(stages) == 1 and places == [HOST]  # then the caller's inputs and outputs are the stage's
        for index, (label, nodes) in enumerate(stages):
            if label < len(self.costs.devices):
                self._stage(index, label, nodes)
            else:
                self._control(index, nodes)
        for value in self.graph.outputs:
            if value.constant is None:
                self._bring(value, HOST)
        return tuple(self.done)

    def _stage(self, index: int, label: int, nodes: list[int]) -> None:
        device = self.costs.devices[label].info
        graph = self._subgraph(index, nodes)
        for value in graph.inputs:
            self._bring(value, device.domain)
        seconds = sum(self.costs.node[i][label] for i in nodes) + self.costs.launch[label]
        self.done.append(Stage(index, device.id, device.domain, graph, seconds))
        for node in graph.nodes:
            for value in node.writes():
                self.where[value.name] = [device.domain]

    def _control(self, index: int, nodes: list[int]) -> None:
        for node in (self.graph.nodes[i] for i in nodes):
            for value in node.reads():
                if value.constant is None:
                    self._bring(value, HOST)
            self.done.append(replace(self.controls[node.name], index=index))
            self.where.update({v.name: [HOST] for v in node.writes()})

    def _subgraph(self, index: int, indices: list[int]) -> Graph:
        name = f"{self.graph.name}:{index}"
        if self.alone:
            return replace(self.graph, name=name)
        nodes = tuple(self.graph.nodes[i] for i in indices)
        made = {v.name for n in nodes for v in n.writes()}
        reads: Iterable[Value] = (v for n in nodes for v in n.reads())
        inputs = {v.name: v for v in reads if v.name not in made and v.constant is None}
        outputs = {
            v.name: v
            for n in nodes
            for v in n.writes()
            if v.name in self.wanted or self.last_read.get(v.name, -1) > index
        }
        return Graph(name, tuple(inputs.values()), tuple(outputs.values()), nodes, self.graph.opsets)

    def _last_reads(self, stages: Sequence[tuple[int, list[int]]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, (_, nodes) in enumerate(stages):
            for i in nodes:
                found.update({v.name: index for v in self.graph.nodes[i].reads()})
        return found

    def _bring(self, value: Value, domain: str) -> None:
        """Copies by way of the host where neither end is the host; what is there already is not copied again."""
        places = self.where[value.name]
        if domain in places:
            return
        if HOST not in places and domain != HOST:
            self._bring(value, HOST)
        source = HOST if domain != HOST else places[0]
        owner = next(d.info.id for d in self.costs.devices if d.info.domain == (domain if domain != HOST else source))
        seconds = self.costs.copy(self.sizes[value.name], source, domain)
        self.done.append(Transfer(value, source, domain, owner, seconds))
        places.append(domain)
