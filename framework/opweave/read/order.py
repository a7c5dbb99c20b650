"""The order of a graph's nodes: as they stand, sorted where they are not in order, refused where there is no order."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

import onnx

from opweave.errors import ModelError
from opweave.read.wellformed import bodies_of


def sorted_nodes(nodes: Sequence[onnx.NodeProto], known: Collection[str]) -> Sequence[onnx.NodeProto]:
    """The nodes with every producer before its readers. `known` are the names of inputs and initializers."""
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            if name and (name in producers or name in known):
                found = f"the value {name[:80]!r} is defined twice"
                raise ModelError(f"read the graph at {_text(node)}", found, "fix the model")
            if name:
                producers[name] = index
    needs = [{producers[n] for n in free_names(node) if n in producers} for node in nodes]
    if all(not need or max(need) < index for index, need in enumerate(needs)):
        return nodes
    return [nodes[i] for i in _topological(nodes, needs)]


def _topological(nodes: Sequence[onnx.NodeProto], needs: list[set[int]]) -> list[int]:
    readers: list[list[int]] = [[] for _ in nodes]
    for index, need in enumerate(needs):
        for producer in need:
            readers[producer].append(index)
    waiting = [len(need) for need in needs]
    ready = [i for i, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = next(i for i, count in enumerate(waiting) if count)
        raise ModelError("order the graph's nodes", f"a cycle through {_text(nodes[stuck])}", "fix the model")
    return order


def free_names(node: onnx.NodeProto) -> set[str]:
    """The names that a node and its bodies read from outside."""
    names = {n for n in node.input if n}
    for graph in bodies_of(node):
        names |= _free_of_graph(graph)
    return names


def _free_of_graph(graph: onnx.GraphProto) -> set[str]:
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer} | {n for node in graph.node for n in node.output}
    read = {v.name for v in graph.output}.union(*(free_names(n) for n in graph.node))
    return read - own


def _text(node: onnx.NodeProto) -> str:
    return f"node {node.name[:80]!r} ({node.op_type[:80]})"
