"""ONNX's own backend tests: every operator and a few whole graphs, on the reference, and on the cpu device two ways."""

from __future__ import annotations

import re
import unittest
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import Runner
from opweave.graph import Graph, Value
from opweave.protos import value_type
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise
from opweave.types import TensorType
from opweave_cpu.device import CpuDevice

KNOWN_FAILURES: Mapping[str, str] = {
    r"^test_bernoulli": "random: the expected draws are those of NumPy's global generator",
    r"^test_gradient_of_": "ai.onnx.preview.training.Gradient: training is out of scope",
    r"^test_loop16_seq_none": "the suite takes len() of the scalars in the expected sequence",
}


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


def cases(made_backend: type[Backend], prefix: str) -> dict[str, type[unittest.TestCase]]:
    """The suite's test classes without the downloads and CUDA, known failures skipped with their reasons."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes its expectations while it loads, overflows included
        found = Runner(made_backend, __name__).include("_cpu$").test_cases
    made = {}
    for name, case in found.items():
        if "Real" in name:
            continue
        for test in [t for t in vars(case) if t.startswith("test_")]:
            if not test.endswith("_cpu"):
                delattr(case, test)
                continue
            reason = next((why for pattern, why in KNOWN_FAILURES.items() if re.search(pattern, test)), None)
            if reason:
                setattr(case, test, unittest.skip(reason)(getattr(case, test)))
        made[prefix + name] = case
        case.__name__ = case.__qualname__ = prefix + name
    return made


globals().update(cases(backend(on_reference, optimise=False), "Reference"))
globals().update(cases(backend(on_cpu, optimise=True), "Cpu"))
globals().update(cases(backend(on_cpu_without_shapes, optimise=False), "CpuWithoutShapes"))
