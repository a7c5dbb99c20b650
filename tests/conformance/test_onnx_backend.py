"""ONNX's own backend tests: every operator and a few whole graphs, on the reference, and on the cpu device two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx_suite import cases
from opweave.graph import Graph, Value
from opweave.protos import value_type
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave.types import TensorType
from opweave_cpu.device import CpuDevice

Execute = Callable[[Graph, Mapping[str, Any]], list[Any]]


def on_reference(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    results = evaluate_graph(graph, feeds)
    return [results[v.name] for v in graph.outputs]


def on_cpu(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    program = CpuDevice(threads=2).compile(graph)
    arrays = [feeds[v.name] for v in graph.inputs]
    program.call(arrays)  # the second call meets what the first one left in the arena
    return program.call(arrays)


def on_cpu_without_shapes(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    return on_cpu(graph.map_values(without_shape), feeds)


def without_shape(value: Value | None) -> Value | None:
    if value is None or value.tensor is None or value.constant is not None:
        return value
    return replace(value, type=TensorType(value.tensor.dtype))


class Rep(BackendRep):  # type: ignore[misc]
    """Specialises at every call; the inferred types must be those of the results."""

    def __init__(self, graph: Graph, execute: Execute) -> None:
        self.graph, self.execute = graph, execute

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        feeds = {v.name: x for v, x in zip(self.graph.inputs, inputs, strict=False)}
        types = {name: value_type(x) for name, x in feeds.items() if isinstance(x, np.ndarray)}
        graph = specialise(self.graph, types)
        results = self.execute(graph, feeds)
        for value, result in zip(graph.outputs, results, strict=True):
            check_type(value, result)
        return tuple(results)


def check_type(value: Value, result: Any) -> None:
    if value.tensor is None or value.tensor.shape is None:
        return
    assert value.tensor.dtype.numpy == result.dtype, value
    assert len(value.tensor.shape) == result.ndim, value
    known = [(d, n) for d, n in zip(value.tensor.shape, result.shape, strict=True) if isinstance(d, int)]
    assert all(d == n for d, n in known), f"{value} is {result.shape}"


def backend(execute: Execute, optimise: bool) -> type[Backend]:
    """ONNX's interface over reader, specialiser and one way to run a graph."""

    class Made(Backend):  # type: ignore[misc]
        @classmethod
        def prepare(cls, model: onnx.ModelProto, _device: str = "CPU", **_: Any) -> Rep:
            return Rep(read_graph(model, optimise=optimise), execute)

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

    return Made


globals().update(cases(backend(on_reference, optimise=False), "Reference", __name__))
globals().update(cases(backend(on_cpu, optimise=True), "Cpu", __name__))
globals().update(cases(backend(on_cpu_without_shapes, optimise=False), "CpuWithoutShapes", __name__))
