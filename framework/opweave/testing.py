"""Devices for tests: one that only pretends, for planners, and one that computes apart from the host, for everything else.

`NullProvider` brings devices whose programs do nothing. `SimProvider` brings devices that compute through the `cpu`
provider's kernels on buffers of a memory domain of their own, and refuse every buffer that is not theirs. What either
takes, costs and gets wrong is a `Behaviour`.

>>> with registered(SimProvider(Behaviour(takes={"Conv", "MatMul"}))):
...     session = opweave.load("model.onnx", devices=["sim:0", "cpu"])
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from opweave.costs import roofline
from opweave.dtypes import DType
from opweave.errors import CompileRefused, ExecutionError, OpweaveError, PluginError, ProviderUnavailable, UsageError
from opweave.graph import Node
from opweave.plugins import PluginManager, hookimpl, plugin_manager
from opweave.provider import (
    HOST,
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

Names: TypeAlias = Collection[str]
Takes: TypeAlias = Callable[[Node], "bool | str | None"] | Names | float | None
Seconds: TypeAlias = Callable[[Node], float] | Mapping[str, float] | float | None

_FLOPS = 1e12


@dataclass(frozen=True)
class Behaviour:
    """What a device of this module takes, costs and gets wrong. Names are those of nodes or of operators.

    `takes`: a predicate (False, or a reason, is no), names, the share of all nodes that it takes at random by `seed`, or
    None for everything. `seconds`: of a node, by function, by name (others by the roofline) or the same for all.
    `refuses` are claimed and refused at compile, `fails` at run; to be asked about `raises` is an error of the provider.
    `unavailable` is why there is no device; `breaks` makes listing the devices itself an error.
    """

    takes: Takes = None
    seed: int = 0
    seconds: Seconds = None
    launch: float = 5e-6
    link_bandwidth: float = 10e9
    link_latency: float = 5e-6
    domain: str | None = None  # default: the device's id
    refuses: Names = ()
    fails: Names = ()
    raises: Names = ()
    unavailable: str = ""
    breaks: str = ""

    def unsupported(self, node: Node) -> str | None:
        """As `Device.unsupported`."""
        if _named(node, self.raises):
            raise RuntimeError(f"told to break when asked about {node.name}")
        answer = self._answer(node)
        if isinstance(answer, str):
            return answer
        return None if answer else f"told not to take {node.operator}"

    def cost(self, node: Node, info: DeviceInfo) -> float:
        """As `Device.cost`."""
        if callable(self.seconds):
            return self.seconds(node)
        if isinstance(self.seconds, Mapping):
            known = (self.seconds[n] for n in (node.name, node.operator) if n in self.seconds)
            return next(known, roofline(node, info))
        return roofline(node, info) if self.seconds is None else self.seconds

    def with_options(self, options: Mapping[str, Any], device: str) -> Behaviour:
        """The behaviour with some fields replaced by the options of `Provider.open`."""
        known = {f.name for f in fields(self)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UsageError(f"option {unknown[0]!r} of device {device!r}", f"it has {', '.join(sorted(known))}")
        return replace(self, **options)

    def _answer(self, node: Node) -> bool | str:
        if self.takes is None:
            return True
        if callable(self.takes):
            given = self.takes(node)
            return True if given is None else given
        if isinstance(self.takes, int | float):
            return zlib.crc32(f"{self.seed} {node.name}".encode()) < self.takes * 2**32
        return _named(node, self.takes)


def _named(node: Node, names: Names) -> bool:
    return node.name in names or node.operator in names


class _Provider(Provider):
    """Devices `NAME:0` to `NAME:n-1`, one for each behaviour."""

    kind = DeviceKind.OTHER

    def __init__(self, *behaviours: Behaviour, name: str | None = None) -> None:
        self.name = name or self.name
        self.behaviours = behaviours or (Behaviour(),)

    def devices(self) -> Sequence[DeviceInfo]:
        for behaviour in self.behaviours:
            if behaviour.breaks:
                raise RuntimeError(behaviour.breaks)
            if behaviour.unavailable:
                raise ProviderUnavailable(f"the {self.name} provider", behaviour.unavailable, "it was told so")
        return [self._info(f"{self.name}:{i}", b) for i, b in enumerate(self.behaviours)]

    def open(self, device_id: str, options: Mapping[str, Any]) -> Device:
        """Options are the fields of `Behaviour`."""
        for index, behaviour in enumerate(self.behaviours):
            if device_id == f"{self.name}:{index}":
                changed = behaviour.with_options(options, device_id)
                return self._device(self._info(device_id, changed), changed)
        raise UsageError(f"device {device_id!r}", f"{self.name} has {len(self.behaviours)}, counted from 0")

    def _info(self, device_id: str, behaviour: Behaviour) -> DeviceInfo:
        return DeviceInfo(
            device_id,
            self.kind,
            type(self).__name__,
            device_id if behaviour.domain is None else behaviour.domain,
            memory=2**30,
            flops={DType.FLOAT32: _FLOPS},
            bandwidth=100e9,
            link_bandwidth=behaviour.link_bandwidth,
            link_latency=behaviour.link_latency,
            launch=behaviour.launch,
        )

    def _device(self, info: DeviceInfo, behaviour: Behaviour) -> Device:
        raise NotImplementedError


class _Device(Device):
    """What null and simulated devices share: they do as their behaviour says, in a memory domain of their own."""

    def __init__(self, info: DeviceInfo, behaviour: Behaviour | None = None) -> None:
        self.info, self.behaviour = info, behaviour or Behaviour()

    def unsupported(self, node: Node) -> str | None:
        return self.behaviour.unsupported(node)

    def cost(self, node: Node) -> float:
        return self.behaviour.cost(node, self.info)

    def alloc(self, spec: TensorType) -> Buffer:
        shape = spec.static_shape
        if shape is None:
            raise OpweaveError(f"a buffer of {spec}", "its shape is not known", device=self.info.id)
        return self._buffer(np.empty(shape, spec.dtype.numpy))

    def copy(self, src: Buffer, dst: Buffer, stream: Stream) -> bool:
        """Between the host and the device's own domain only."""
        if {src.domain, dst.domain} - {HOST, self.info.domain}:
            return False
        np.copyto(_array(dst), _array(src), casting="no")
        return True

    def _buffer(self, array: Any) -> Buffer:
        return HostBuffer(array) if self.info.domain == HOST else SimBuffer(array, self.info.domain)

    def _check(self, subgraph: Subgraph) -> None:
        refused = tuple(n.name for n in subgraph.nodes if _named(n, self.behaviour.refuses))
        if refused:
            hint = "another device takes them"
            raise CompileRefused(
                f"nodes {', '.join(refused)}", "told to refuse them", hint, refused, device=self.info.id
            )


class SimBuffer(Buffer):
    """A tensor in a simulated domain. It speaks neither DLPack nor the buffer protocol: only its device reads it."""

    __slots__ = ("_array", "domain", "type")

    def __init__(self, array: Any, domain: str) -> None:
        self._array = array
        self.domain = domain
        self.type = TensorType(DType.of(array.dtype), tuple(array.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise ExecutionError(f"a buffer of {self.domain} as an array", "it is not on the host", "copy it first")


def _array(buffer: Buffer) -> Any:
    if isinstance(buffer, SimBuffer):
        return buffer._array
    if isinstance(buffer, HostBuffer):
        return buffer.array
    raise ExecutionError("a copy", f"{type(buffer).__name__} is not a buffer of the host or of a simulated device")


class NullProvider(_Provider):
    """Devices `null:0` ... that compute nothing."""

    name = "null"

    def _device(self, info: DeviceInfo, behaviour: Behaviour) -> Device:
        return NullDevice(info, behaviour)


class NullDevice(_Device):
    """Compiles everything that it takes to programs that leave their outputs as they are."""

    def compile(self, subgraph: Subgraph) -> Program:
        self._check(subgraph)
        return _NullProgram(self, subgraph)


class _NullProgram(Program):
    def __init__(self, device: NullDevice, graph: Subgraph) -> None:
        self.device, self.types = device, [v.tensor for v in graph.outputs]

    def run(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream) -> Sequence[Buffer]:
        given = outputs or [None] * len(self.types)
        return [b or self._empty(t) for b, t in zip(given, self.types, strict=True)]

    def _empty(self, spec: TensorType | None) -> Buffer:
        shape = spec.static_shape if spec is not None else None
        return self.device.alloc(TensorType(spec.dtype if spec is not None else DType.FLOAT32, shape or (0,)))


class SimProvider(_Provider):
    """Devices `sim:0` ... that compute what `cpu` computes, on memory that the host cannot see."""

    name = "sim"
    kind = DeviceKind.NPU

    def _device(self, info: DeviceInfo, behaviour: Behaviour) -> Device:
        return SimDevice(info, behaviour)


class SimDevice(_Device):
    """Computes through the `cpu` provider, on one thread."""

    def __init__(self, info: DeviceInfo, behaviour: Behaviour | None = None) -> None:
        super().__init__(info, behaviour)
        self._cpu = plugin_manager().provider("cpu").open("cpu", {"threads": 1})

    def unsupported(self, node: Node) -> str | None:
        return super().unsupported(node) or self._cpu.unsupported(node)

    def compile(self, subgraph: Subgraph) -> Program:
        self._check(subgraph)
        fails = tuple(n.name for n in subgraph.nodes if _named(n, self.behaviour.fails))
        return _SimProgram(self.info, self._cpu.compile(subgraph), fails)


class _SimProgram(Program):
    def __init__(self, info: DeviceInfo, program: Program, fails: Sequence[str]) -> None:
        self.info, self.program, self.fails = info, program, fails

    def run(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer | None], stream: Stream) -> Sequence[Buffer]:
        if self.fails:
            raise ExecutionError(f"node {self.fails[0]!r}", "told to fail", device=self.info.id)
        for buffer in (*inputs, *(b for b in outputs if b is not None)):
            self._refuse_foreign(buffer)
        given = [HostBuffer(_array(b)) for b in inputs]
        wanted = [None if b is None else HostBuffer(_array(b)) for b in outputs]
        results = self.program.run(given, wanted, stream)
        return [b or self._own(r) for b, r in zip(outputs or [None] * len(results), results, strict=True)]

    def _own(self, result: Buffer) -> Buffer:
        array = _array(result)
        return HostBuffer(array) if self.info.domain == HOST else SimBuffer(array, self.info.domain)

    def _refuse_foreign(self, buffer: Buffer) -> None:
        if buffer.domain != self.info.domain:
            found = f"it was given a buffer of {buffer.domain!r}, and reads only {self.info.domain!r}"
            raise ExecutionError(f"a stage of {self.info.id}", found, "copy it there first")


@contextmanager
def registered(*providers: Provider, manager: PluginManager | None = None) -> Iterator[PluginManager]:
    """The providers as a plugin of `manager` (default: the process's) for as long as the block lasts.

    Raises `PluginError` where one is refused.
    """
    manager = manager or plugin_manager()
    known = len(manager.broken)
    mine = [p.name for p in providers]
    clash = next((n for n in mine if any(p.name == n for p in manager.providers)), None)
    if clash is not None:
        raise PluginError(f"provider {clash!r}", "there is one of that name already")
    plugin = _Plugin(providers)
    manager.register(plugin, f"testing {id(plugin):x}")
    try:
        for broken in manager.broken[known:]:
            raise PluginError(f"provider {broken.name!r}", broken.reason, broken.hint)
        yield manager
    finally:
        del manager.broken[known:]
        for name in mine:
            manager.unregister(name)


class _Plugin:
    def __init__(self, providers: Iterable[Provider]) -> None:
        self.providers = list(providers)

    @hookimpl
    def opweave_providers(self) -> Iterable[Provider]:
        """The providers that were registered."""
        return self.providers
