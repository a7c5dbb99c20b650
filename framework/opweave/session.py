"""A loaded model with its plans, ready to run.

Inputs' shapes make a signature; for each signature the graph is specialised, partitioned and compiled once, and kept in a
bounded cache. Weights are shared between signatures by their content. A plan with one stage on the host skips the
scheduler. Several threads may call one session at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opweave import settings
from opweave.errors import CompileRefused, OpweaveError, PlanError, PluginError, UsageError
from opweave.feeds import converted, ordered
from opweave.graph import Graph
from opweave.plans import Plan, Reason, ReasonCode, Stage
from opweave.provider import HOST, Device, Program
from opweave.scheduler import Schedule, StepTime
from opweave.types import Dim, TensorType, Type

Signature = tuple[tuple[int, ...] | None, ...]

_REFUSALS = 20  # rounds of re-planning after over-claims


@dataclass(frozen=True)
class Compiled:
    """What a signature runs through: `call` maps arrays to outputs, both in the graph's order.

    `programs` are those of all stages, bodies' included, by the `id` of the stage.
    """

    plan: Plan
    programs: Mapping[int, Program]
    call: Callable[[Sequence[Any]], list[Any]]


class Session:
    """Use `opweave.load`. `names` are the model's outputs; the graph's values may have other names."""

    def __init__(
        self,
        graph: Graph,
        names: Sequence[str],
        devices: Mapping[str, Device],
        pins: Mapping[str, str] | None = None,
        optimise: bool = True,
    ) -> None:
        self._graph, self._names, self._devices = graph, tuple(names), dict(devices)
        self._pins, self._optimise = dict(pins or {}), optimise
        self._refused: dict[tuple[str, str], Reason] = {}
        self._compiled: OrderedDict[Signature, Compiled] = OrderedDict()
        self._lock = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None
        self._latest: Plan | None = None
        self._limit = settings.plan_cache()
        self._last: tuple[Signature, Compiled] | None = None
        self._expected = [_Expected.of(v.name, v.type) for v in graph.inputs]

    @property
    def inputs(self) -> dict[str, Type | None]:
        """Name to type of every input, in the model's order."""
        return {v.name: v.type for v in self._graph.inputs}

    @property
    def outputs(self) -> dict[str, Type | None]:
        """Name to type of every output, in the model's order; sizes that the model leaves open are symbols or unknown."""
        return {n: v.type for n, v in zip(self._names, self._graph.outputs, strict=True)}

    @property
    def devices(self) -> tuple[str, ...]:
        """Ids of the devices, the most wanted first."""
        return tuple(self._devices)

    @property
    def plan(self) -> Plan:
        """The plan of the latest call; before any, that of the model's declared shapes."""
        return self._latest or self.plan_for()

    def plan_for(self, shapes: Mapping[str, Sequence[Dim]] | None = None) -> Plan:
        """The plan for inputs of these shapes, before any compile: what is not given is as the model declares it."""
        return self._partition(self._specialise(self._types(shapes or {})))

    def run(
        self, inputs: Mapping[str, Any] | Sequence[Any] | None = None, outputs: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Runs the model: name to array, in the model's order, or only the `outputs` named, in their order.

        `inputs` by name or in the model's order. Arrays, DLPack tensors and nested lists are taken; an array of the wrong
        dtype or shape raises `InputError`. The arrays returned are the caller's.
        """
        arrays = self._arrays(() if inputs is None else inputs)
        results = dict(zip(self._names, self._find(arrays).call(arrays), strict=True))
        return results if outputs is None else self._chosen(results, outputs)

    def profile(self, inputs: Mapping[str, Any] | Sequence[Any], runs: int = 5) -> list[StepTime]:
        """The time of every step of the plan and of its kernels, of the fastest of `runs` runs after one to warm up."""
        arrays = self._arrays(inputs)
        compiled = self._find(arrays)
        schedule = Schedule(compiled.plan, self._devices, compiled.programs)
        schedule.run(arrays)
        return min((schedule.profile(arrays)[1] for _ in range(max(runs, 1))), key=lambda s: sum(t.seconds for t in s))

    def peak(self, device: str) -> float:
        """Float32 operations a second that the device could do, as its provider knows or measures them."""
        return self._devices[device].peak()

    def run_async(
        self, inputs: Mapping[str, Any] | Sequence[Any] | None = None, outputs: Sequence[str] | None = None
    ) -> Future[dict[str, Any]]:
        """As `run`, on a thread of the session's own: a future, which `await session.arun(...)` wraps for asyncio."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="opweave")
        return self._pool.submit(self.run, inputs, outputs)

    def arun(
        self, inputs: Mapping[str, Any] | Sequence[Any] | None = None, outputs: Sequence[str] | None = None
    ) -> Awaitable[dict[str, Any]]:
        """As `run`, to be awaited."""
        return asyncio.wrap_future(self.run_async(inputs, outputs))

    def compiled(self, inputs: Mapping[str, Any] | Sequence[Any]) -> Compiled:
        """Plan and programs for inputs of these shapes, made if need be."""
        return self._find(self._arrays(inputs))

    def close(self) -> None:
        """Drops plans and programs and closes the devices."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
            self._compiled.clear()
            self._last = None
            for device in self._devices.values():
                device.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arrays(self, given: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        expected = self._expected
        if type(given) is dict and len(given) == len(expected):
            try:
                values = [given[e.name] for e in expected]
            except KeyError:
                values = ordered(self._graph.inputs, given)
        else:
            values = ordered(self._graph.inputs, given)
        for index, (e, value) in enumerate(zip(expected, values, strict=True)):
            if not e.fits(value):
                values[index] = converted(self._graph.inputs[index], value)
        return values

    def _find(self, arrays: list[Any]) -> Compiled:
        signature = tuple([getattr(a, "shape", None) for a in arrays])
        last = self._last
        if last is not None and last[0] == signature:
            return last[1]
        with self._lock:
            found = self._compiled.get(signature)
            if found is None:
                found = self._compile(self._specialise(self._types_of(arrays)))
                self._compiled[signature] = found
                while len(self._compiled) > self._limit:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(signature)
            self._last, self._latest = (signature, found), found.plan
        return found

    def _types_of(self, arrays: Sequence[Any]) -> dict[str, Type]:
        types: dict[str, Type] = {}
        for value, array in zip(self._graph.inputs, arrays, strict=True):
            if value.tensor is not None:
                types[value.name] = TensorType(value.tensor.dtype, tuple(array.shape))
            elif value.type is not None:
                types[value.name] = value.type
        return types

    def _types(self, shapes: Mapping[str, Sequence[Dim]]) -> dict[str, Type]:
        types = {v.name: v.type for v in self._graph.inputs if v.type is not None}
        for name, shape in shapes.items():
            declared = types.get(name)
            if not isinstance(declared, TensorType):
                known = ", ".join(n for n, t in types.items() if isinstance(t, TensorType))
                raise UsageError(f"a shape for {name!r}", f"the tensor inputs are {known}", "name one of them")
            _agree(name, declared, shape)
            types[name] = replace(declared, shape=tuple(shape))
        return types

    def _specialise(self, types: Mapping[str, Type]) -> Graph:
        from opweave.specialise import specialise

        graph = specialise(self._graph, types)
        if not self._optimise:
            return graph
        from opweave.passes import refine

        return refine(graph)

    def _partition(self, graph: Graph) -> Plan:
        from opweave_partitioner import partition

        return partition(graph, list(self._devices.values()), self._pins, self._refused)

    def _compile(self, graph: Graph) -> Compiled:
        for _ in range(_REFUSALS):
            plan = self._partition(graph)
            programs, refused = self._programs(plan)
            if not refused:
                return Compiled(plan, programs, _caller(plan, self._devices, programs))
            self._refused.update(refused)
        raise PlanError("a plan", f"devices refused what they had claimed {_REFUSALS} times", "leave such a device out")

    def _programs(self, plan: Plan) -> tuple[dict[int, Program], dict[tuple[str, str], Reason]]:
        programs: dict[int, Program] = {}
        refused: dict[tuple[str, str], Reason] = {}
        for stage in (s for p in plan.walk() for s in p.stages):
            try:
                programs[id(stage)] = self._devices[stage.device].compile(stage.graph)
            except Exception as error:  # noqa: BLE001 (a refusal, or the cause of what is raised)
                if len(self._devices) == 1 or stage.device == "cpu":
                    raise _failure(stage, error)  # noqa: B904 (the same error, or it is the cause)
                refused.update(_refusals(stage, error))
        return programs, refused

    def _chosen(self, results: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        for name in outputs:
            if name not in results:
                raise UsageError(f"output {name!r}", f"the model gives {', '.join(self._names)}", "name one of them")
        return {name: results[name] for name in outputs}


@dataclass(frozen=True)
class _Expected:
    """What makes an input pass without a closer look."""

    name: str
    dtype: Any
    shape: tuple[Dim, ...] | None
    open: tuple[tuple[int, int], ...] | None  # (axis, size) of the sizes that are fixed; None: look closely

    @staticmethod
    def of(name: str, kind: Type | None) -> _Expected:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return _Expected(name, None, None, None)
        fixed = tuple((i, d) for i, d in enumerate(kind.shape) if isinstance(d, int))
        return _Expected(name, kind.dtype.numpy, kind.shape, fixed)

    def fits(self, value: Any) -> bool:
        if type(value) is not np.ndarray or self.open is None or value.dtype is not self.dtype:
            return False
        shape = value.shape
        if shape != self.shape:
            if len(shape) != len(self.shape or ()):
                return False
            for axis, size in self.open:
                if shape[axis] != size:
                    return False
        return value.flags.c_contiguous


def _agree(name: str, declared: TensorType, shape: Sequence[Dim]) -> None:
    if declared.shape is None:
        return
    same = len(declared.shape) == len(shape)
    if not same or any(
        isinstance(d, int) and isinstance(s, int) and d != s for d, s in zip(declared.shape, shape, strict=True)
    ):
        raise UsageError(
            f"shape {tuple(shape)} for input {name!r}", f"the model declares {declared}", "keep its fixed sizes"
        )


def _refusals(stage: Stage, error: Exception) -> dict[tuple[str, str], Reason]:
    """The nodes at fault; all of the stage where the device does not say which."""
    text = str(error) if isinstance(error, OpweaveError) else f"compile raised {type(error).__name__}: {error}"
    own = {n.name for n in stage.graph.nodes}
    named = set(error.nodes) & own if isinstance(error, CompileRefused) else set()
    return {(n, stage.device): Reason(ReasonCode.REFUSED, stage.device, text) for n in (named or own)}


def _failure(stage: Stage, error: Exception) -> OpweaveError:
    """What a device raised while it compiled, as an error of ours."""
    if isinstance(error, OpweaveError):
        return error.with_context(device=stage.device)
    found = f"its provider raised {type(error).__name__}: {error}"
    failure = PluginError(
        f"compile stage {stage.index}", found, "report it to the provider's author", device=stage.device
    )
    failure.__cause__ = error
    return failure


def _caller(
    plan: Plan, devices: Mapping[str, Device], programs: Mapping[int, Program]
) -> Callable[[Sequence[Any]], list[Any]]:
    """A host program that is the whole plan, and so has its inputs and outputs, is called straight where it can be."""
    if len(plan.steps) == 1 and plan.stages and plan.stages[0].domain == HOST:
        direct = getattr(programs[id(plan.stages[0])], "call", None)
        if direct is not None:
            return direct  # type: ignore[no-any-return]
    return Schedule(plan, devices, programs).run
