"""Damaged models loaded and run: each runs or gets one clear error, in bounded time and memory, and no process dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SMALL = ("small", "logreg_iris", "wakeword_mel")
LARGER = (
    "dnsmos_p808",
    "ppocr_cls",
    "silero_vad",
    "silero_vad_half",
    "silero_vad_sequence",
    "wakeword_embed",
    "plcmos",
)
KINDS = ("bytes", "structure")
MEMORY = 1 << 30
SECONDS = 10


def attack(source: str, kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """What became of each mutant; fails where the process that ran them died."""
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here, here.parent / "support")))
    command = [sys.executable, str(here / "mutant_runs.py"), source, kind, str(count), str(seed)]
    env = os.environ | {"PYTHONPATH": paths, "OPWEAVE_MEMORY_LIMIT": str(MEMORY)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{source} {kind} {seed}, mutant {lines[-1:]}: {done.stderr[-2000:]}"
    return [line for line in lines if "result" in line]


def judge(source: str, kind: str, count: int, seed: int) -> None:
    results = attack(source, kind, count, seed)
    assert len(results) == count
    assert max(r["seconds"] for r in results) < SECONDS
    assert max(r["peak"] for r in results) < 2 * MEMORY
    ran = sum(r["result"] == "ran" for r in results)
    assert 0 < ran < count  # else the mutants prove nothing


@pytest.mark.models
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SMALL)
def test_mutants(source: str, kind: str):
    judge(source, kind, 60, seed=0)


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SMALL + LARGER)
def test_many_mutants(source: str, kind: str):
    judge(source, kind, 200, seed=1)
