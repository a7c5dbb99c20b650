"""From a `ModelProto` to a `Graph`: names resolved, constants gathered, functions inlined, operators upgraded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import onnx

from opweave.errors import ModelError
from opweave.graph import Graph, Value
from opweave.read.attributes import AttributeReader
from opweave.read.bodies import check_bodies
from opweave.read.check import check_op
from opweave.read.names import Names
from opweave.read.op import Emitter, Op
from opweave.read.order import sorted_nodes
from opweave.read.scope import FunctionKey, Scope, normal_domain, read_opsets
from opweave.read.tensors import Home, sparse_constant, tensor_constant
from opweave.read.types import read_type
from opweave.read.upgrade import is_dropped, upgrade
from opweave.read.wellformed import check_wellformed
from opweave.types import TensorType, Type, merge_shapes

_DEPTH_LIMIT = 60  # bodies and calls within one another
_NODE_LIMIT = 200_000  # nodes that come from functions: calls of calls grow without bound


def build(model: onnx.ModelProto, home: Home) -> Graph:
    """The graph of the model, not optimised."""
    check_wellformed(model)
    return _Builder(model, home).model()


class _Builder:
    def __init__(self, model: onnx.ModelProto, home: Home) -> None:
        self._proto, self._home = model, home
        self._functions = _functions(model)
        self._values, self._nodes = Names(), Names()
        self._attributes = AttributeReader(home, self._body)
        self._inlined = 0

    def model(self) -> Graph:
        graph = self._proto.graph
        opsets = read_opsets(list(self._proto.opset_import))
        scope = Scope(_with_default(opsets, self._proto.ir_version))
        _check_names("input", [v.name for v in graph.input])
        own = [v.name for v in graph.input] + [t.name for t in graph.initializer]
        own += [n for node in graph.node for n in node.output] + [t.values.name for t in graph.sparse_initializer]
        self._top = frozenset(own)
        for name in own:
            self._values.reserve(name)
        built = self._graph(graph, scope)
        return replace(built, opsets=opsets)

    def _body(self, proto: onnx.GraphProto, scope: Scope) -> Graph:
        return self._graph(proto, scope.body())

    def _graph(self, proto: onnx.GraphProto, scope: Scope) -> Graph:
        _check_names("input", [v.name for v in proto.input])
        types = _declared(proto)
        self._initializers(proto, scope, types)
        inputs = []
        for info in proto.input:
            if info.name not in scope.values:
                scope.values[info.name] = Value(self._name(info.name, scope), types.get(info.name))
                inputs.append(scope.values[info.name])
        emitter = Emitter(self._values, self._nodes)
        for node in sorted_nodes(proto.node, scope.values):
            self._node(node, scope, emitter, types)
        outputs = tuple(self._output(info.name, scope) for info in proto.output)
        return Graph(proto.name, tuple(inputs), outputs, tuple(emitter.nodes), scope.opsets)

    def _name(self, name: str, scope: Scope) -> str:
        return name if scope.outer is None and not scope.calls and name in self._top else self._values.unique(name)

    def _initializers(self, proto: onnx.GraphProto, scope: Scope, types: Mapping[str, Type]) -> None:
        found = [(t.name, tensor_constant(t, self._home)) for t in proto.initializer]
        found += [(t.values.name, sparse_constant(t, self._home)) for t in proto.sparse_initializer]
        given = {v.name for v in proto.input} if scope.depth else set()  # a body's inputs come by position
        for name, (constant, type_) in found:
            if name in given:
                continue
            if not name or name in scope.values:
                raise ModelError("read the initializers", f"{name!r} stands twice" if name else "one has no name")
            scope.values[name] = Value(self._name(name, scope), type_, constant)

    def _output(self, name: str, scope: Scope) -> Value:
        value = scope.find(name)
        if value is None:
            raise ModelError("read the graph's outputs", f"nothing makes {name!r}", "the model is damaged")
        return value

    def _node(self, proto: onnx.NodeProto, scope: Scope, emitter: Emitter, types: Mapping[str, Type]) -> None:
        self._inlined += bool(scope.calls)
        if self._inlined > _NODE_LIMIT:
            raise ModelError("inline the model's functions", f"more than {_NODE_LIMIT} nodes", "the model is damaged")
        domain = normal_domain(proto.domain)
        key = (domain, proto.op_type, getattr(proto, "overload", ""))
        try:
            inputs = [self._input(name, scope) for name in proto.input]
            if key in self._functions:
                self._call(proto, key, inputs, scope, emitter, types)
                return
            attributes = self._attributes.read(proto, scope)
            if domain == "" and proto.op_type == "Constant":
                self._constant(proto, attributes, scope)
                return
            outputs = [self._result(name, scope, types) for name in proto.output]
            op = Op(proto.name, domain, proto.op_type, inputs, outputs, attributes, _version(domain, scope), emitter)
            if not is_dropped(op):
                check_op(op)
                check_bodies(op)
            upgrade(op)
        except ModelError as error:
            raise error.with_context(node=proto.name[:80] or None, op=proto.op_type[:80] or None) from error.__cause__

    def _input(self, name: str, scope: Scope) -> Value | None:
        if not name or scope.omits(name):
            return None
        value = scope.find(name)
        if value is None:
            raise ModelError("read a node's inputs", f"nothing makes {name[:80]!r}", "the model is damaged")
        return value

    def _result(self, name: str, scope: Scope, types: Mapping[str, Type]) -> Value | None:
        if not name:
            return None
        value = Value(self._name(name, scope), types.get(name))
        scope.values[name] = value
        return value

    def _constant(self, proto: onnx.NodeProto, attributes: Mapping[str, Any], scope: Scope) -> None:
        if len(proto.output) != 1 or not proto.output[0]:
            raise ModelError("read a Constant", f"{len(proto.output)} outputs", "it has one")
        constant, type_ = self._attributes.constant(attributes)
        name = proto.output[0]
        scope.values[name] = Value(self._name(name, scope), type_, constant)

    def _call(
        self,
        proto: onnx.NodeProto,
        key: FunctionKey,
        inputs: list[Value | None],
        scope: Scope,
        emitter: Emitter,
        declared: Mapping[str, Type],
    ) -> None:
        function = self._functions[key]
        inner = self._enter(proto, function, key, scope)
        if len(inputs) > len(function.input) or len(proto.output) > len(function.output):
            found = f"{len(inputs)} inputs and {len(proto.output)} outputs"
            raise ModelError(
                f"call the function {key[1]}", found, f"it has {len(function.input)}, {len(function.output)}"
            )
        given = [*inputs, *[None] * (len(function.input) - len(inputs))]
        inner.values.update({n: v for n, v in zip(function.input, given, strict=True) if v is not None})
        inner.omitted = frozenset(n for n, v in zip(function.input, given, strict=True) if v is None)
        types = {i.name: t for i in getattr(function, "value_info", ()) if (t := read_type(i.type, i.name)) is not None}
        for node in sorted_nodes(function.node, function.input):
            self._node(node, inner, emitter, types)
        for name, source in zip(proto.output, function.output, strict=False):
            if name:
                scope.values[name] = self._returned(
                    name, self._output(source, inner), scope, emitter, declared.get(name)
                )

    def _enter(self, proto: onnx.NodeProto, function: onnx.FunctionProto, key: FunctionKey, scope: Scope) -> Scope:
        asked = f"call the function {key[1]}"
        if key in scope.calls:
            raise ModelError(asked, "it calls itself", "functions of ONNX cannot be recursive")
        if len(scope.calls) + scope.depth > _DEPTH_LIMIT:
            raise ModelError(asked, f"calls and bodies more than {_DEPTH_LIMIT} deep", "the model is damaged")
        attributes = {a.name: (a, scope) for a in function.attribute_proto}
        for a in proto.attribute:
            if not a.ref_attr_name:
                attributes[a.name] = (a, scope)
            elif a.ref_attr_name in scope.attributes:
                attributes[a.name] = scope.attributes[a.ref_attr_name]
        opsets = {**scope.opsets, **read_opsets(list(function.opset_import))}
        return Scope(opsets, None, {}, attributes, (*scope.calls, key), scope.depth)

    def _returned(self, name: str, value: Value, scope: Scope, emitter: Emitter, declared: Type | None) -> Value:
        """A function's result as its caller knows it. A name of the model itself must stay: Identity keeps it."""
        if scope.outer is not None or scope.calls:
            return value
        result = Value(name, declared or value.type, value.constant)
        if value.constant is None:
            emitter.emit("Identity", [value], out=result)
        return result


def _functions(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    return {(normal_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in model.functions}


def _with_default(opsets: Mapping[str, int], ir_version: int) -> Mapping[str, int]:
    """Before IR 3 a model had no operator set, which means 1; later ones that import none get the newest."""
    if "" in opsets:
        return opsets
    return {**opsets, "": 1 if 0 < ir_version < 3 else onnx.defs.onnx_opset_version()}


def _version(domain: str, scope: Scope) -> int:
    if domain in scope.opsets:
        return scope.opsets[domain]
    return onnx.defs.onnx_ml_opset_version() if domain == "ai.onnx.ml" else 1


def _check_names(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            raise ModelError(
                f"read the graph's {what}s", f"{name!r} stands twice" if name else f"an {what} has no name"
            )
        seen.add(name)


def _declared(proto: onnx.GraphProto) -> dict[str, Type]:
    """The declared types by name; where a name stands twice, shapes are merged."""
    types: dict[str, Type] = {}
    for info in (*proto.input, *proto.value_info, *proto.output):
        type_ = read_type(info.type, info.name)
        known = types.get(info.name)
        if isinstance(known, TensorType) and isinstance(type_, TensorType) and known.dtype is type_.dtype:
            type_ = TensorType(known.dtype, merge_shapes(known.shape, type_.shape))
        if type_ is not None:
            types[info.name] = type_
    return types
