"""The C++ core of the `cpu` provider."""

from collections.abc import Mapping, Sequence
from typing import Any

class Unsupported(NotImplementedError):
    """There is no native kernel for the node."""

class BadOperand(ValueError):
    """An operand breaks the operator's contract."""

def eager(
    op: str,
    domain: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[tuple[Any, int] | None],
    outputs: Sequence[int],
    threads: int = 1,
    constant: bool = False,
) -> list[tuple[Any, int] | None]: ...
def operators() -> list[tuple[str, str]]: ...
def current_isa() -> str: ...
def usable_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def usable_threads() -> int: ...
