"""The forward pass: node by node in order, types are inferred, known data folded, decided branches inlined.

Declared shapes are not believed (exporters write dummies); the types of the inputs are. Every value keeps its name, so
outputs of the graph stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from opweave.dtypes import DType
from opweave.graph import Array, Constant, Graph, Node, Value
from opweave.specialise import control, fold, symbols
from opweave.specialise.infer import infer
from opweave.specialise.scope import Scope, small_data
from opweave.types import OptionalType, TensorType, Type, merge_shapes


def specialise(graph: Graph, types: Mapping[str, Type], values: Mapping[str, Array] | None = None) -> Graph:
    """The graph with the best known type of every value for inputs of `types`; `values` are inputs with known data.

    Dimensions of `types` may be symbols. Nodes whose results are known and small become constants, an If with a known
    condition becomes its branch, and nodes that nothing needs any more disappear. Raises `ModelError` where an operator
    cannot have such operands.
    """
    scope = Scope()
    inputs = _bind(graph.inputs, types)
    for value in inputs:
        data = (values or {}).get(value.name)
        scope.values[value.name] = value if data is None else replace(value, constant=Constant(np.asarray(data)))
    nodes, outputs = forward(graph, scope, named=True)
    return replace(graph, inputs=inputs, outputs=outputs, nodes=nodes)


def _bind(inputs: Sequence[Value], types: Mapping[str, Type]) -> tuple[Value, ...]:
    """Inputs with the given types; symbols that these settle are settled in the declared types of the others."""
    sizes: dict[str, int] = {}
    for value in inputs:
        given = types.get(value.name)
        if isinstance(given, TensorType) and value.tensor and value.tensor.shape and given.shape:
            pairs = zip(value.tensor.shape, given.shape, strict=False)
            sizes.update((s, n) for s, n in pairs if isinstance(s, str) and isinstance(n, int))
    return tuple(replace(v, type=types.get(v.name) or _settle(v.type, sizes)) for v in inputs)


def _settle(declared: Type | None, sizes: Mapping[str, int]) -> Type | None:
    if not isinstance(declared, TensorType) or declared.shape is None:
        return declared
    return replace(declared, shape=tuple(sizes.get(d, d) if isinstance(d, str) else d for d in declared.shape))


def forward(graph: Graph, scope: Scope, named: bool = False) -> tuple[tuple[Node, ...], tuple[Value, ...]]:
    """The specialised nodes and outputs of a graph whose inputs are in `scope`; `named`: outputs keep their names."""
    nodes: list[Node] = []
    _run(graph.nodes, scope, nodes, frozenset(v.name for v in graph.outputs) if named else frozenset())
    outputs = tuple(_output(v, scope, nodes) if named else scope.present(v) for v in graph.outputs)
    return _needed(nodes, outputs), outputs


def _run(source: Sequence[Node], scope: Scope, nodes: list[Node], kept: frozenset[str]) -> None:
    for node in source:
        resolved = replace(node, inputs=tuple(scope.resolve(v) for v in node.inputs))
        if node.op_type == "If" and not node.domain and _inline(resolved, scope, nodes, kept):
            continue
        if node.op_type == "Identity" and not node.domain and _forwarded(resolved, scope, kept):
            continue
        nodes.extend(_specialised(resolved, node, scope))


def _specialised(node: Node, source: Node, scope: Scope) -> list[Node]:
    """The node with its types, or nothing where its results are known. `source` is the node before its inputs were."""
    if not node.domain and node.op_type in control.OPERATORS:
        return [control.OPERATORS[node.op_type](node, scope)]
    types = list(infer(node, source, scope.strict))
    known = fold.from_types(node) or fold.evaluated(node, types) or _known_in_part(node, types, scope)
    if known is not None:
        for value, array in zip(node.outputs, known, strict=False):
            if value is not None:
                scope.write_constant(value, array)
        return []
    padded = [*types, *[None] * len(node.outputs)]
    outputs = tuple(None if v is None else scope.write(v, t) for v, t in zip(node.outputs, padded, strict=False))
    bodies = {name: control.captured(body, scope) for name, body in node.bodies.items()}
    return [replace(node, outputs=outputs, attributes={**node.attributes, **bodies} if bodies else node.attributes)]


def _known_in_part(node: Node, types: list[Type | None], scope: Scope) -> Sequence[Array] | None:
    """Follows partly known shapes: sharpens `types`, notes what is known, returns the result where that is everything."""
    first = types[0] if types else None
    if node.domain or not isinstance(first, TensorType):
        return None
    target = symbols.target_shape(node, scope.dims)
    if target is not None:
        types[0] = replace(first, shape=merge_shapes(first.shape, target))
    found = symbols.propagate(node, scope.dims) if first.dtype in (DType.INT32, DType.INT64) else None
    if found is None or node.outputs[0] is None:
        return None
    sizes = [d for d in found.items if isinstance(d, int)]
    if len(sizes) == len(found.items):
        return [np.array(sizes if found.vector else sizes[0], first.dtype.numpy)]
    scope.dims[node.outputs[0].name] = found
    return None


def _forwarded(node: Node, scope: Scope, kept: frozenset[str]) -> bool:
    """Identity disappears where its result is not an output of the graph, or is constant."""
    (source,), (result,) = node.inputs[:1], node.outputs[:1]
    if source is None or result is None:
        return False
    if source.constant is not None:
        scope.values[result.name] = replace(source, name=result.name)
        return True
    if result.name in kept or isinstance(result.type, OptionalType) != isinstance(source.type, OptionalType):
        return False
    scope.alias(result, source)
    return True


def _inline(node: Node, scope: Scope, nodes: list[Node], kept: frozenset[str]) -> bool:
    """Replaces an If whose condition is known by the nodes of its branch."""
    condition = small_data(node.inputs[0])
    if condition is None or condition.size != 1:
        return False
    branch: Graph = node.attributes["then_branch" if condition.reshape(()) else "else_branch"]
    _run(branch.nodes, scope, nodes, kept)
    for result, made in zip(node.outputs, branch.outputs, strict=False):
        if result is None:
            continue
        source = scope.present(made)
        if source.constant is not None:
            scope.values[result.name] = replace(source, name=result.name)
        elif result.name in kept:
            nodes.append(_identity(source, scope.write(result, source.type)))
        else:
            scope.alias(result, source)
    return True


def _output(value: Value, scope: Scope, nodes: list[Node]) -> Value:
    """The graph's output under its own name."""
    known = scope.present(value)
    if known.name == value.name:
        return known
    result = scope.write(value, known.type)
    nodes.append(_identity(known, result))
    return result


def _identity(source: Value, result: Value) -> Node:
    return Node(f"{result.name}.identity", "Identity", (source,), (result,))


def _needed(nodes: Sequence[Node], outputs: Sequence[Value]) -> tuple[Node, ...]:
    """The nodes that something needs."""
    wanted = {v.name for v in outputs}
    found = []
    for node in reversed(nodes):
        if any(v.name in wanted for v in node.writes()):
            found.append(node)
            wanted.update(v.name for v in node.reads())
    return tuple(reversed(found))
