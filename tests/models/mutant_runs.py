"""Loads and runs damaged models, in a process of its own: a crash, a hang or a lack of memory ends only this one.

    python tests/models/mutant_runs.py SOURCE KIND COUNT SEED

SOURCE is the name of a real model, or `small` for those of `onnx_models`; KIND is `bytes` or `structure`. One line of
JSON a mutant: what became of it ("ran", or the error's class), its seconds, and the process's peak memory in bytes.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
import time
import warnings
from typing import Any

import mutants
import numpy as np
import onnx
import onnx_models
import opweave
import real_models
from opweave.types import TensorType

HANG = 60  # seconds after which a mutant is taken to hang, and the process ends with its stack
ADDRESS_SPACE = 6 << 30


def made_up(session: opweave.Session) -> dict[str, Any]:
    """Inputs as they are declared, unknown dimensions of 2."""
    rng = np.random.default_rng(0)
    feeds = {}
    for name, declared in session.inputs.items():
        if isinstance(declared, TensorType):
            shape = [d if isinstance(d, int) and 0 <= d < 1000 else 2 for d in declared.shape or ()]
            feeds[name] = rng.integers(0, 2, shape[:8]).astype(declared.dtype.numpy or np.float32)
    return feeds


def outcome(model: bytes | onnx.ModelProto, feeds: dict[str, Any] | None) -> str:
    try:
        session = opweave.load(model, devices=["cpu"])
        session.run(made_up(session) if feeds is None else feeds)
    except opweave.OpweaveError as error:
        return clear(error)
    return "ran"


def clear(error: opweave.OpweaveError) -> str:
    """Its class and text, which says what was asked in one line."""
    assert error.asked
    assert "\n" not in str(error)
    return f"{type(error).__name__}: {error}"


def cases(source: str, kind: str, count: int, seed: int) -> Any:
    if source == "small":
        protos = {name: make() for name, make in onnx_models.EVERY.items()}
    else:
        protos = {source: onnx.load(real_models.fetch(source))}
    if kind == "structure":
        return mutants.structural_mutants(protos, count, seed)
    return mutants.byte_mutants({name: p.SerializeToString() for name, p in protos.items()}, count, seed)


def main(source: str, kind: str, count: int, seed: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    warnings.simplefilter("ignore")
    feeds = None if source == "small" else real_models.feeds(source)
    for number, (name, model) in enumerate(cases(source, kind, count, seed)):
        faulthandler.dump_traceback_later(HANG, exit=True)
        start = time.perf_counter()
        print(json.dumps({"number": number, "name": name}), flush=True)
        result = outcome(model, feeds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"result": result, "seconds": time.perf_counter() - start, "peak": peak}), flush=True)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
