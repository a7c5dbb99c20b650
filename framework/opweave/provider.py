"""The provider contract: what a plugin implements to bring a device.

A provider knows one kind of hardware or engine and opens devices; a device says which nodes it takes, compiles subgraphs
to programs, and owns a memory domain. Only `unsupported`, `compile`, `alloc` and `copy` must be written; a device that
shares the host's memory (`HostDevice`) needs only the first two. The contract is versioned by `API_VERSION`: a provider
with another major version, or a newer minor one, is refused with both versions in the message.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from opweave.dtypes import DType
from opweave.errors import OpweaveError
from opweave.graph import Graph, Node
from opweave.types import TensorType

API_VERSION = (1, 0)
HOST = "host"

Subgraph: TypeAlias = Graph
"""What a device compiles: its inputs and outputs are the stage's; shapes are static where they are known."""


class DeviceKind(enum.Enum):
    """What a device is, for sorting and for people."""

    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"
    FPGA = "fpga"
    OTHER = "other"


@dataclass(frozen=True)
class DeviceInfo:
    """What is known of a device before it is opened.

    `flops` are operations a second by element type, `bandwidth` bytes a second of its memory, `link_bandwidth` and
    `link_latency` (seconds) those of a copy from or to the host, `launch` seconds to start one stage. Figures are
    estimates for the cost model; better ones are measured later.
    """

    id: str
    kind: DeviceKind = DeviceKind.OTHER
    description: str = ""
    domain: str = HOST
    memory: int = 0
    flops: Mapping[DType, float] = field(default_factory=dict)
    bandwidth: float = 10e9
    link_bandwidth: float = 10e9
    link_latency: float = 10e-6
    launch: float = 10e-6
    features: frozenset[str] = frozenset()


class Buffer(ABC):
    """One tensor in one memory domain. Devices derive their own; `HostBuffer` is the host's."""

    type: TensorType
    domain: str


class HostBuffer(Buffer):
    """A value on the host: a NumPy array, or the Python object of a sequence, map or optional."""

    __slots__ = ("array",)
    domain = HOST

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        """Dtype and shape of the array."""
        return TensorType(DType.of(self.array.dtype), tuple(self.array.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Event:
    """A point in a stream. The default has always happened: its stream is synchronous."""

    def synchronize(self) -> None:
        """Waits on the host until the point is reached."""


class Stream:
    """Work of one device in order. The default is synchronous: work is done when the call returns."""

    def record(self) -> Event:
        """An event that happens when everything given to the stream so far is done."""
        return Event()

    def wait(self, event: Event) -> None:
        """Work given from now on starts only after `event`."""
        event.synchronize()

    def synchronize(self) -> None:
        """Waits on the host until everything given to the stream is done."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel that ran: `flops` operations and `nbytes` read and written, 0 where they are not known; `algorithm` as the
    program calls what it chose. Not `native`: the program left its device for the reference implementation."""

    node: str
    operator: str
    seconds: float
    native: bool = True
    flops: float = 0.0
    nbytes: int = 0
    algorithm: str = ""


class Program(ABC):
    """A compiled stage. Several requests may run it at once."""

    @abstractmethod
    def run(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream) -> Sequence[Buffer]:
        """Computes the stage's outputs from `inputs`, both in the order of the subgraph and in the device's domain.

        `outputs` holds a buffer to fill where the shape was known, None where it was not: then the program allocates.
        Returns all outputs.
        """

    def run_profiled(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream
    ) -> tuple[Sequence[Buffer], Sequence[KernelTime]]:
        """As `run`, with the time of every kernel in the order they ran. Default: the kernels are not known."""
        return self.run(inputs, outputs, stream), ()

    def output_specs(self, inputs: Sequence[TensorType]) -> Sequence[TensorType | None]:
        """Types of the outputs for these inputs, None where they depend on data. Default: nothing is known."""
        return []

    def stats(self) -> Mapping[str, float]:
        """Figures of the last run, by name with the unit in the name. Default: none."""
        return {}


class Device(ABC):
    """One place that computes. `info.id` is its name in plans (`cpu`, `cuda:0`)."""

    info: DeviceInfo

    @abstractmethod
    def unsupported(self, node: Node) -> str | None:
        """Why the device does not take `node`, or None when it does. Types and constants of the node are filled in."""

    @abstractmethod
    def compile(self, subgraph: Subgraph) -> Program:
        """Makes a program; raises `CompileRefused` (best with the nodes at fault) for what was claimed and cannot be."""

    @abstractmethod
    def alloc(self, spec: TensorType) -> Buffer:
        """A buffer in the device's domain for a tensor of a static shape."""

    @abstractmethod
    def copy(self, src: Buffer, dst: Buffer, stream: Stream) -> bool:
        """Copies equal-sized buffers, one of them in the device's domain. False: cannot, stage it through the host."""

    def peak(self) -> float:
        """Float32 operations a second that a profile takes for all there is. Default: what `info` says."""
        return self.info.flops.get(DType.FLOAT32, 0.0)

    def cost(self, node: Node) -> float:
        """Predicted seconds of `node` here. Default: the roofline of `info`."""
        from opweave.costs import roofline

        return roofline(node, self.info)

    def copy_cost(self, nbytes: int, peer: str) -> float:
        """Predicted seconds to copy `nbytes` from or to the memory domain `peer`. Default: `info`'s link."""
        return 0.0 if peer == self.info.domain else self.info.link_latency + nbytes / self.info.link_bandwidth

    def stream(self) -> Stream:
        """A new stream. Default: a synchronous one."""
        return Stream()

    def fingerprint(self) -> str:
        """Identifies hardware and software for caches of compiled programs. Default: id and description."""
        return f"{self.info.id} {self.info.description}"

    def close(self) -> None:
        """Releases the device. Programs and buffers of it are not used afterwards."""


class HostDevice(Device):
    """A device that computes in the host's memory: nothing to allocate or copy specially."""

    def alloc(self, spec: TensorType) -> Buffer:
        shape = spec.static_shape
        if shape is None:
            raise OpweaveError(f"a buffer of {spec}", "its shape is not known")
        return HostBuffer(np.empty(shape, spec.dtype.numpy))

    def copy(self, src: Buffer, dst: Buffer, stream: Stream) -> bool:
        if not (isinstance(src, HostBuffer) and isinstance(dst, HostBuffer)):
            return False
        np.copyto(dst.array, src.array)
        return True


class Provider(ABC):
    """Knows one kind of hardware or engine."""

    name: str
    api_version: tuple[int, int] = API_VERSION

    @abstractmethod
    def devices(self) -> Sequence[DeviceInfo]:
        """The devices found, best first; their ids are the provider's name, or start with it and a colon (`cuda:0`).

        Raises `ProviderUnavailable` with reason and hint where there are none.
        """

    @abstractmethod
    def open(self, device_id: str, options: Mapping[str, Any]) -> Device:
        """Opens one of `devices()`. Options that it does not know are refused with `UsageError`."""
