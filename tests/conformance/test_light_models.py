"""The nine image networks that ONNX ships with its tests: whole structures, weights all alike, expected outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import DATA_DIR
from onnx.backend.test.runner import Runner
from opweave.protos import value_type
from opweave.read import read_graph
from opweave.specialise import specialise
from opweave_cpu.device import CpuDevice

MODELS = sorted(Path(DATA_DIR).glob("light/*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
@pytest.mark.parametrize("optimise", [True, False])
def test_light_model(path: Path, optimise: bool) -> None:
    model = onnx.load(path)
    graph = read_graph(model, optimise=optimise)
    weights = {i.name for i in model.graph.initializer}
    declared = [i for i in model.graph.input if i.name not in weights]
    feeds = {i.name: Runner.generate_dummy_data(i, seed=0, name=path.stem, random=False) for i in declared}
    specialised = specialise(graph, {name: value_type(x) for name, x in feeds.items()})
    (result,) = CpuDevice(threads=2).compile(specialised).call([feeds[v.name] for v in specialised.inputs])
    expected = onnx.numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-7)
