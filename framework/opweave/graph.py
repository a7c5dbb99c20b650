"""The graph that partitioner, planner and providers see: frozen, typed, in topological order.

Names are unique in a graph and its bodies together (a body never shadows an outer name), so a value is known by its name
everywhere. Every node is in the newest form of its ONNX operator: the reader upgrades older ones; the few it cannot keep
their `version`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from opweave.types import TensorType, Type

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, np.dtype[Any]]


class Constant:
    """The data of a constant value, read when first asked for, identified by its content.

    Two constants with equal dtype, shape and bytes have the same `key`; weights are packed or uploaded once per key.
    """

    def __init__(self, load: Callable[[], Any] | Any, nbytes: int | None = None) -> None:
        self._load = load if callable(load) else (lambda: load)
        self._nbytes = nbytes

    @functools.cached_property
    def array(self) -> Array:
        """The tensor, read-only. Strings are object arrays of `str`."""
        array = self._load()
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return array  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        return self._nbytes if self._nbytes is not None else int(self.array.nbytes)

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 over dtype, shape and bytes, in hexadecimal."""
        array = self.array
        digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
        if array.dtype == object:
            digest.update("\0".join(map(str, array.ravel())).encode())
        else:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Constant({self.nbytes} bytes)"


@dataclass(frozen=True)
class Value:
    """One value: `type` is None where nothing is known; `constant` holds the data of a constant."""

    name: str
    type: Type | None = None
    constant: Constant | None = field(default=None, compare=False)

    @property
    def tensor(self) -> TensorType | None:
        """The type when it is a tensor's."""
        return self.type if isinstance(self.type, TensorType) else None

    def __str__(self) -> str:
        return f"{self.name}: {self.type or '?'}"


@dataclass(frozen=True)
class Node:
    """One operator.

    `attributes` holds plain Python: int, float, str, list of these, NumPy arrays (tensors), `Graph` (bodies), `Type`.
    An omitted input or output is None. `domain` is "" for ai.onnx; `version` is the operator set that the form is of.
    """

    name: str
    op_type: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    version: int = 0

    @property
    def operator(self) -> str:
        """`Conv`, `com.microsoft.FastGelu`."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @functools.cached_property
    def bodies(self) -> Mapping[str, Graph]:
        """The graphs among the attributes (If, Loop, Scan, SequenceMap), by attribute name."""
        return {k: v for k, v in self.attributes.items() if isinstance(v, Graph)}

    def reads(self) -> Iterator[Value]:
        """Inputs that are present, and outer values that the bodies capture; each name once."""
        seen: set[str] = set()
        captured = (v for body in self.bodies.values() for v in body.captures)
        for value in (*self.inputs, *captured):
            if value is not None and value.name not in seen:
                seen.add(value.name)
                yield value

    def writes(self) -> Iterator[Value]:
        """Outputs that are present."""
        return (v for v in self.outputs if v is not None)

    def __str__(self) -> str:
        ins = ", ".join(v.name if v else "-" for v in self.inputs)
        outs = ", ".join(v.name if v else "-" for v in self.outputs)
        return f"{outs} = {self.operator}({ins})"


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order. `inputs` are fed by the caller; `outputs` may repeat a value, or be an input or constant.

    Constants are not listed: they are the values with a `constant`. `opsets` are those of the model as it was read.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int] = field(default_factory=dict)

    @functools.cached_property
    def producers(self) -> Mapping[str, Node]:
        """Value name to the node of this graph (not of its bodies) that writes it."""
        return {v.name: n for n in self.nodes for v in n.writes()}

    @functools.cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """Value name to the nodes of this graph that read it, captures by bodies included."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in node.reads():
                found.setdefault(value.name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @functools.cached_property
    def values(self) -> Mapping[str, Value]:
        """Every value of this graph (not of its bodies) by name: inputs, constants, captures, results."""
        every = [*self.inputs, *(v for n in self.nodes for v in (*n.reads(), *n.writes())), *self.outputs]
        return {v.name: v for v in every}

    @functools.cached_property
    def captures(self) -> tuple[Value, ...]:
        """Values that come from outside: neither inputs, nor constants, nor made here. Empty for a whole model."""
        own = {v.name for v in self.inputs} | set(self.producers)
        every = [v for n in self.nodes for v in n.reads()] + list(self.outputs)
        return tuple({v.name: v for v in every if v.name not in own and v.constant is None}.values())

    @functools.cached_property
    def constants(self) -> Mapping[str, Value]:
        """The constant values that this graph's nodes and outputs use (not those only its bodies hold)."""
        every = [v for n in self.nodes for v in n.reads()] + list(self.outputs)
        return {v.name: v for v in every if v.constant is not None}

    def walk(self) -> Iterator[Node]:
        """Every node, those of bodies after the node that holds them."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.walk()

    def with_types(self, types: Mapping[str, Type]) -> Graph:
        """The same graph with the types of some values replaced, in bodies too."""

        def value(v: Value | None) -> Value | None:
            return v if v is None or v.name not in types else replace(v, type=types[v.name])

        return self.map_values(value)

    def map_values(self, change: Callable[[Value | None], Value | None]) -> Graph:
        """The same graph with `change` applied to every value, in bodies too."""

        def many(values: Iterable[Value]) -> tuple[Value, ...]:
            return tuple(w for w in map(change, values) if w is not None)

        nodes = tuple(
            replace(
                n,
                inputs=tuple(map(change, n.inputs)),
                outputs=tuple(map(change, n.outputs)),
                attributes={k: a.map_values(change) if isinstance(a, Graph) else a for k, a in n.attributes.items()},
            )
            for n in self.nodes
        )
        return replace(self, inputs=many(self.inputs), outputs=many(self.outputs), nodes=nodes)

    def to_onnx(self) -> onnx.ModelProto:
        """The graph as a model of its own, with its weights, in the lowest opset that has all its operators' forms."""
        from opweave.export import to_onnx

        return to_onnx(self)
