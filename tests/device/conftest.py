"""Fixtures for the kernels of the `cpu` provider.

`core` runs one operator. A module that lists `NODE_OPERATORS` and asks for `node_case` gets ONNX's own node tests of
those operators, one by one.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from opweave_cpu import _core

Array = np.ndarray[Any, Any]


def crossing(array: Array) -> tuple[Array, int]:
    """The array as the core takes it (extension types as unsigned views), and its TensorProto data type."""
    array = np.asarray(array, order="C")
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    if array.dtype.kind == "V" or array.dtype.name not in np.sctypeDict:
        array = array.view(f"u{array.dtype.itemsize}")
    return array, int(code)


class Core:
    """One call of one native operator."""

    def run(
        self,
        op: str,
        inputs: Sequence[Array | None],
        attrs: Mapping[str, Any] | None = None,
        outputs: Sequence[Any] | None = None,
        domain: str = "",
        threads: int = 1,
        constant: bool = False,
    ) -> list[Array]:
        """The present outputs. `outputs`: a NumPy dtype per output, None for an omitted one; default: as input 0."""
        given = [None if x is None else crossing(x) for x in inputs]
        first = inputs[0] if inputs else None
        wanted = outputs if outputs is not None else [first.dtype if first is not None else np.float32]
        codes = [0 if d is None else int(helper.np_dtype_to_tensor_dtype(np.dtype(d))) for d in wanted]
        results = _core.eager(op, domain, dict(attrs or {}), given, codes, threads, constant)
        return [a.view(helper.tensor_dtype_to_np_dtype(code)) for a, code in (r for r in results if r is not None)]


@pytest.fixture(scope="session")
def core() -> Core:
    return Core()


@dataclass(frozen=True)
class NodeCase:
    """A single-node model of ONNX's backend tests with its data and tolerances."""

    name: str
    model: onnx.ModelProto
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    rtol: float
    atol: float

    def check(self, core: Core, constant: bool = False) -> None:
        """Runs the node and compares every output; with `constant`, every input counts as a constant of the model."""
        node, graph = self.model.graph.node[0], self.model.graph
        values = dict(zip((i.name for i in graph.input), self.inputs, strict=True))
        dtypes = dict(zip((o.name for o in graph.output), (w.dtype for w in self.outputs), strict=True))
        attrs = {a.name: attribute(a) for a in node.attribute}
        got = core.run(
            node.op_type,
            [values.get(n) for n in node.input],
            attrs,
            [dtypes.get(n) for n in node.output],
            node.domain,
            constant=constant,
        )
        assert len(got) == len(self.outputs)
        for g, w in zip(got, self.outputs, strict=True):
            assert g.dtype == w.dtype
            assert g.shape == w.shape
            wide = np.float64 if w.dtype.kind in "fV" else w.dtype
            rtol = max(self.rtol, 2**-6) if w.dtype.name == "bfloat16" else self.rtol  # as ONNX's own runner has it
            np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol, self.atol)


def attribute(proto: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return crossing(numpy_helper.to_array(value)) if isinstance(value, onnx.TensorProto) else value


@functools.cache
def single_nodes() -> dict[str, list[NodeCase]]:
    """ONNX's node tests that are one node in the newest form of its operator, by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes the cases while they load, overflows included
        tests = load_model_tests(kind="node")
    found: dict[str, list[NodeCase]] = {}
    for test in tests:
        nodes = test.model.graph.node
        if len(nodes) != 1 or not newest(test.model):
            continue
        inputs, outputs = ([plain(v) for v in values] for values in test.data_sets[0])
        if all(numeric(a) for a in (*inputs, *outputs)):
            case = NodeCase(test.name, test.model, inputs, outputs, test.rtol, test.atol)
            found.setdefault(nodes[0].op_type, []).append(case)
    return found


def plain(value: Any) -> Any:
    """Tensors of types that NumPy lacks come as messages, some scalars as NumPy scalars."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def numeric(value: Any) -> bool:
    """Strings, sequences and optionals never reach the core."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OSUT"


def newest(model: onnx.ModelProto) -> bool:
    node = model.graph.node[0]
    opset = next(o.version for o in model.opset_import if (o.domain or "ai.onnx") == (node.domain or "ai.onnx"))
    return onnx.defs.has(node.op_type, node.domain) and bool(
        opset >= onnx.defs.get_schema(node.op_type, node.domain).since_version
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node_case" in metafunc.fixturenames:
        cases = [c for op in metafunc.module.NODE_OPERATORS for c in single_nodes()[op]]
        metafunc.parametrize("node_case", cases, ids=[c.name for c in cases])
