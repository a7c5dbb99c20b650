"""The provider `npu`, its device `npu:0` with a memory of its own, and the programs that it compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from opweave.dtypes import DType
from opweave.errors import UsageError
from opweave.graph import Node
from opweave.provider import (
    Buffer,
    Device,
    DeviceInfo,
    DeviceKind,
    HostBuffer,
    Program,
    Provider,
    Stream,
    Subgraph,
)
from opweave.types import TensorType

from opweave_npu_simulator.kernels import KERNELS, refusal

INFO = DeviceInfo(
    id="npu:0",
    kind=DeviceKind.NPU,
    description="made-up NPU, simulated in NumPy",
    domain="npu:0",  # a memory of its own: Opweave copies values in and out
    memory=256 * 2**20,
    flops={DType.FLOAT32: 20e12},
    bandwidth=400e9,
    link_bandwidth=12e9,
    link_latency=2e-6,
    launch=2e-6,
)


class NpuProvider(Provider):
    """Finds the one NPU that every machine has, since it is simulated."""

    name = "npu"

    def devices(self) -> Sequence[DeviceInfo]:
        """A provider of real hardware asks its driver here, and raises `ProviderUnavailable` where there is none."""
        return [INFO]

    def open(self, device_id: str, options: Mapping[str, Any]) -> Device:
        """Takes no options."""
        if options:
            raise UsageError(f"option {next(iter(options))!r} of device {device_id!r}", "it takes none")
        return NpuDevice()


class NpuBuffer(Buffer):
    """A tensor in the NPU's memory."""

    domain = INFO.domain

    def __init__(self, spec: TensorType, memory: np.ndarray[Any, Any]) -> None:
        self.type, self.memory = spec, memory


class NpuDevice(Device):
    """Takes float32 operators that it has a kernel for, where their shapes are known."""

    info = INFO

    def unsupported(self, node: Node) -> str | None:
        """The reason is shown to the user by `opweave plan`."""
        return refusal(node)

    def compile(self, subgraph: Subgraph) -> Program:
        return NpuProgram(subgraph)

    def alloc(self, spec: TensorType) -> Buffer:
        assert spec.static_shape is not None
        return NpuBuffer(spec, np.empty(spec.static_shape, spec.dtype.numpy))

    def copy(self, src: Buffer, dst: Buffer, stream: Stream) -> bool:
        """From and to the host; Opweave goes by way of the host for any other pair."""
        if isinstance(src, HostBuffer) and isinstance(dst, NpuBuffer):
            np.copyto(dst.memory, src.array)
        elif isinstance(src, NpuBuffer) and isinstance(dst, HostBuffer):
            np.copyto(dst.array, src.memory)
        else:
            return False
        return True


class NpuProgram(Program):
    """The subgraph's nodes in order. Weights are uploaded once, when it is compiled."""

    def __init__(self, subgraph: Subgraph) -> None:
        self.graph = subgraph
        self.weights = {name: value.constant.array for name, value in subgraph.constants.items() if value.constant}

    def run(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream) -> Sequence[Buffer]:
        """All state is in `memory`, so that several requests may run at once."""
        memory = dict(self.weights)
        for value, buffer in zip(self.graph.inputs, inputs, strict=True):
            memory[value.name] = _memory(buffer)
        for node in self.graph.nodes:
            operands = [None if value is None else memory[value.name] for value in node.inputs]
            (result,) = node.writes()
            memory[result.name] = KERNELS[node.op_type](node, *operands)
        return [_deliver(memory[v.name], b) for v, b in zip(self.graph.outputs, outputs, strict=True)]


def _memory(buffer: Buffer) -> np.ndarray[Any, Any]:
    assert isinstance(buffer, NpuBuffer), f"a buffer of {buffer.domain} is not in the NPU's memory"
    return buffer.memory


def _deliver(result: np.ndarray[Any, Any], target: Buffer | None) -> Buffer:
    """Into the buffer given; a new one where the shape was not known beforehand."""
    if target is None:
        return NpuBuffer(TensorType(DType.of(result.dtype), result.shape), result)
    np.copyto(_memory(target), result)
    return target
