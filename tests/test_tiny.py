"""The smallest way through the whole: a path on disk, a plan, a run, a second shape, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import opweave

TEXT = """<ir_version: 8, opset_import: ["": 17]>
tiny (float[N, 4] x) => (float[N, 4] y) { a = Add(x, x) b = Relu(a) y = Mul(b, x) }"""


def test_load_plan_run(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    with opweave.load(path, devices="cpu") as session:
        for rows in (3, 1, 0):
            x = np.linspace(-1, 1, rows * 4, dtype=np.float32).reshape(rows, 4)
            np.testing.assert_allclose(session.run({"x": x})["y"], np.maximum(x + x, 0) * x, rtol=1e-6)
        assert {s.device for s in session.plan.stages} == {"cpu"}
        assert "cpu" in str(session.plan)


def test_importing_brings_no_heavy_package() -> None:
    code = "import sys, opweave; print([m for m in ('onnx', 'onnx_ir', 'opweave_cpu') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "opweave", "devices"], capture_output=True, text=True, check=True)
    assert "cpu" in done.stdout
