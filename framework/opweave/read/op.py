"""One operator while it is being read: mutable, so that the rules of `upgrade` can change it step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweave.dtypes import DType
from opweave.graph import Array, Constant, Node, Value
from opweave.read.check import newest_version
from opweave.read.names import Names
from opweave.types import TensorType, Type


@dataclass
class Op:
    """A node to be; `version` is the operator set that its form is of."""

    name: str
    domain: str
    op_type: str
    inputs: list[Value | None]
    outputs: list[Value | None]
    attributes: dict[str, Any]
    version: int
    emitter: Emitter

    def input(self, index: int) -> Value | None:
        """The input, None where it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int) -> Value | None:
        """The output, None where it is omitted."""
        return self.outputs[index] if index < len(self.outputs) else None

    def set_input(self, index: int, value: Value | None) -> None:
        """Replaces or appends an input; those between are omitted."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = value

    def take(self, name: str, default: Any = None) -> Any:
        """Removes an attribute and returns it."""
        return self.attributes.pop(name, default)


class Emitter:
    """Makes the nodes and constants of one graph."""

    def __init__(self, values: Names, nodes: Names) -> None:
        self._values, self._nodes = values, nodes
        self.nodes: list[Node] = []

    def constant(self, data: Any, dtype: Any = None, hint: str = "constant") -> Value:
        """A constant value."""
        array = np.asarray(data, dtype)
        type_ = TensorType(DType.of(array.dtype), array.shape)
        return Value(self._values.unique(hint), type_, Constant(array))

    def value(self, like: Value | None, type_: Type | None = None) -> Value:
        """A new value, named after another one."""
        return Value(self._values.unique(like.name if like else "value"), type_)

    def add(self, op: Op) -> None:
        """The finished operator becomes a node."""
        inputs, outputs = _trimmed(op.inputs), _trimmed(op.outputs)
        name = self._nodes.unique(op.name or op.op_type)
        self.nodes.append(Node(name, op.op_type, inputs, outputs, op.attributes, op.domain, op.version))

    def node_name(self, hint: str) -> str:
        """A new node name."""
        return self._nodes.unique(hint)

    def emit(self, op_type: str, inputs: Sequence[Value | None], out: Value | None = None, **attributes: Any) -> Value:
        """A node of ai.onnx in its newest form, with one output, which is `out` or a new value."""
        out = out or self.value(next((v for v in inputs if v is not None), None))
        version = newest_version(op_type) or 0
        self.add(Op("", "", op_type, list(inputs), [out], attributes, version, self))
        return out

    def scalar_like(self, number: float, like: Value | None, hint: str = "constant") -> Value:
        """A scalar of the element type of `like`, known or not."""
        return self.tensor_like(np.array(number, np.float32), like, hint)

    def tensor_like(self, array: Array, like: Value | None, hint: str = "constant") -> Value:
        """A tensor converted to the element type of `like`, known or not."""
        if like is not None and like.tensor is not None:
            return self.constant(array.astype(like.tensor.dtype.numpy), hint=hint)
        return self.emit("CastLike", [self.constant(array, hint=hint), like])


def _trimmed(values: Sequence[Value | None]) -> tuple[Value | None, ...]:
    """Without the omitted ones at the end."""
    count = len(values)
    while count and values[count - 1] is None:
        count -= 1
    return tuple(values[:count])
