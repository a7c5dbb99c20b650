"""Nodes that compute the same thing from the same values become one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from opweave.graph import Graph, Node, Value
from opweave.passes.rewrite import substitute
from opweave.read.names import Names

_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)
_SMALL_BYTES = 1024


def share_common(graph: Graph, names: Names) -> Graph:
    """The graph with the later of equal nodes replaced. Foreign operators may differ call by call: they stay."""
    seen: dict[Hashable, Node] = {}
    values: dict[str, Value] = {}
    outputs = {v.name for v in graph.outputs}
    nodes: list[Node] = []
    for original in graph.nodes:
        node = _in_bodies(original, names)
        key = _key(node, values)
        first = seen.get(key) if key is not None else None
        if first is None or any(v.name in outputs for v in node.writes()) or not _covers(first, node):
            nodes.append(node)
            if key is not None:
                seen.setdefault(key, node)
            continue
        pairs = zip(node.outputs, first.outputs, strict=False)
        values.update({old.name: new for old, new in pairs if old is not None and new is not None})
    if not values and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return substitute(replace(graph, nodes=tuple(nodes)), values)


def _in_bodies(node: Node, names: Names) -> Node:
    bodies = {k: share_common(body, names) for k, body in node.bodies.items()}
    if all(bodies[k] is body for k, body in node.bodies.items()):
        return node
    return replace(node, attributes={**node.attributes, **bodies})


def _covers(first: Node, node: Node) -> bool:
    """Whether every output of `node` is there in `first`."""
    return all(v is None or (i < len(first.outputs) and first.outputs[i]) for i, v in enumerate(node.outputs))


def _key(node: Node, values: dict[str, Value]) -> Hashable | None:
    if node.domain not in ("", "ai.onnx.ml") or node.op_type in _RANDOM or node.bodies:
        return None
    attributes = tuple(sorted((name, _frozen(value)) for name, value in node.attributes.items()))
    inputs = tuple(_identity(v, values) for v in node.inputs)
    return node.domain, node.op_type, node.version, attributes, inputs


def _identity(value: Value | None, values: dict[str, Value]) -> Hashable:
    if value is None:
        return None
    if value.constant is not None and value.constant.nbytes <= _SMALL_BYTES:
        return value.constant.key
    return "", values.get(value.name, value).name


def _frozen(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tolist() if value.dtype == object else value.tobytes()!r}"
    return repr(value)
