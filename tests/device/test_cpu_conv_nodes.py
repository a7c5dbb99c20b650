"""ONNX's own node tests of convolution and pooling, each run as one operator of the C++ core."""

import importlib
import re
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_cases
from opweave_cpu import _core

MODULES = ("averagepool", "col2im", "conv", "convinteger", "convtranspose", "deformconv", "globalaveragepool",
           "globalmaxpool", "lppool", "maxpool", "maxunpool", "qlinearconv")
WANTED = re.compile(r"test_(basic_conv|conv|convinteger|convtranspose|col2im|basic_deform_conv|deform_conv|qlinearconv|"
                    r"averagepool|globalaveragepool|globalmaxpool|lppool|maxpool|maxunpool)(_|$)")
CODES = {np.dtype(t): onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in
         ("float32", "float64", "float16", "int8", "uint8", "int32", "int64")} | {np.dtype(ml_dtypes.bfloat16): 16}


def collect() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in MODULES:
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
    return {case.name: case for case in node_cases._NodeTestCases if WANTED.match(case.name)}


CASES = collect()


def test_every_family_is_there() -> None:
    assert len(CASES) >= 75


@pytest.mark.parametrize("constant", [False, True], ids=["data", "constant"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_node(name: str, constant: bool) -> None:
    case = CASES[name]
    (node,) = case.model.graph.node
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attrs = {k: v.decode() if isinstance(v, bytes) else v for k, v in attrs.items()}
    given = [value.name for value in case.model.graph.input]
    for arrays, expected in case.data_sets:
        feeds = dict(zip(given, map(np.asarray, arrays), strict=True))
        inputs = [(feeds[n], CODES[feeds[n].dtype]) if n else None for n in node.input]
        outputs = [CODES[np.asarray(y).dtype] for y in expected]
        found = _core.eager(node.op_type, node.domain, attrs, inputs, outputs, 2, constant)
        for (array, code), y in zip(found, expected, strict=True):
            assert code == CODES[y.dtype]
            np.testing.assert_allclose(array, y, rtol=case.rtol, atol=max(case.atol, 1e-6))
