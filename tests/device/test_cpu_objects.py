"""Results that are no tensors, made inside the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import opweave
import pytest
from onnx import TensorProto, helper
from opweave.errors import ExecutionError
from opweave.types import MapType, SequenceType


def session(rank: int, *then: Any, **attributes: Any) -> opweave.Session:
    """A ZipMap, and what follows it."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank)
    zipped = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    key = TensorProto.STRING if "classlabels_strings" in attributes else TensorProto.INT64
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    y = helper.make_value_info("y", helper.make_sequence_type_proto(kind))
    graph = helper.make_graph([zipped, *then], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return opweave.load(helper.make_model(graph, opset_imports=opsets, ir_version=8), devices="cpu")


@pytest.mark.parametrize("labels", [{"classlabels_strings": ["a", "b", "c"]}, {"classlabels_int64s": [7, 0, -1]}])
def test_zip_map(labels: dict[str, list[Any]]) -> None:
    (names,) = labels.values()
    one = session(2, **labels)
    assert isinstance(one.outputs["y"], SequenceType)
    assert isinstance(one.outputs["y"].element, MapType)
    for rows in (3, 1, 0):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) / 8
        assert one.run([x])["y"] == [dict(zip(names, row, strict=True)) for row in x.tolist()]
    assert session(1, **labels).run([np.array([0.5, 1, 2], np.float32)])["y"] == [
        dict(zip(names, [0.5, 1, 2], strict=True))
    ]
    (program,) = one.compiled([np.zeros((1, 3), np.float32)]).programs.values()
    assert program.calls() == []


def test_zip_map_of_other_columns_than_labels() -> None:
    with pytest.raises(ExecutionError, match=r"2 columns for 3 class labels.*ZipMap"):
        session(2, classlabels_strings=["a", "b", "c"]).run([np.zeros((1, 2), np.float32)])


def test_zip_map_results_are_the_callers() -> None:
    one = session(2, classlabels_int64s=[1])
    first = one.run([np.zeros((1, 1), np.float32)])["y"]
    first[0][1] = first[0][2] = 5.0
    assert one.run([np.zeros((1, 1), np.float32)])["y"] == [{1: 0.0}]
