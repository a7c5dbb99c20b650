"""A compiled stage of the `cpu` device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from opweave.graph import Graph, Value
from opweave.memory import Life, plan_memory
from opweave.provider import Buffer, HostBuffer, KernelTime, Program, Stream

from opweave_cpu import _core
from opweave_cpu.affine import normalizations
from opweave_cpu.crossing import plain
from opweave_cpu.fuse import Fused
from opweave_cpu.fuse import fuse as fuse_graph
from opweave_cpu.layout import CHOICES, KERNEL, blocked_regions
from opweave_cpu.lower import Lowering
from opweave_cpu.quantised import integer_products


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a program: its arena (one per call in flight), the least any arena could be, its constants, workspace."""

    arena: int
    lower_bound: int
    constants: int
    workspace: int


class CpuProgram(Program):
    """Runs a graph inside the core, without the GIL but where a node has no kernel."""

    def __init__(self, graph: Graph, threads: int = 1, fuse: bool = True, layout: str = "auto") -> None:
        native = _core.operators()
        fused = fuse_graph(normalizations(integer_products(graph)), native) if fuse else Fused(graph)
        if KERNEL in native:
            fused = blocked_regions(fused, CHOICES[layout])
        lowering = Lowering(native, fused.origins)
        self._parts = lowering.values, lowering.block(fused.graph), threads
        self._constants = sum(int(v[2].nbytes) for v in lowering.values if isinstance(v[2], np.ndarray))
        self._inputs = [_extension(v) for v in graph.inputs]
        self._outputs = [_extension(v) for v in graph.outputs]
        self._build(trusting=True)
        simple = not any(self._inputs) and not any(self._outputs) and not self.calls()
        self.call: Callable[[Sequence[Any]], list[Any]] = self._core.call if simple else self._call
        """Outputs for inputs, in the graph's order: arrays of the graph's dtypes, or objects. Outputs are the caller's."""

    def _build(self, trusting: bool) -> None:
        core = _core.Program(*self._parts, trusting)
        lives = [Life(v, n, f, la, None if a < 0 else a, i) for v, n, f, la, a, i in core.lives()]
        layout = plan_memory(lives)
        core.lay_out([layout.offsets.get(i, -1) for i in range(len(self._parts[0]))], layout.nbytes)
        arena, workspace = core.memory()
        self._memory = MemoryUse(arena, layout.lower_bound, self._constants, workspace)
        self._core = core

    def run(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream) -> Sequence[Buffer]:
        return _delivered(self.call(_arrays(inputs)), outputs)

    def run_profiled(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream
    ) -> tuple[Sequence[Buffer], Sequence[KernelTime]]:
        results, rows = self.profile(_arrays(inputs))
        return _delivered(results, outputs), rows

    def profile(self, arrays: Sequence[Any]) -> tuple[list[Any], list[KernelTime]]:
        """As `call`, with the time of every instruction."""
        outputs, rows = self._core.profile(self._plain(arrays))
        return self._views(outputs), [KernelTime(*row) for row in rows]

    def memory(self) -> MemoryUse:
        """What the program needs."""
        return self._memory

    def calls(self) -> list[tuple[str, str]]:
        """(node, operator) of what the core leaves to the reference implementation."""
        return self._core.calls()

    def stats(self) -> Mapping[str, float]:
        use = self._memory
        return {"arena_bytes": use.arena, "constants_bytes": use.constants, "calls_outside_core": len(self.calls())}

    def _call(self, arrays: Sequence[Any]) -> list[Any]:
        arrays = self._plain(arrays)
        try:
            return self._views(self._core.call(arrays))
        except _core.ShapeSurprise:  # the inferred shapes do not hold: from now on the reference's results tell
            self._build(trusting=False)
            return self._views(self._core.call(arrays))

    def _plain(self, arrays: Sequence[Any]) -> list[Any]:
        return [a if e is None else plain(a) for a, e in zip(arrays, self._inputs, strict=True)]

    def _views(self, outputs: Sequence[Any]) -> list[Any]:
        return [o if e is None else o.view(e) for o, e in zip(outputs, self._outputs, strict=True)]


def _extension(value: Value) -> Any:
    """The NumPy dtype of a value that crosses as a view; None for all others."""
    tensor = value.tensor
    return tensor.dtype.numpy if tensor is not None and tensor.dtype.is_extension else None


def _arrays(buffers: Sequence[Buffer]) -> list[Any]:
    return [b.array if isinstance(b, HostBuffer) else np.asarray(b) for b in buffers]


def _delivered(results: Sequence[Any], targets: Sequence[Buffer | None]) -> list[Buffer]:
    return [_deliver(r, t) for r, t in zip(results, targets or [None] * len(results), strict=True)]


def _deliver(result: Any, target: Buffer | None) -> Buffer:
    if not isinstance(target, HostBuffer):
        return HostBuffer(result)
    np.copyto(target.array, result)
    return target
