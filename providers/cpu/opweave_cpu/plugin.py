"""The `cpu` provider as a plugin. The C++ core is loaded when devices are asked for, not before."""

from __future__ import annotations

from collections.abc import Iterable

from opweave.plugins import hookimpl
from opweave.provider import Provider


@hookimpl
def opweave_providers() -> Iterable[Provider]:
    from opweave_cpu.device import CpuProvider

    return [CpuProvider()]
