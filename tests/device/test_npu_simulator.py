"""The example plugin as a user has it: installed by pip, found by its entry point, given its part of a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.loader import DATA_DIR

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "plugins_example" / "npu_simulator"

SCRIPT = """
import json, sys
import numpy as np, opweave
from opweave.plugins import plugin_manager

model = sys.argv[1]
feeds = dict(np.load(sys.argv[2]))
session = opweave.load(model, devices=["npu:0", "cpu"])
found = session.run(feeds)
wanted = opweave.load(model, devices="cpu").run(feeds)
print(json.dumps({
    "broken": [str(b) for b in plugin_manager().broken],
    "devices": [d.id for d in opweave.devices()],
    "placed": {p.node: [p.device, str(p.reasons[0])] for p in session.plan.placements.values()},
    "operators": {n.name: n.operator for n in session.plan.graph.nodes},
    "error": max(float(np.abs(found[n] - wanted[n]).max()) for n in wanted),
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the plugin to, from a copy of the sources, without the network."""
    pytest.importorskip("setuptools", "70.1", reason="builds the plugin offline: pip install opweave[dev]")
    folder = tmp_path_factory.mktemp("npu")
    copy = folder / "source"
    _copy_tracked(SOURCE, copy)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", folder / "site", copy],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def _copy_tracked(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.suffix in {".py", ".toml", ".md"} and "build" not in path.relative_to(source).parts:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def run(installed: Path, tmp_path: Path, model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own reports that has the plugin on its path."""
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "feeds.npz", **feeds)
    path = os.pathsep.join([str(installed), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, tmp_path / "model.onnx", tmp_path / "feeds.npz"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def network() -> onnx.ModelProto:
    """Convolutions large enough to be worth the way to the NPU, and operators that it has no kernel for."""
    rng = np.random.default_rng(0)
    weights = {"w1": (32, 3, 3, 3), "b1": (32,), "w2": (64, 32, 3, 3), "w3": (64, 10)}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[0, 1, 2, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w3"], ["m"], name="product"),
        helper.make_node("Softmax", ["m"], ["y"], name="softmax"),
    ]
    arrays = [onnx_models.weight(n, rng.normal(size=s, scale=0.1).astype(np.float32)) for n, s in weights.items()]
    x, y = onnx_models.info("x", (2, 3, 128, 128)), onnx_models.info("y", (2, 10))
    return onnx_models.model(nodes, [x], [y], arrays)


def test_the_plugin_is_found_and_given_its_part_of_a_model(installed: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 128, 128)).astype(np.float32)
    report = run(installed, tmp_path, network(), {"x": x})
    assert report["broken"] == []
    assert report["devices"] == ["npu:0", "cpu"]
    by_operator: dict[str, set[str]] = {}
    for node, (device, _) in report["placed"].items():
        by_operator.setdefault(report["operators"][node], set()).add(device)
    assert by_operator["Conv"] == {"npu:0"}
    assert by_operator["Softmax"] == {"cpu"}
    (reason,) = [why for node, (_, why) in report["placed"].items() if report["operators"][node] == "Softmax"]
    assert reason == "npu:0: no kernel for Softmax"
    assert report["error"] < 1e-4


def squeezenet() -> onnx.ModelProto:
    """SqueezeNet as ONNX ships it with its tests, random weights in place of constant ones."""
    model = onnx.load(Path(DATA_DIR) / "light" / "light_squeezenet.onnx")
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    rng = np.random.default_rng(0)
    for node in [n for n in model.graph.node if n.op_type == "ConstantOfShape"]:
        shape = shapes[node.input[0]]
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        array = rng.normal(0, scale, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
        model.graph.node.remove(node)
    return model


def test_a_real_network_is_shared_with_the_cpu(installed: Path, tmp_path: Path) -> None:
    model = squeezenet()
    weights = {i.name for i in model.graph.initializer}
    (image,) = [i.name for i in model.graph.input if i.name not in weights]
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    report = run(installed, tmp_path, model, {image: x})
    on_npu = [node for node, (device, _) in report["placed"].items() if device == "npu:0"]
    assert sum(report["operators"][node] == "Conv" for node in on_npu) > 20
    assert {report["operators"][node] for node in set(report["placed"]) - set(on_npu)} >= {"MaxPool", "Softmax"}
    assert report["error"] < 1e-5


def test_a_small_model_stays_on_the_cpu(installed: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(1, 2, 5, 5)).astype(np.float32)
    report = run(installed, tmp_path, onnx_models.convolution(), {"x": x})
    assert {device for device, _ in report["placed"].values()} == {"cpu"}
    assert report["error"] == 0
