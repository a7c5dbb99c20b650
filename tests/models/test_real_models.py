"""Real models against ONNX Runtime, on the `cpu` and over a simulated accelerator that takes half of the nodes.

Float models: within 1e-4 + 1e-3 of the output's range. Models that compute in int8 round at hundreds of places, and ONNX
Runtime itself is far from the exact evaluation there (0.19 of 25 on `tashkeel_bilstm_int8`): they are compared with the
reference implementation, and may be twice as far from it as ONNX Runtime is, with equal labels wherever those are clear.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import opweave
import pytest
from opweave.read import read_graph
from opweave.reference import evaluate_graph
from opweave.testing import Behaviour, SimProvider, registered

sys.path.insert(0, str(Path(__file__).parent))
import real_models

pytestmark = pytest.mark.models
CASES = [(name, key) for name, e in real_models.manifest().items() for key in ("inputs", "alt_inputs") if e.get(key)]
Arrays = dict[str, Any]


def fetched(name: str) -> Path:
    try:
        return real_models.fetch(name)
    except subprocess.CalledProcessError:
        pytest.skip(f"the package of {name} cannot be downloaded")


def peer(path: Path, inputs: Arrays) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))


def distance(a: Any, b: Any) -> float:
    return float(np.max(np.abs(a.astype(np.float64) - b), initial=0.0))


def compare(got: Arrays, want: Arrays, exact: Arrays | None) -> None:
    assert list(got) == list(want)
    for name, w in want.items():
        if not isinstance(w, np.ndarray):
            assert [{k: pytest.approx(v, 1e-4, 1e-6) for k, v in row.items()} for row in w] == got[name]
        elif w.dtype.kind != "f":
            np.testing.assert_array_equal(got[name], w)
        else:
            assert got[name].shape == w.shape
            assert got[name].dtype == w.dtype
            if exact is None:
                assert distance(got[name], w) <= 1e-4 + 1e-3 * float(np.ptp(w))
            else:
                assert distance(got[name], exact[name]) <= 1e-4 + 2 * distance(w, exact[name])
                assert_labels(got[name], w, 2 * distance(w, exact[name]))


def assert_labels(got: Any, want: Any, noise: float) -> None:
    """Equal labels, but where the peer's best two are nearer to each other than its own error."""
    if want.shape[-1] > 1:
        best = np.sort(want, -1)
        clear = best[..., -1] - best[..., -2] > noise
        np.testing.assert_array_equal(got.argmax(-1)[clear], want.argmax(-1)[clear])
        assert clear.mean() > 0.8


@pytest.mark.parametrize(("name", "key"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
def test_cpu(name: str, key: str) -> None:
    path, inputs = fetched(name), real_models.feeds(name, key)
    exact = (
        evaluate_graph(read_graph(path, optimise=False), inputs) if real_models.manifest()[name].get("int8") else None
    )
    compare(opweave.load(path, devices="cpu").run(inputs), peer(path, inputs), exact)


HALVES = ["dnsmos_p808", "magika", "ppocr_cls", "silero_vad", "silero_vad_sequence", "light_squeezenet", "logreg_iris"]


@pytest.mark.parametrize("name", HALVES)
def test_half_of_the_nodes_elsewhere(name: str) -> None:
    path, inputs = fetched(name), real_models.feeds(name)
    free = Behaviour(takes=0.5, seed=1, seconds=0.0, launch=0.0, link_latency=0.0, link_bandwidth=1e18)
    with registered(SimProvider(free)):
        session = opweave.load(path, devices=["sim:0"])
        compare(session.run(inputs), peer(path, inputs), None)
        assert name == "logreg_iris" or {"sim:0", "cpu"} <= {s.device for s in session.plan.stages}
