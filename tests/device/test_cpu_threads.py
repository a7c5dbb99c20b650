"""The thread pool, seen through a program: forked children have a pool of their own."""

from __future__ import annotations

import multiprocessing
import warnings
from typing import Any

import numpy as np
import onnx
from opweave.read import read_graph
from opweave_cpu.device import CpuDevice
from opweave_cpu.program import CpuProgram

SIZE = 1 << 18


def program() -> CpuProgram:
    text = '<ir_version: 10, opset_import: ["" : 22]>\ng (float[N] x) => (float[N] y) { a = Exp(x) y = Tanh(a) }'
    return CpuDevice(2).compile(read_graph(onnx.parser.parse_model(text)))


def total(made: CpuProgram) -> float:
    return float(made.call([np.ones(SIZE, np.float32)])[0].sum())


def in_child(made: CpuProgram, results: Any) -> None:
    results.put([total(made) for _ in range(3)])


def test_a_forked_child_computes() -> None:
    made = program()
    wanted = total(made)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=in_child, args=(made, results))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process with threads: the case here
        child.start()
    child.join(60)
    assert child.exitcode == 0
    assert results.get() == [wanted] * 3
