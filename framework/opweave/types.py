"""What a value is: a tensor of some element type and shape, or one of ONNX's containers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweave.dtypes import DType

Dim: TypeAlias = int | str | None  # a size; a symbol of the model; not known
Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True)
class TensorType:
    """A dense tensor. `shape` is None where not even the rank is known."""

    dtype: DType
    shape: Shape | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape when every dimension is a number."""
        if self.shape is None:
            return None
        known = tuple(d for d in self.shape if isinstance(d, int))
        return known if len(known) == len(self.shape) else None

    @property
    def nbytes(self) -> int | None:
        """Bytes in memory; None where the shape is not known; 0 for strings."""
        shape = self.static_shape
        return None if shape is None else math.prod(shape) * self.dtype.itemsize

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class SequenceType:
    """An ordered list of values of one type."""

    element: Type

    def __str__(self) -> str:
        return f"sequence({self.element})"


@dataclass(frozen=True)
class OptionalType:
    """A value or nothing."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True)
class MapType:
    """A dictionary (`ai.onnx.ml`)."""

    key: DType
    value: Type

    def __str__(self) -> str:
        return f"map({self.key},{self.value})"


@dataclass(frozen=True)
class SparseType:
    """A sparse tensor; only ONNX's sparse constants have this type, and they are read as dense ones."""

    dtype: DType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse({TensorType(self.dtype, self.shape)})"


Type: TypeAlias = TensorType | SequenceType | OptionalType | MapType | SparseType


def merge_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """What is known from either; a number wins over a symbol, a symbol over nothing. Ranks must agree (else `a` stays)."""
    if a is None or b is None or len(a) != len(b):
        return a if a is not None else b
    return tuple(_better(x, y) for x, y in zip(a, b, strict=True))


def _better(x: Dim, y: Dim) -> Dim:
    for d in (x, y):
        if isinstance(d, int):
            return d
    return x if x is not None else y


def shape_text(shape: Sequence[Dim] | None) -> str:
    """`1x3x224x224`, `scalar`, `unknown`."""
    if shape is None:
        return "unknown"
    return "x".join("?" if d is None else str(d) for d in shape) or "scalar"
