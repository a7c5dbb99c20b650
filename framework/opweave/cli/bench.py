"""`opweave bench`: latency of a model here and in other engines, each in a process of its own, in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from opweave.cli.shared import guessing, loaded, made_up, model_arguments, shapes
from opweave.errors import ExecutionError, UsageError
from opweave.report import seconds_text, table

HELP = "time a model, and the same model in other engines"
OWN, PEERS = "opweave", ("onnxruntime", "openvino")
LEAST, MOST = 5, 2000  # calls of one round


def arguments(parser: argparse.ArgumentParser) -> None:
    model_arguments(parser)
    parser.add_argument("--against", default="", metavar="ENGINES", help=f"any of {', '.join(PEERS)}, by commas")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of a call on the cpu")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="processes for each engine (default 3)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="time of one round (default 1)")
    parser.add_argument("--in-process", metavar="ENGINE", help=argparse.SUPPRESS)


def main(options: argparse.Namespace) -> int:
    if options.in_process:
        print(json.dumps(_round(options.in_process, options)))
        return 0
    if options.rounds < 1 or options.threads < 1:
        raise UsageError(f"{options.rounds} rounds on {options.threads} threads", "both must be at least 1")
    engines = [OWN, *_peers(options.against)]
    rounds = [{e: _in_process(e, options.given) for e in engines} for _ in range(options.rounds)]
    best = {e: min(r[e] for r in rounds) for e in engines}
    if options.json:
        print(json.dumps({"seconds": best, "threads": options.threads, "rounds": options.rounds}, indent=2))
        return 0
    rows = [("engine", "median of the best round", "opweave takes")]
    rows += [(e, seconds_text(s), "" if e == OWN else f"{best[OWN] / s:.2f} of it") for e, s in best.items()]
    print("\n".join(table(rows)))
    return 0


def _peers(text: str) -> list[str]:
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in PEERS:
            raise UsageError(f"--against {name}", f"the engines known are {', '.join(PEERS)}", "name one of them")
    return names


def _in_process(engine: str, given: Sequence[str]) -> float:
    """One round in a fresh process with the arguments of this one."""
    command = [sys.executable, "-m", "opweave", *given, "--in-process", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it died without a word"])[-1]
        kind = UsageError if done.returncode == UsageError.exit_code else ExecutionError
        raise kind(f"a round of {engine}", last.removeprefix("opweave: "))
    return float(json.loads(done.stdout.splitlines()[-1]))


def _round(engine: str, options: argparse.Namespace) -> float:
    return median_seconds(_caller(engine, options), options.seconds)


def median_seconds(call: Callable[[], Any], budget: float) -> float:
    """Median seconds of a call, the first one aside, over `budget` seconds of calls."""
    call()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < LEAST or (time.perf_counter() - start < budget and len(times) < MOST):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def _caller(engine: str, options: argparse.Namespace) -> Callable[[], Any]:
    session = loaded(options)
    wanted = shapes(options.shape)
    feeds = made_up(session.inputs, wanted)
    if engine == OWN:
        with guessing(session.inputs, wanted):
            session.run(feeds)
        return lambda: session.run(feeds)
    session.close()
    return peer(engine, options.model, options.threads, feeds)


def peer(engine: str, model: str, threads: int, feeds: dict[str, Any]) -> Callable[[], Any]:
    """One call of the model in one of `PEERS`, as a user of it would write it. Raises `UsageError` where it is missing."""
    maker = {"onnxruntime": _onnxruntime, "openvino": _openvino}[engine]
    try:
        return maker(model, threads, feeds)
    except ImportError as error:
        raise UsageError(f"engine {engine}", "it is not installed", f"pip install {engine}") from error


def _onnxruntime(model: str, threads: int, feeds: dict[str, Any]) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    peer = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: peer.run(None, feeds)


def _openvino(model: str, threads: int, feeds: dict[str, Any]) -> Callable[[], Any]:
    import openvino

    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(model, "CPU", config).create_infer_request()
    return lambda: request.infer(feeds)
