"""Fusion: what follows a convolution or a product goes into its kernel; chains of elementwise operators become tapes.

A fused node remembers the nodes that it stands for: where the core's kernel refuses it, those run through the reference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opweave.dtypes import DType
from opweave.graph import Graph, Node, Value

from opweave_cpu import tape

Operators = Collection[tuple[str, str]]

# Activations that the epilogues know: their attributes in the order of `activation_params`, with ONNX's defaults.
_ACTIVATIONS: Mapping[str, Mapping[str, float]] = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.01},
    "ThresholdedRelu": {"alpha": 1.0},
    "Sigmoid": {},
    "Tanh": {},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "HardSwish": {},
    "Elu": {"alpha": 1.0},
    "Softsign": {},
    "Softplus": {},
}


@dataclass(frozen=True)
class Fused:
    """A graph with fused nodes, and by the name of each one's result what it stands for."""

    graph: Graph
    origins: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Layer:
    """A convolution or product being extended: its nodes so far, the last one's result, and what the kernel gets."""

    nodes: tuple[Node, ...]
    op_type: str
    inputs: tuple[Value | None, ...]  # two operands, bias, residual
    attributes: Mapping[str, Any]

    @property
    def result(self) -> Value:
        value = self.nodes[-1].outputs[0]
        assert value is not None
        return value


def fuse(graph: Graph, native: Operators) -> Fused:
    """Everything that can be fused, in bodies too."""
    origins: dict[str, tuple[Node, ...]] = {}
    return Fused(_fuse(graph, frozenset(native), origins), origins)


def _fuse(graph: Graph, native: Operators, origins: dict[str, tuple[Node, ...]]) -> Graph:
    nodes = tuple(_with_bodies(n, native, origins) for n in graph.nodes)
    graph = replace(graph, nodes=nodes)
    graph = _put(graph, _layers(graph, native), origins)
    if ("opweave", "Tape") not in native:
        return graph
    return _put(graph, ((group, _tape(group)) for group in tape.group_elementwise(graph)), origins)


def _with_bodies(node: Node, native: Operators, origins: dict[str, tuple[Node, ...]]) -> Node:
    if not node.bodies:
        return node
    bodies = {name: _fuse(body, native, origins) for name, body in node.bodies.items()}
    return replace(node, attributes={**node.attributes, **bodies})


def _put(graph: Graph, found: Iterable[tuple[tuple[Node, ...], Node]], origins: dict[str, tuple[Node, ...]]) -> Graph:
    """Each group's last node replaced by the fused one, the others gone. Results name nodes: their names are unique."""
    last: dict[str, Node] = {}
    inner: set[str] = set()
    for group, fused in found:
        last[result_name(fused)] = fused
        inner.update(map(result_name, group[:-1]))
        origins[result_name(fused)] = group
    nodes = (last.get(result_name(n), n) for n in graph.nodes if result_name(n) not in inner)
    return replace(graph, nodes=tuple(nodes)) if last else graph


def result_name(node: Node) -> str:
    """The name of the first output."""
    return node.outputs[0].name if node.outputs and node.outputs[0] is not None else ""


def _tape(group: tuple[Node, ...]) -> Node:
    attributes, inputs, result = tape.build(group)
    return Node(group[-1].name, "Tape", tuple(inputs), (result,), attributes, "opweave")


def _layers(graph: Graph, native: Operators) -> Iterable[tuple[tuple[Node, ...], Node]]:
    taken: set[str] = set()
    kept = {v.name for v in graph.outputs}
    for node in graph.nodes:
        layer = _begin(node)
        if layer is None or ("opweave", layer.op_type) not in native:
            continue
        layer = _extend(graph, layer, kept, taken)
        if len(layer.nodes) > 1:
            taken.update(map(result_name, layer.nodes))
            name = layer.nodes[0].name
            yield layer.nodes, Node(name, layer.op_type, layer.inputs, (layer.result,), layer.attributes, "opweave")


def _begin(node: Node) -> _Layer | None:
    result = node.outputs[0] if node.outputs else None
    if node.domain or result is None or result.tensor is None or result.tensor.dtype is not DType.FLOAT32:
        return None
    if node.op_type == "Conv":
        return _Layer((node,), "FusedConv", _padded(node.inputs), node.attributes)
    if node.op_type == "MatMul":
        return _Layer((node,), "FusedMatMul", _padded(node.inputs), {})
    if node.op_type == "Gemm" and node.attributes.get("beta", 1.0) == 1.0:
        attributes = {k: v for k, v in node.attributes.items() if k != "beta"}
        return _Layer((node,), "FusedMatMul", _padded(node.inputs), attributes)
    return None


def _padded(inputs: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    return inputs + (None,) * (4 - len(inputs))


def _extend(graph: Graph, layer: _Layer, kept: set[str], taken: set[str]) -> _Layer:
    """Bias or residual first, then one activation; the kernel computes them in this order."""
    for step in (_add, _add, _activate):
        reader = _only_reader(graph, layer.result, kept)
        if reader is not None and result_name(reader) not in taken:
            layer = step(layer, reader) or layer
    return layer


def _only_reader(graph: Graph, value: Value, kept: set[str]) -> Node | None:
    readers = graph.readers.get(value.name, ())
    if value.name in kept or len(readers) != 1 or readers[0].bodies:
        return None
    return readers[0]


def _add(layer: _Layer, node: Node) -> _Layer | None:
    if node.domain or node.op_type not in ("Add", "Sum") or len(node.inputs) != 2:
        return None
    others = [v for v in node.inputs if v is not None and v.name != layer.result.name]
    out = node.outputs[0]
    if len(others) != 1 or out is None or out.tensor is None or others[0].tensor is None:
        return None
    shape, other = layer.result.tensor, others[0].tensor
    if shape is None or shape.static_shape is None or shape.shape != out.tensor.shape:
        return None
    if _is_bias(layer, others[0]):
        slot = 2
    elif other.shape == shape.shape and other.dtype is DType.FLOAT32:
        slot = 3
    else:
        return None
    if layer.inputs[slot] is not None:
        return None
    inputs = tuple(others[0] if i == slot else v for i, v in enumerate(layer.inputs))
    return replace(layer, nodes=(*layer.nodes, node), inputs=inputs)


def _is_bias(layer: _Layer, value: Value) -> bool:
    """A vector along the columns of a product. That of a convolution is folded into its own by the passes before."""
    result, tensor = layer.result.tensor, value.tensor
    if layer.op_type != "FusedMatMul" or result is None or tensor is None or tensor.dtype is not DType.FLOAT32:
        return False
    return result.shape is not None and len(result.shape) > 1 and tensor.shape == result.shape[-1:]


def _activate(layer: _Layer, node: Node) -> _Layer | None:
    if node.domain or node.inputs[0] is None or node.inputs[0].name != layer.result.name:
        return None
    found = _activation(node)
    if found is None:
        return None
    attributes = {**layer.attributes, "activation": found[0], "activation_params": found[1]}
    return replace(layer, nodes=(*layer.nodes, node), attributes=attributes)


def _activation(node: Node) -> tuple[str, list[float]] | None:
    """The epilogue's name and parameters for a node."""
    if node.op_type in _ACTIVATIONS:
        defaults = _ACTIVATIONS[node.op_type]
        return node.op_type, [float(node.attributes.get(k, d)) for k, d in defaults.items()]
    if node.op_type == "Swish":
        return ("Silu", []) if node.attributes.get("alpha", 1.0) == 1.0 else None
    if node.op_type == "Gelu":
        return ("GeluTanh" if node.attributes.get("approximate", "none") == "tanh" else "Gelu"), []
    if node.op_type == "Clip":
        low, high = (_bound(node, i, d) for i, d in ((1, float("-inf")), (2, float("inf"))))
        return None if low is None or high is None else ("Clip", [low, high])
    return None


def _bound(node: Node, index: int, default: float) -> float | None:
    """A bound of Clip; None where it is no constant scalar."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return default
    array = value.constant.array if value.constant is not None else None
    return float(array.reshape(())) if array is not None and array.size == 1 else None
