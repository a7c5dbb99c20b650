"""The plugin: its one hook. It imports nothing heavy; the provider is made only when Opweave asks for it."""

from __future__ import annotations

from collections.abc import Iterable

from opweave.plugins import hookimpl
from opweave.provider import Provider


@hookimpl
def opweave_providers() -> Iterable[Provider]:
    """The providers that this package brings."""
    from opweave_npu_simulator.device import NpuProvider

    return [NpuProvider()]
