"""What is known of the values seen so far."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace

from opweave.dtypes import DType
from opweave.graph import Array, Constant, Value
from opweave.types import Dim, OptionalType, SequenceType, TensorType, Type

SMALL = 1 << 20
"""Bytes of a constant that folding may read or make."""


@dataclass(frozen=True)
class Dims:
    """The elements of a scalar (`vector` False) or of a vector; None where an element is not known."""

    items: tuple[Dim, ...]
    vector: bool = True


@dataclass
class Scope:
    """The best knowledge of each value by name; `dims` is that of integers known in part.

    A body's scope sees its outer one and does not change it. `strict` is False where nodes
    may never run: there, contradictions are left for the run to find.
    """

    values: MutableMapping[str, Value] = field(default_factory=dict)
    dims: MutableMapping[str, Dims] = field(default_factory=dict)
    strict: bool = True
    loops: int = 0

    def body(self, loops: int = 0) -> Scope:
        """The scope of a body that stands in this one; `loops` is 1 for the body of a loop."""
        return Scope(ChainMap({}, self.values), ChainMap({}, self.dims), strict=False, loops=self.loops + loops)

    def resolve(self, value: Value | None) -> Value | None:
        """The value that stands for `value` from here on: typed, constant, or another one altogether."""
        if value is None:
            return None
        known = self.values.get(value.name)
        if known is not None:
            return known
        return self.declare(value)

    def present(self, value: Value) -> Value:
        """`resolve` of a value that is there."""
        resolved = self.resolve(value)
        assert resolved is not None
        return resolved

    def declare(self, value: Value) -> Value:
        """A value that no node has written yet: a constant, or a capture of an unknown scope."""
        if value.constant is not None and value.type is None:
            value = replace(value, type=_constant_type(value.constant))
        self.values[value.name] = value
        return value

    def write(self, value: Value, value_type: Type | None) -> Value:
        """A node's output. What the model declares is believed only for the element type: exporters err in shapes."""
        if value_type is None:
            value_type = without_shapes(value.type)
        self.values[value.name] = made = Value(value.name, value_type)
        return made

    def write_constant(self, value: Value, array: Array) -> Value:
        """An output whose data is known."""
        constant = Constant(array)
        self.values[value.name] = made = Value(value.name, _constant_type(constant), constant)
        return made

    def alias(self, value: Value, other: Value) -> None:
        """From here on `other` is read wherever `value` was."""
        self.values[value.name] = other


def without_shapes(declared: Type | None) -> Type | None:
    """The type with element types only."""
    match declared:
        case TensorType():
            return TensorType(declared.dtype)
        case SequenceType() | OptionalType():
            element = without_shapes(declared.element)
            return None if element is None else replace(declared, element=element)
    return declared


def _constant_type(constant: Constant) -> TensorType:
    return TensorType(DType.of(constant.array.dtype), tuple(constant.array.shape))


def small_data(value: Value | None) -> Array | None:
    """The data of a small constant."""
    if value is None or value.constant is None or value.constant.nbytes > SMALL:
        return None
    return value.constant.array
