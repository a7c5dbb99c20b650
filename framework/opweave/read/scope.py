"""What a node sees while its graph is read: values, operator sets, and the attributes of the function it stands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from opweave.graph import Value

FunctionKey = tuple[str, str, str]  # domain, name, overload


@dataclass
class Scope:
    """One graph's names. A body looks names up in `outer` too; a function's body begins anew."""

    opsets: Mapping[str, int]
    outer: Scope | None = None
    values: dict[str, Value] = field(default_factory=dict)
    attributes: Mapping[str, tuple[onnx.AttributeProto, Scope]] = field(default_factory=dict)
    calls: tuple[FunctionKey, ...] = ()
    depth: int = 0
    omitted: frozenset[str] = frozenset()  # a function's inputs that the call leaves out

    def find(self, name: str) -> Value | None:
        """The value of that name here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def omits(self, name: str) -> bool:
        """Whether the name is an input of the function that its call leaves out."""
        return name in self.omitted or (self.outer is not None and name not in self.values and self.outer.omits(name))

    def body(self) -> Scope:
        """The scope of a body in this one."""
        return Scope(self.opsets, self, {}, self.attributes, self.calls, self.depth + 1)


def normal_domain(domain: str) -> str:
    """`ai.onnx` has two spellings."""
    return "" if domain == "ai.onnx" else domain


def read_opsets(protos: list[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Domain to version."""
    return {normal_domain(p.domain): p.version for p in protos}
