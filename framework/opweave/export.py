"""From a graph back to ONNX, in the lowest operator set that has all its operators' forms: other engines load it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Graph, Node, Value
from opweave.protos import tensor_proto, type_proto
from opweave.read.check import schema_of
from opweave.read.upgrade import last_change, next_change
from opweave.types import MapType, OptionalType, SequenceType, SparseType, TensorType, Type

_LOWEST_OPSET = 17  # all engines of today read it; older ones allow fewer element types
_NEWEST = 2**31 - 1
_IR_OF_DTYPE = {DType.UINT4: 10, DType.INT4: 10, DType.FLOAT4E2M1: 11, DType.FLOAT8E8M0: 12}
_IR_OF_DTYPE |= {DType.UINT2: 13, DType.INT2: 13, DType.FLOAT6E2M3: 14, DType.FLOAT6E3M2: 14}


def to_onnx(graph: Graph) -> onnx.ModelProto:
    """The graph as a model with its weights. Captured values become inputs; a repeated output gets a name of its own."""
    opsets = opsets_of(graph)
    proto = _Writer(graph).graph(graph, top=True)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    ir_version = max([onnx.helper.find_min_ir_version_for(imports, True), 8, *_ir_versions(graph)])
    return onnx.helper.make_model(proto, opset_imports=imports, ir_version=ir_version, producer_name="opweave")


def opsets_of(graph: Graph) -> dict[str, int]:
    """The lowest version of every domain in which all of the graph's nodes have the form that they are in."""
    low: dict[str, int] = {"": 1}
    high: dict[str, tuple[int, str]] = {"": (_NEWEST, "")}
    for node in graph.walk():
        first, last = _form_range(node)
        low[node.domain] = max(low.get(node.domain, 1), first)
        high[node.domain] = min(high.get(node.domain, (_NEWEST, "")), (last, node.name))
    for domain, (last, name) in high.items():
        if low[domain] > last:
            found = f"a node that ends with operator set {last} beside one that begins with {low[domain]}"
            raise ModelError("export the graph", found, "no one operator set has both", node=name)
    return {**low, "": max(low[""], min(_LOWEST_OPSET, high[""][0]))}


def _form_range(node: Node) -> tuple[int, int]:
    """The first and the last version of its domain in which a node may stand as it is."""
    newest = schema_of(node.op_type, _NEWEST, node.domain)
    if newest is None:
        return max(node.version, 1), _NEWEST
    changed = next_change(node.domain, node.op_type, node.version)
    last = min(changed, int(newest.since_version) if newest.deprecated else _NEWEST + 1) - 1
    first = version = max(1, min(node.version, last))
    floor = last_change(node.domain, node.op_type, node.version)
    while version >= floor:
        schema = schema_of(node.op_type, version, node.domain)
        if schema is None or schema.since_version < floor or not _allows(schema, node):
            break
        first = int(schema.since_version)
        version = first - 1
    return first, last


def _allows(schema: Any, node: Node) -> bool:
    if len(node.inputs) > schema.max_input or len(node.outputs) > schema.max_output:
        return False
    if any(name not in schema.attributes for name in node.attributes):
        return False
    pairs = [*_typed(schema.inputs, node.inputs), *_typed(schema.outputs, node.outputs)]
    return all(v is None or v.type is None or _type_text(v.type) in formal.types for formal, v in pairs)


def _typed(formals: Sequence[Any], values: Sequence[Value | None]) -> Iterator[tuple[Any, Value | None]]:
    for index, value in enumerate(values):
        yield formals[min(index, len(formals) - 1)], value


def _type_text(type_: Type) -> str:
    """As schemas spell types."""
    if isinstance(type_, TensorType):
        return f"tensor({_dtype_text(type_.dtype)})"
    if isinstance(type_, SequenceType):
        return f"seq({_type_text(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({_type_text(type_.element)})"
    if isinstance(type_, MapType):
        return f"map({_dtype_text(type_.key)},{_type_text(type_.value)})"
    return f"sparse_tensor({_dtype_text(type_.dtype)})"


@functools.cache
def _dtype_text(dtype: DType) -> str:
    return {DType.FLOAT32: "float", DType.FLOAT64: "double"}.get(dtype, str(dtype))


def _ir_versions(graph: Graph) -> Iterator[int]:
    for g in _graphs(graph):
        for value in g.values.values():
            if value.tensor is not None and value.tensor.dtype in _IR_OF_DTYPE:
                yield _IR_OF_DTYPE[value.tensor.dtype]


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.walk():
        yield from node.bodies.values()


class _Writer:
    """Writes one model. A constant stands in the graph that uses it; one of several graphs stands in the outermost."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {name for g in _graphs(graph) for name in g.values}
        users: dict[str, list[Graph]] = {}
        for g in _graphs(graph):
            for name in g.constants:
                users.setdefault(name, []).append(g)
        self._shared = {n: graphs[0].constants[n] for n, graphs in users.items() if len(graphs) > 1}

    def graph(self, graph: Graph, top: bool = False) -> onnx.GraphProto:
        nodes = [self._node(n) for n in graph.nodes]
        own = {v.name for v in graph.inputs} | set(graph.producers)
        outputs = []
        seen: set[str] = set()
        for value in graph.outputs:
            name = value.name
            if name in seen or (not top and name not in set(graph.producers)):
                name = self._fresh(name)
                nodes.append(onnx.helper.make_node("Identity", [value.name], [name], name=name))
            seen.add(name)
            outputs.append(value_info(name, value.type))
        inputs = [value_info(v.name, v.type) for v in (*graph.inputs, *(graph.captures if top else ()))]
        shown = seen | own.difference(graph.producers)
        infos = [value_info(n, v.type) for n, v in graph.values.items() if v.type and n in own and n not in shown]
        constants = {n: v for n, v in graph.constants.items() if n not in self._shared} | (self._shared if top else {})
        weights = [tensor_proto(v.constant.array, n) for n, v in constants.items() if v.constant is not None]
        return onnx.helper.make_graph(nodes, graph.name or "graph", inputs, outputs, weights, value_info=infos)

    def _fresh(self, name: str) -> str:
        number = 1
        while f"{name}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{name}_{number}")
        return f"{name}_{number}"

    def _node(self, node: Node) -> onnx.NodeProto:
        names = [[v.name if v else "" for v in values] for values in (node.inputs, node.outputs)]
        proto = onnx.helper.make_node(node.op_type, *names, name=node.name, domain=node.domain)
        kinds = _attribute_kinds(node)
        for name, value in node.attributes.items():
            if value is not None:
                proto.attribute.append(self._attribute(name, value, kinds.get(name)))
        return proto

    def _attribute(self, name: str, value: Any, kind: int | None) -> onnx.AttributeProto:
        converted = [self._plain(v) for v in value] if isinstance(value, (list, tuple)) else self._plain(value)
        return onnx.helper.make_attribute(name, converted, attr_type=kind)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Graph):
            return self.graph(value)
        if isinstance(value, np.ndarray):
            return tensor_proto(value, "")
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        if isinstance(value, (TensorType, SequenceType, OptionalType, MapType, SparseType)):
            return type_proto(value)
        return value


def _attribute_kinds(node: Node) -> Mapping[str, int]:
    schema = schema_of(node.op_type, node.version or _NEWEST, node.domain)
    if schema is None:
        return {n: onnx.AttributeProto.INTS for n, v in node.attributes.items() if isinstance(v, list) and not v}
    # A sparse tensor was read as a dense one.
    return {n: int(a.type.value) for n, a in schema.attributes.items() if a.type.name != "SPARSE_TENSOR"}


def value_info(name: str, type_: Type | None) -> onnx.ValueInfoProto:
    """A value's declaration; without a type where none is known."""
    info = onnx.ValueInfoProto(name=name)
    if type_ is not None:
        info.type.CopyFrom(type_proto(type_))
    return info
