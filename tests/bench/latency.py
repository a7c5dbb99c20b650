"""`make bench`: Opweave against ONNX Runtime and OpenVINO on the real models, each engine in its own process, in turn.

    python tests/bench/latency.py [--engines opweave,onnxruntime,openvino] [--rounds 3] [MODEL ...]

Prints milliseconds (best median of the rounds), the ratio to the faster peer, and the share of Opweave's time that is
spent inside the C++ core with the three dearest operators outside it. First lines: import time, and a call of ten
elementwise nodes on 32 floats.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from opweave.cli.bench import median_seconds, peer

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import real_models

THREADS = 2
SECONDS = 1.0  # of calls in one round
TINY = """<ir_version: 8, opset_import: ["": 17]> tiny (float[32] x) => (float[32] y) {
    a = Add(x, x) b = Mul(a, x) c = Relu(b) d = Sub(c, x) e = Mul(d, d)
    f = Add(e, x) g = Sigmoid(f) h = Mul(g, x) i = Tanh(h) y = Add(i, x)
}"""
IMPORTS = {"opweave": "import opweave", "onnxruntime": "import onnxruntime", "openvino": "import openvino"}


def caller(engine: str, path: str, inputs: dict[str, Any]) -> Callable[[], Any]:
    """One call of the model as a user of the engine would write it."""
    if engine == "opweave":
        import opweave

        session = opweave.load(path, devices="cpu", threads=THREADS)
        return lambda: session.run(inputs)
    return peer(engine, path, THREADS, inputs)


def child(engine: str, name: str) -> dict[str, Any]:
    """Runs in a process of its own."""
    if name == "tiny":
        path, inputs = str(Path(os.environ["TINY"])), {"x": np.ones(32, np.float32)}
    else:
        path, inputs = str(real_models.fetch(name)), real_models.feeds(name)
    result: dict[str, Any] = {"seconds": median_seconds(caller(engine, path, inputs), SECONDS)}
    if engine == "opweave":
        result |= profile(path, inputs)
    return result


def profile(path: str, inputs: dict[str, Any]) -> dict[str, Any]:
    import opweave

    compiled = opweave.load(path, devices="cpu", threads=THREADS).compiled(inputs)
    (program,) = compiled.programs.values()
    arrays = [inputs[v.name] for v in compiled.plan.graph.inputs]
    program.profile(arrays)
    _, rows = program.profile(arrays)
    outside: dict[str, float] = {}
    for row in rows:
        if not row.native:
            outside[row.operator] = outside.get(row.operator, 0.0) + row.seconds
    whole = sum(r.seconds for r in rows) or 1.0
    worst = sorted(outside.items(), key=lambda kv: -kv[1])[:3]
    return {"share": 1 - sum(outside.values()) / whole, "worst": [f"{o} {s / whole:.1%}" for o, s in worst]}


def measure(engine: str, name: str) -> dict[str, Any] | None:
    command = [sys.executable, __file__, "--child", engine, name]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}, check=False
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def import_seconds(statement: str) -> float:
    code = f"import numpy, time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False) for _ in range(5)]
    return min(float(r.stdout.splitlines()[-1]) for r in runs if r.returncode == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--engines", default="opweave,onnxruntime,openvino")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child)))
        return
    engines = options.engines.split(",")
    print("import beyond numpy: " + ", ".join(f"{e} {import_seconds(IMPORTS[e]) * 1e3:.1f} ms" for e in engines))
    os.environ["TINY"] = str(real_models.settings.cache_dir() / "tiny.onnx")
    Path(os.environ["TINY"]).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(TINY), os.environ["TINY"])
    print(f"{'model':22}" + "".join(f"{e:>13}" for e in engines) + f"{'ratio':>8}{'in core':>9}  outside")
    ratios = []
    for name in options.models or ["tiny", *real_models.manifest()]:
        rounds = [{e: measure(e, name) for e in engines} for _ in range(options.rounds)]
        best = {e: min((r[e]["seconds"] for r in rounds if r[e]), default=None) for e in engines}
        peers = [s for e, s in best.items() if e != "opweave" and s is not None]
        own = best.get("opweave")
        ratio = own / min(peers) if own and peers else None
        if ratio is not None and name != "tiny":
            ratios.append(ratio)
        figures = "".join(f"{s * 1e3:13.4g}" if s is not None else f"{'fails':>13}" for s in best.values())
        last = next((r["opweave"] for r in reversed(rounds) if r.get("opweave")), {"share": 0.0, "worst": []})
        told = f"{ratio:8.2f}" if ratio is not None else f"{'':8}"
        print(f"{name:22}{figures}{told}{last['share']:9.1%}  {', '.join(last['worst'])}", flush=True)
    if ratios:
        print(f"geometric mean of {len(ratios)} models: {float(np.exp(np.mean(np.log(ratios)))):.3f}")


if __name__ == "__main__":
    main()
