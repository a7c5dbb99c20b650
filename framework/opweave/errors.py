"""Every error that a user can meet: what was asked, what was found, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OpweaveError(Exception):
    """Base of all errors of Opweave.

    `asked` says what was wanted, `found` what stood in the way, `hint` what to do; `context` names provider, device, node,
    op, shape where they are known. `exit_code` is that of the command line: 1 the thing asked for failed, 2 wrong usage or
    unreadable input.
    """

    exit_code = 1

    def __init__(self, asked: str, found: str = "", hint: str = "", **context: Any) -> None:
        super().__init__(asked, found, hint)
        self.asked, self.found, self.hint = asked, found, hint
        self.context: Mapping[str, Any] = {k: v for k, v in context.items() if v is not None}

    def __str__(self) -> str:
        where = ", ".join(f"{k} {v}" for k, v in self.context.items())
        text = self.asked + (f": {self.found}" if self.found else "") + (f" ({where})" if where else "")
        return f"{text}; {self.hint}" if self.hint else text

    def with_context(self, **context: Any) -> OpweaveError:
        """The same error with more of its place known; what is known already stays."""
        self.context = {**{k: v for k, v in context.items() if v is not None}, **self.context}
        return self


class UsageError(OpweaveError):
    """Wrong arguments: unknown device, unknown option, a name that the model does not have."""

    exit_code = 2


class ModelError(OpweaveError):
    """The model cannot be read, is not valid ONNX, or contradicts itself."""

    exit_code = 2


class InputError(OpweaveError):
    """An input of a call has the wrong name, dtype, rank or shape."""

    exit_code = 2


class ProviderUnavailable(OpweaveError):
    """A provider cannot serve on this machine: a package, a driver or the hardware is missing."""

    exit_code = 2


class PluginError(OpweaveError):
    """A plugin broke: it failed to load, or answered against the contract."""


class CompileRefused(OpweaveError):
    """A device does not compile what it claimed. `nodes` names the nodes at fault; empty: all of the subgraph."""

    def __init__(
        self, asked: str, found: str = "", hint: str = "", nodes: tuple[str, ...] = (), **context: Any
    ) -> None:
        super().__init__(asked, found, hint, **context)
        self.nodes = nodes


class PlanError(OpweaveError):
    """No plan exists: a node that no device supports, or a pin that cannot hold."""


class ExecutionError(OpweaveError):
    """A node failed while it ran."""
