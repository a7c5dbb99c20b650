"""What must hold of a model before it is read: bodies not too deep, and names that are text (protobuf gives bytes else)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from opweave.errors import ModelError

_DEPTH_LIMIT = 40  # bodies within one another; protobuf's own limit for a file allows 33


def check_wellformed(model: onnx.ModelProto) -> None:
    """Raises `ModelError`. Walks with a list, not by recursion: a model made in memory may be of any depth."""
    _check_texts(o.domain for o in model.opset_import)
    pending = [(model.graph, 0)]
    for function in model.functions:
        _check_texts([function.name, function.domain, *function.input, *function.output, *function.attribute])
        for node in function.node:
            pending += [(graph, 1) for graph in _check_node(node)]
    while pending:
        graph, depth = pending.pop()
        if depth > _DEPTH_LIMIT:
            raise ModelError("read the model", f"bodies more than {_DEPTH_LIMIT} deep", "the model is damaged")
        _check_texts(_names(graph))
        for node in graph.node:
            pending += [(inner, depth + 1) for inner in _check_node(node)]


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _names(graph: onnx.GraphProto) -> Iterator[object]:
    yield graph.name
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
    for tensor in graph.initializer:
        yield tensor.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name


def _check_node(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    _check_texts((node.op_type, node.domain, node.name, *node.input, *node.output))
    _check_texts(text for a in node.attribute for text in (a.name, a.ref_attr_name))
    return bodies_of(node)


def _check_texts(texts: Iterable[object]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ModelError("read the model", f"the name {text!r:.80} is not UTF-8", "the model is damaged")
