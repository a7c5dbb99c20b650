"""Convex stages: a linear order of the nodes that changes device as seldom as a greedy walk can.

The walk stays on a device while any of its nodes is ready, then goes to the device with the most ready nodes. Stages are
runs of one device in that order, so they are convex and no cycle between them can arise.
"""

from __future__ import annotations

from opweave.graph import Graph


def dependencies(graph: Graph) -> list[list[int]]:
    """For every node the indices of the nodes whose results it reads."""
    index = {n.name: i for i, n in enumerate(graph.nodes)}
    made = {name: index[n.name] for name, n in graph.producers.items()}
    return [sorted({made[v.name] for v in n.reads() if v.name in made}) for n in graph.nodes]


def runs(needs: list[list[int]], labels: list[int]) -> list[tuple[int, list[int]]]:
    """Stages as (label, node indices in topological order), in an order that respects every dependency."""
    waiting = [len(n) for n in needs]
    users: list[list[int]] = [[] for _ in needs]
    for node, sources in enumerate(needs):
        for source in sources:
            users[source].append(node)
    ready: dict[int, list[int]] = {}
    for node, count in enumerate(waiting):
        if count == 0:
            ready.setdefault(labels[node], []).append(node)
    stages = []
    while any(ready.values()):
        label = max(ready, key=lambda d: (len(ready[d]), -d))
        stage = []
        while ready.get(label):
            node = ready[label].pop()
            stage.append(node)
            for user in users[node]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.setdefault(labels[user], []).append(user)
        stages.append((label, sorted(stage)))
    return stages
