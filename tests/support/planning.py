"""Small hand-made graphs and null devices for tests of the partitioner."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from opweave.dtypes import DType
from opweave.graph import Graph, Node, Value
from opweave.plans import Plan, Stage, Transfer
from opweave.provider import HOST, Device
from opweave.testing import Behaviour, NullProvider
from opweave.types import TensorType
from opweave_partitioner.cost import Costs
from opweave_partitioner.grow import total

CPU = Behaviour(domain=HOST, launch=1e-6, seconds=10e-6)


def value(name: str, size: int = 64) -> Value:
    """A float32 tensor."""
    return Value(name, TensorType(DType.FLOAT32, (size,)))


def graph(reads: Sequence[Sequence[int]], sizes: Sequence[int] | None = None, outputs: Sequence[int] = ()) -> Graph:
    """Node `n<i>` writes value `v<i>` and reads the values of `reads[i]`, `x` for none.

    Outputs are those of `outputs` and whatever nobody reads.
    """
    size = sizes or [64] * len(reads)
    x = value("x")
    made = [value(f"v{i}", s) for i, s in enumerate(size)]
    nodes = [
        Node(f"n{i}", "Add" if i % 2 else "Mul", tuple(made[j] for j in sources) or (x,), (made[i],))
        for i, sources in enumerate(reads)
    ]
    used = {j for sources in reads for j in sources}
    ends = [made[i] for i in range(len(reads)) if i in outputs or i not in used]
    return Graph("g", (x,), tuple(ends), tuple(nodes))


def chain(length: int, size: int = 64) -> Graph:
    """Every node reads the one before."""
    return graph([[i - 1] if i else [] for i in range(length)], [size] * length)


def devices(*behaviours: Behaviour) -> list[Device]:
    """Opened null devices `null:0` ..."""
    provider = NullProvider(*behaviours)
    return [provider.open(info.id, {}) for info in provider.devices()]


def labels_of(plan: Plan) -> list[str]:
    """Device by node, in the order of the graph."""
    return [plan.placements[n.name].device for n in plan.graph.nodes]


def cheapest(table: Costs, needs: list[list[int]]) -> float:
    """The least total of all placements there are, by trying every one."""
    every = itertools.product(range(len(table.devices)), repeat=len(table.node))
    fit = (p for p in every if all(math.isfinite(row[d]) for row, d in zip(table.node, p, strict=True)))
    return min(total(table, needs, list(p)) for p in fit)


def check(plan: Plan, domains: Mapping[str, str]) -> None:
    """What holds for every plan: steps in order, everything where it is read, nothing copied twice or made twice."""
    present = {(v.name, HOST) for v in plan.graph.inputs}
    done: list[str] = []
    for step in plan.steps:
        if isinstance(step, Transfer):
            assert (step.value.name, step.source) in present, step
            assert (step.value.name, step.target) not in present, f"{step} is there already"
            assert HOST in (step.source, step.target)
            assert domains[step.device] in (step.source, step.target)
            present.add((step.value.name, step.target))
        else:
            assert isinstance(step, Stage)
            _check_stage(step, present, plan)
            done += [n.name for n in step.graph.nodes]
    assert sorted(done) == sorted(n.name for n in plan.graph.nodes)
    assert all((v.name, HOST) in present for v in plan.graph.outputs if v.constant is None)
    assert plan.seconds == sum(s.seconds for s in plan.steps)


def _check_stage(stage: Stage, present: set[tuple[str, str]], plan: Plan) -> None:
    assert stage.graph.nodes
    assert all((v.name, stage.domain) in present for v in stage.graph.inputs), stage
    known = {v.name for v in stage.graph.inputs}
    for node in stage.graph.nodes:
        assert plan.placements[node.name].device == stage.device
        assert all(v.name in known or v.constant is not None for v in node.reads()), node
        known |= {v.name for v in node.writes()}
    made = {v.name for n in stage.graph.nodes for v in n.writes()}
    inside = {n.name for n in stage.graph.nodes}
    needed = {
        name
        for name in made
        if any(r.name not in inside for r in plan.graph.readers.get(name, ()))
        or any(v.name == name for v in plan.graph.outputs)
    }
    assert {v.name for v in stage.graph.outputs} == needed
    present |= {(v.name, stage.domain) for v in stage.graph.outputs}
