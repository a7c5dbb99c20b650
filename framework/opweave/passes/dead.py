"""Nodes whose results nobody reads go."""

from __future__ import annotations

from dataclasses import replace

from opweave.graph import Graph, Node
from opweave.read.names import Names


def remove_dead(graph: Graph, names: Names) -> Graph:
    """The graph without unread nodes; in nodes that stay, unread optional outputs stay too."""
    needed = {v.name for v in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v.name in needed for v in node.writes()):
            clean = _in_bodies(node, names)
            kept.append(clean)
            needed.update(v.name for v in clean.reads())
    if len(kept) == len(graph.nodes) and all(a is b for a, b in zip(reversed(kept), graph.nodes, strict=True)):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)))


def _in_bodies(node: Node, names: Names) -> Node:
    bodies = {k: remove_dead(body, names) for k, body in node.bodies.items()}
    if all(bodies[k] is body for k, body in node.bodies.items()):
        return node
    return replace(node, attributes={**node.attributes, **bodies})
