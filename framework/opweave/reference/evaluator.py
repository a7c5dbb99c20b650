"""Evaluates nodes and graphs with NumPy.

An operator is looked up in this order: control flow (here, so that bodies go through the same path), own
implementations (operators that ONNX's reference lacks or gets wrong, and com.microsoft), `onnx.reference`, and the
function that defines the operator. `onnx.reference` is imported when the first node needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from opweave.errors import ExecutionError, OpweaveError
from opweave.graph import Graph, Node, Value

Kernel: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...]]
"""Inputs (None where omitted) and captured outer values by name, to outputs (None where the node has none)."""

_KEY = "_reference_kernel"


def supports(node: Node) -> bool:
    """Whether the reference can evaluate the node, its bodies included."""
    try:
        prepare(node)
    except OpweaveError:
        return False
    return all(supports(inner) for body in node.bodies.values() for inner in body.nodes)


def prepare(node: Node) -> Kernel:
    """The node's implementation, made once per node. Raises `ExecutionError` where there is none."""
    kernel: Kernel | None = node.__dict__.get(_KEY)
    if kernel is None:
        kernel = node.__dict__[_KEY] = _find(node)
    return kernel


def _find(node: Node) -> Kernel:
    from opweave.reference import contrib, control, ml, onnx_operators, operators

    for table in (control.OPERATORS, operators.OPERATORS, ml.OPERATORS, contrib.OPERATORS):
        implementation = table.get((node.domain, node.op_type))
        if implementation is not None:
            return implementation(node)
    kernel = onnx_operators.find(node)
    if kernel is None:
        raise ExecutionError(
            f"the reference implementation of {node.operator}",
            "there is none",
            node=node.name,
        )
    return kernel


def evaluate(node: Node, inputs: Sequence[Any | None], outer: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """The node's outputs. `outer` holds the values that its bodies capture.

    Tensors are NumPy arrays (strings: object arrays of `str`), sequences lists, maps dictionaries, empty optionals None.
    """
    kernel = prepare(node)
    try:
        with np.errstate(all="ignore"):
            results = kernel(inputs, outer or {})
    except OpweaveError as e:
        raise e.with_context(node=node.name, op=node.operator) from e.__cause__
    except Exception as e:
        shapes = ", ".join(_describe(x) for x in inputs)
        raise ExecutionError(
            f"running {node.operator} on ({shapes})", f"{type(e).__name__}: {e}", node=node.name, op=node.operator
        ) from e
    return tuple(_normal(r) for r in results)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    return "-" if value is None else type(value).__name__


def _normal(value: Any) -> Any:
    """Scalars become arrays, fixed-width strings become objects, in containers too."""
    if isinstance(value, list | tuple):
        return [_normal(v) for v in value]
    if isinstance(value, np.generic | int | float | str):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "USTO":
        return np.frompyfunc(_text, 1, 1)(value) if value.ndim else np.array(_text(value.item()), object)
    return value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def evaluate_graph(graph: Graph, inputs: Mapping[str, Any], outer: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The graph's outputs by name. `outer` holds what it captures; an input with a default may be left out."""
    values = {v.name: (outer or {})[v.name] for v in graph.captures}
    for value in graph.inputs:
        if value.name in inputs:
            values[value.name] = inputs[value.name]
        elif value.constant is None:
            raise ExecutionError(f"evaluating {graph.name!r}", f"no value for its input {value.name!r}")
    last = _last_readers(graph)
    for index, node in enumerate(graph.nodes):
        captured = {v.name: _fetch(v, values) for body in node.bodies.values() for v in body.captures}
        results = evaluate(node, [_fetch(v, values) for v in node.inputs], captured)
        values.update((v.name, r) for v, r in zip(node.outputs, results, strict=False) if v is not None)
        for name in last.get(index, ()):
            values.pop(name, None)
    return {v.name: _fetch(v, values) for v in graph.outputs}


def _fetch(value: Value | None, values: Mapping[str, Any]) -> Any:
    if value is None:
        return None
    if value.name in values:
        return values[value.name]
    if value.constant is not None:
        return value.constant.array
    raise ExecutionError("evaluating a graph", f"nothing produces the value {value.name!r}")


def _last_readers(graph: Graph) -> Mapping[int, list[str]]:
    """Index of a node to the values that nothing reads after it."""
    last = {v.name: i for i, n in enumerate(graph.nodes) for v in (*n.reads(), *n.writes())}
    kept = {v.name for v in graph.outputs}
    found: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in kept:
            found.setdefault(index, []).append(name)
    return found
