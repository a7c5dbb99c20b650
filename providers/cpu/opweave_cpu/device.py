"""The `cpu` provider and its one device."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opweave import settings
from opweave.dtypes import DType
from opweave.errors import ProviderUnavailable, UsageError
from opweave.graph import Graph, Node, Value
from opweave.provider import Device, DeviceInfo, DeviceKind, HostDevice, Provider, Subgraph
from opweave.types import TensorType

if TYPE_CHECKING:
    from opweave_cpu.program import CpuProgram

_CLOCK = 2.5e9  # hertz, where all cores work
_FLOPS_PER_CYCLE = {"avx512": 64, "native": 64, "avx2": 32, "generic": 8}  # float32, two FMA units
_BANDWIDTH = 12e9  # bytes a second of one core
_LAYOUTS = ("auto", "all", "off")
_CONTROL = {"If", "Loop", "Scan"}


def core() -> Any:
    """The C++ core, with the instruction set that the settings name. Raises `ProviderUnavailable` where it is missing."""
    try:
        from opweave_cpu import _core
    except ImportError as e:
        raise ProviderUnavailable("the cpu provider", f"its C++ core cannot be loaded: {e}", "reinstall opweave") from e
    _select(settings.cpu_isa())
    limit = settings.memory_limit()
    if limit is not None:
        _core.set_memory_limit(limit)
    return _core


@functools.cache
def _select(isa: str | None) -> None:
    from opweave_cpu import _core

    if isa is None:
        return
    try:
        _core.select_isa(isa)
    except ValueError as e:
        usable = ", ".join(_core.usable_isas())
        raise UsageError("OPWEAVE_CPU_ISA", str(e), f"this machine has {usable}") from e


class CpuProvider(Provider):
    """Brings `cpu`: every machine has it, and it takes every operator."""

    name = "cpu"

    def devices(self) -> Sequence[DeviceInfo]:
        return [device_info()]

    def open(self, device_id: str, options: Mapping[str, Any]) -> Device:
        """Options: `threads` (of one call; default all that the process may use), `fuse` (default True),
        `layout` (blocked layout of regions of convolutions: `auto`, `all`, `off`; default `auto`)."""
        if device_id != "cpu":
            raise UsageError(f"device {device_id!r}", "this provider has only 'cpu'")
        unknown = set(options) - {"threads", "fuse", "layout"}
        if unknown:
            raise UsageError(f"option {sorted(unknown)[0]!r} of device 'cpu'", "it has threads, fuse and layout")
        layout = options.get("layout", "auto")
        if layout not in _LAYOUTS:
            raise UsageError(
                "option 'layout' of device 'cpu'", f"found {layout!r}", f"give one of {', '.join(_LAYOUTS)}"
            )
        return CpuDevice(_threads(options.get("threads")), bool(options.get("fuse", True)), layout)


def _threads(wanted: Any) -> int:
    if wanted is None:
        wanted = settings.threads() or core().usable_threads()
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise UsageError("option 'threads' of device 'cpu'", f"found {wanted!r}", "give a number of at least 1")
    return wanted


def device_info() -> DeviceInfo:
    """What this machine's processor can be expected to do."""
    native = core()
    threads = native.usable_threads()
    peak = _CLOCK * _FLOPS_PER_CYCLE.get(native.current_isa(), 8) * threads
    flops = {DType.FLOAT32: peak, DType.FLOAT64: peak / 2, DType.FLOAT16: peak / 2, DType.BFLOAT16: peak / 2}
    flops |= {DType.INT8: 2 * peak, DType.UINT8: 2 * peak}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return DeviceInfo(
        "cpu",
        DeviceKind.CPU,
        f"{_processor()}, {threads} threads, {native.current_isa()}",
        memory=memory,
        flops=flops,
        bandwidth=_BANDWIDTH * min(threads, 4),
        launch=2e-6,
        features=frozenset(native.usable_isas()),
    )


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((li.split(":", 1)[1].strip() for li in lines if li.startswith("model name")), platform.machine())


class CpuDevice(HostDevice):
    """Computes through the C++ core, and what it has no kernel for through the reference implementation."""

    def __init__(self, threads: int, fuse: bool = True, layout: str = "auto") -> None:
        self.info = device_info()
        self.threads = threads
        self.fuse = fuse
        self.layout = layout
        self._native = frozenset(core().operators())

    def unsupported(self, node: Node) -> str | None:
        if (node.domain, node.op_type) in self._native:
            return None
        if node.domain == "" and node.op_type in _CONTROL:
            inner = (self.unsupported(n) for body in node.bodies.values() for n in body.nodes)
            return next((reason for reason in inner if reason is not None), None)
        from opweave import reference

        return None if reference.supports(node) else f"neither a kernel nor a reference for {node.operator}"

    def peak(self) -> float:
        """Measured: multiply-adds in registers on all threads for some milliseconds, the best of a few times."""
        from opweave_cpu.program import CpuProgram

        y = Value("y", TensorType(DType.FLOAT32, (self.threads,)))
        spin = Node("peak", "Peak", (), (y,), {"rounds": 20_000, "tasks": self.threads}, "opweave")
        program = CpuProgram(Graph("peak", (), (y,), (spin,)), self.threads, fuse=False)
        rows = [row for _ in range(50) for row in program.profile([])[1]]
        return max(row.flops / row.seconds for row in rows)

    def compile(self, subgraph: Subgraph) -> CpuProgram:
        from opweave_cpu.program import CpuProgram

        return CpuProgram(subgraph, self.threads, self.fuse, self.layout)
