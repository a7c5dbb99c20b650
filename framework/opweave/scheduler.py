"""Runs a plan: stages and transfers in the plan's order, each on its device's stream, values dropped after their last use.

One `Schedule` serves many requests at once: all that a request changes lives in its own environment. The host waits for a
device only where a value comes to the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweave.control import run_control
from opweave.errors import ExecutionError, OpweaveError
from opweave.graph import Graph, Value
from opweave.plans import Control, Plan, Stage, Step, Transfer
from opweave.provider import HOST, Buffer, Device, HostBuffer, KernelTime, Program, Stream
from opweave.types import TensorType

Environment = dict[tuple[str, str], Buffer]  # (value, memory domain) -> where it lies


@dataclass(frozen=True)
class _Use:
    """One step with what it needs at hand: its device, its program (stages), and what is dead once it is done."""

    step: Step
    device: Device | None  # None: control flow, which the scheduler runs itself
    program: Program | None
    bodies: Mapping[str, Schedule]
    dead: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StepTime:
    """One step that ran: its seconds, device work included, and what its program says of its kernels."""

    step: Step
    seconds: float
    kernels: tuple[KernelTime, ...] = ()


class Schedule:
    """A plan bound to open devices and compiled programs (by the `id` of the stage; those of bodies too)."""

    def __init__(self, plan: Plan, devices: Mapping[str, Device], programs: Mapping[int, Program]) -> None:
        self.plan = plan
        self._outputs = {(v.name, HOST) for v in plan.graph.outputs}
        self._uses = self._bind(plan, devices, programs)

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Outputs for inputs, in the graph's order."""
        return self._run(arrays, None)

    def profile(self, arrays: Sequence[Any]) -> tuple[list[Any], list[StepTime]]:
        """As `run`, with the time of every step; each is waited for before the next begins."""
        times: list[StepTime] = []
        return self._run(arrays, times), times

    def _run(self, arrays: Sequence[Any], times: list[StepTime] | None) -> list[Any]:
        graph = self.plan.graph
        where: Environment = {(v.name, HOST): HostBuffer(a) for v, a in zip(graph.inputs, arrays, strict=True)}
        streams: dict[str, Stream] = {}
        for use in self._uses:
            if times is None:
                _execute(use, where, streams, False)
            else:
                start = time.perf_counter()
                kernels = _execute(use, where, streams, True)
                times.append(StepTime(use.step, time.perf_counter() - start, tuple(kernels)))
            for key in use.dead:
                where.pop(key, None)
        given = {id(a) for a in arrays}
        return [_result(v, where, given) for v in graph.outputs]

    def _bind(self, plan: Plan, devices: Mapping[str, Device], programs: Mapping[int, Program]) -> list[_Use]:
        last: dict[tuple[str, str], int] = {}
        for position, step in enumerate(plan.steps):
            last.update(dict.fromkeys(_touched(step), position))
        dead: dict[int, list[tuple[str, str]]] = {}
        for key, position in last.items():
            if key not in self._outputs:
                dead.setdefault(position, []).append(key)
        uses = []
        for position, step in enumerate(plan.steps):
            gone = tuple(dead.get(position, ()))
            if isinstance(step, Control):
                bodies = {name: Schedule(body, devices, programs) for name, body in step.bodies.items()}
                uses.append(_Use(step, None, None, bodies, gone))
            else:
                program = programs[id(step)] if isinstance(step, Stage) else None
                uses.append(_Use(step, devices[step.device], program, {}, gone))
        return uses


def _touched(step: Step) -> list[tuple[str, str]]:
    if isinstance(step, Stage):
        return [(v.name, step.domain) for v in (*step.graph.inputs, *step.graph.outputs)]
    if isinstance(step, Transfer):
        return [(step.value.name, step.source), (step.value.name, step.target)]
    return [(v.name, HOST) for v in (*step.node.reads(), *step.node.writes())]


def _stream(device: Device, streams: dict[str, Stream]) -> Stream:
    name = device.info.id
    if name not in streams:
        streams[name] = device.stream()
    return streams[name]


def _execute(use: _Use, where: Environment, streams: dict[str, Stream], profiled: bool) -> Sequence[KernelTime]:
    """Runs a step; when it is profiled, until its device is done."""
    if use.device is None:
        _control(use, where)
        return ()
    stream = _stream(use.device, streams)
    kernels = _guarded(use, use.device, where, stream, profiled)
    if profiled:
        stream.synchronize()
    return kernels


def _control(use: _Use, where: Environment) -> None:
    assert isinstance(use.step, Control)
    node = use.step.node
    inputs = [None if v is None else _host(v, where) for v in node.inputs]
    bodies = {name: _bound(node.bodies[name], schedule, where) for name, schedule in use.bodies.items()}
    for value, result in zip(node.outputs, run_control(node, inputs, bodies), strict=False):
        if value is not None:
            where[(value.name, HOST)] = HostBuffer(result)


def _bound(body: Graph, schedule: Schedule, where: Environment) -> Callable[[Sequence[Any]], list[Any]]:
    captured = [_host(v, where) for v in body.captures]
    return lambda arrays: schedule.run([*arrays, *captured])


def _host(value: Value, where: Environment) -> Any:
    if value.constant is not None:
        return value.constant.array
    buffer = where[(value.name, HOST)]
    return buffer.array if isinstance(buffer, HostBuffer) else np.asarray(buffer)


def _guarded(use: _Use, device: Device, where: Environment, stream: Stream, profiled: bool) -> Sequence[KernelTime]:
    """A provider's own errors keep their text and gain the place; any other exception becomes an `ExecutionError`."""
    try:
        if isinstance(use.step, Transfer):
            where[(use.step.value.name, use.step.target)] = _transfer(use.step, device, where, stream)
        elif isinstance(use.step, Stage):
            return _stage(use, use.step, device, where, stream, profiled)
        return ()
    except OpweaveError as error:
        raise error.with_context(device=device.info.id)  # noqa: B904 (the same error)
    except Exception as error:
        what = f"stage {use.step.index}" if isinstance(use.step, Stage) else "a transfer"
        found = f"its provider raised {type(error).__name__}: {error}"
        raise ExecutionError(
            f"running {what}", found, "report it to the provider's author", device=device.info.id
        ) from error


def _stage(
    use: _Use, stage: Stage, device: Device, where: Environment, stream: Stream, profiled: bool
) -> Sequence[KernelTime]:
    assert use.program is not None
    inputs = [where[(v.name, stage.domain)] for v in stage.graph.inputs]
    outputs = [_output(v, device) for v in stage.graph.outputs]
    kernels: Sequence[KernelTime] = ()
    if profiled:
        results, kernels = use.program.run_profiled(inputs, outputs, stream)
    else:
        results = use.program.run(inputs, outputs, stream)
    if len(results) != len(outputs):
        raise ExecutionError(f"running stage {stage.index}", f"{len(results)} outputs instead of {len(outputs)}")
    for value, buffer in zip(stage.graph.outputs, results, strict=True):
        where[(value.name, stage.domain)] = _as_promised(value, buffer, stage)
    return kernels


def _as_promised(value: Value, buffer: Any, stage: Stage) -> Buffer:
    """The buffer that a program gave; one of another domain or type is the fault of who gave it, not of who reads it."""
    if not isinstance(buffer, Buffer) or buffer.domain != stage.domain:
        where = f"a buffer of {buffer.domain!r}" if isinstance(buffer, Buffer) else f"a {type(buffer).__name__}"
        raise ExecutionError(
            f"output {value.name!r} of stage {stage.index}", f"{where}, not a buffer of {stage.domain!r}"
        )
    wanted = value.tensor
    if wanted is None:
        return buffer
    if isinstance(buffer, HostBuffer) and not hasattr(buffer.array, "dtype"):
        found = f"a {type(buffer.array).__name__} instead of {wanted}"
        raise ExecutionError(f"output {value.name!r} of stage {stage.index}", found)
    given = buffer.type
    if given.dtype is not wanted.dtype or (wanted.is_static and given.shape != wanted.shape):
        raise ExecutionError(f"output {value.name!r} of stage {stage.index}", f"{given} instead of {wanted}")
    return buffer


def _output(value: Value, device: Device) -> Buffer | None:
    """A buffer to fill, where another domain's device can know the size; the host's programs bring their own."""
    tensor = value.tensor
    if device.info.domain == HOST or tensor is None or not tensor.is_static:
        return None
    return device.alloc(tensor)


def _transfer(step: Transfer, device: Device, where: Environment, stream: Stream) -> Buffer:
    source = where[(step.value.name, step.source)]
    spec: TensorType = source.type
    target = (
        HostBuffer(np.empty(spec.static_shape or (), spec.dtype.numpy)) if step.target == HOST else device.alloc(spec)
    )
    if not device.copy(source, target, stream):
        found = f"device {device.info.id!r} does not copy from {step.source!r} to {step.target!r}"
        raise ExecutionError(f"a transfer of {step.value.name!r}", found, "its provider must copy from and to the host")
    if step.target == HOST:
        stream.synchronize()
    return target


def _result(value: Value, where: Environment, given: set[int]) -> Any:
    """The caller's own: never a constant of the model, nor an input's memory."""
    if value.constant is not None:
        return np.array(value.constant.array)
    buffer = where[(value.name, HOST)]
    result = buffer.array if isinstance(buffer, HostBuffer) else np.asarray(buffer)
    return result.copy() if id(result) in given and isinstance(result, np.ndarray) else result
