"""ONNX's own backend tests: every operator and a few whole graphs, over the reference path (and over sessions)."""

from __future__ import annotations

import re
import unittest
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import Runner
from opweave.graph import Graph
from opweave.protos import value_type
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.specialise import specialise

KNOWN_FAILURES: Mapping[str, str] = {
    r"^test_bernoulli": "random: the expected draws are those of NumPy's global generator",
    r"^test_gradient_of_": "ai.onnx.preview.training.Gradient: training is out of scope",
    r"^test_loop16_seq_none": "the suite takes len() of the scalars in the expected sequence",
}


class ReferenceRep(BackendRep):  # type: ignore[misc]
    """Specialises at every call, then evaluates; the inferred types must be those of the results."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        feeds = {v.name: x for v, x in zip(self.graph.inputs, inputs, strict=False)}
        types = {name: value_type(x) for name, x in feeds.items() if isinstance(x, np.ndarray)}
        graph = specialise(self.graph, types)
        results = evaluate_graph(graph, feeds)
        for value in graph.outputs:
            if value.tensor is not None and value.tensor.shape is not None:
                result = results[value.name]
                assert value.tensor.dtype.numpy == result.dtype, value
                assert len(value.tensor.shape) == result.ndim, value
                known = [(d, n) for d, n in zip(value.tensor.shape, result.shape, strict=True) if isinstance(d, int)]
                assert all(d == n for d, n in known), f"{value} is {result.shape}"
        return tuple(results[v.name] for v in graph.outputs)


class ReferenceBackend(Backend):  # type: ignore[misc]
    """Reader, specialiser and reference, without devices."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, _device: str = "CPU", **_: Any) -> ReferenceRep:
        return ReferenceRep(read_graph(model, optimise=False))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def cases(backend: type[Backend], prefix: str) -> dict[str, type[unittest.TestCase]]:
    """The suite's test classes without the downloads and CUDA, known failures skipped with their reasons."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes its expectations while it loads, overflows included
        found = Runner(backend, __name__).include("_cpu$").test_cases
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


globals().update(cases(ReferenceBackend, "Reference"))
