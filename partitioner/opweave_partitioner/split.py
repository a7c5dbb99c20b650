"""Step 5: from labels to steps: subgraphs with explicit inputs and outputs, and one copy of a value per domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opweave.graph import Graph, Value
from opweave.plans import Stage, Step, Transfer
from opweave.provider import HOST

from opweave_partitioner.cost import Costs
from opweave_partitioner.order import runs


def split(costs: Costs, needs: list[list[int]], labels: list[int]) -> tuple[Step, ...]:
    """The steps of the plan in order: before each stage the transfers that it needs, at the end those of the outputs."""
    return _Splitter(costs).steps(runs(needs, labels))


class _Splitter:
    def __init__(self, costs: Costs) -> None:
        self.costs, self.graph = costs, costs.graph
        self.where: dict[str, list[str]] = {v.name: [HOST] for v in (*self.graph.inputs, *self.graph.captures)}
        self.sizes = {f.value.name: f.nbytes for f in costs.flows}
        self.wanted = {v.name for v in self.graph.outputs}
        self.done: list[Step] = []

    def steps(self, stages: Sequence[tuple[int, list[int]]]) -> tuple[Step, ...]:
        self.last_read = self._last_reads(stages)
        for index, (label, nodes) in enumerate(stages):
            self._stage(index, label, nodes)
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

    def _subgraph(self, index: int, indices: list[int]) -> Graph:
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
        name = f"{self.graph.name}:{index}"
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
