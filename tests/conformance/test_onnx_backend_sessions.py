"""`opweave.backend`: ONNX's backend tests over sessions, and what the suite does not ask of the interface."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from onnx_suite import cases
from opweave import backend

globals().update(cases(backend.OpweaveBackend, "Session", __name__))


def test_devices_by_onnx_names() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("TPU")


def test_single_nodes_of_any_domain() -> None:
    x = np.ones(3, np.float32)
    assert backend.run_node(helper.make_node("Add", ["a", "b"], ["y"]), [x, x])[0].tolist() == [2, 2, 2]
    gelu = helper.make_node("FastGelu", ["a"], ["y"], domain="com.microsoft")
    np.testing.assert_allclose(backend.run_node(gelu, {"a": x})[0], 0.841192, rtol=1e-5)


def test_outputs_answer_to_names_and_positions() -> None:
    outputs = backend.run_node(helper.make_node("Split", ["a"], ["p", "q"], num_outputs=2), [np.arange(4)])
    assert outputs["q"].tolist() == outputs[1].tolist() == [2, 3]  # type: ignore[call-overload]


def test_models_that_cannot_run_are_not_compatible() -> None:
    node = helper.make_node("Nothing", ["a"], ["y"], domain="org.example")
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in ("a", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("org.example", 1)])
    assert not backend.is_compatible(model)
