"""Opweave runs one ONNX model across every device a machine has.

>>> session = opweave.load("model.onnx", devices=["cuda:0", "cpu"])
>>> outputs = session.run({"x": x})
>>> print(session.plan)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweave.api import devices, load, plan
    from opweave.errors import CompileRefused, OpweaveError, ProviderUnavailable
    from opweave.plugins import hookimpl
    from opweave.provider import Device, DeviceInfo, HostBuffer, HostDevice, Program, Provider
    from opweave.session import Session

__version__ = "0.1.0"
__all__ = [
    "CompileRefused",
    "Device",
    "DeviceInfo",
    "HostBuffer",
    "HostDevice",
    "OpweaveError",
    "Program",
    "Provider",
    "ProviderUnavailable",
    "Session",
    "devices",
    "hookimpl",
    "load",
    "plan",
]

# Resolved at first use (PEP 562): importing opweave costs little, and no import cycle arises with the providers.
_HOMES = {
    "load": "api",
    "plan": "api",
    "devices": "api",
    "Session": "session",
    "hookimpl": "plugins",
    "OpweaveError": "errors",
    "CompileRefused": "errors",
    "ProviderUnavailable": "errors",
    "Device": "provider",
    "DeviceInfo": "provider",
    "HostBuffer": "provider",
    "HostDevice": "provider",
    "Program": "provider",
    "Provider": "provider",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'opweave' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"opweave.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
