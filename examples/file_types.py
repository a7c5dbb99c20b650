"""Tells the types of files with Google's Magika model, over the devices found.

    python examples/file_types.py FILE ...

The model and its labels come out of the package `magika` on PyPI (Apache-2.0), downloaded once into Opweave's cache folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import opweave
from opweave import settings

PACKAGE = "magika==1.0.3"
FOLDER = "magika/models/standard_v3_3"
SIDE, BLOCK, PADDING = 1024, 4096, 256  # of the model's config: bytes from each end, stripped block, filler token


def files() -> tuple[Path, list[str]]:
    """The model's path and its labels."""
    cache = settings.cache_dir() / "demo"
    wheels = list(cache.glob("magika-*.whl"))
    if not wheels:
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(cache), PACKAGE]
        subprocess.run(command, check=True)
        wheels = list(cache.glob("magika-*.whl"))
    with zipfile.ZipFile(wheels[0]) as wheel:
        model = Path(wheel.extract(f"{FOLDER}/model.onnx", cache))
        config = json.loads(wheel.read(f"{FOLDER}/config.min.json"))
    return model, config["target_labels_space"]


def tokens(path: Path) -> np.ndarray:
    """The model's view of a file, int32 [2 * SIDE]: the first and the last bytes, white space stripped, filled up."""
    content = path.read_bytes()
    first, last = content[:BLOCK].lstrip()[:SIDE], content[-BLOCK:].rstrip()[-SIDE:]
    row = np.full(2 * SIDE, PADDING, np.int32)
    row[: len(first)] = list(first)
    row[2 * SIDE - len(last) :] = list(last)
    return row


def main(paths: list[str]) -> None:
    for device in opweave.devices():
        print(f"{device.id}: {device.description}")
    model, labels = files()
    batch = np.stack([tokens(Path(p)) for p in paths])
    start = time.perf_counter()
    session = opweave.load(model)
    scores = session.run([batch])["target_label"]
    first = time.perf_counter() - start
    print(f"\n{session.plan}\n")
    for path, row in zip(paths, scores, strict=True):
        best = np.argsort(row)[::-1][:3]
        print(f"{path}: " + ", ".join(f"{labels[i]} {row[i]:.1%}" for i in best))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        session.run([batch])
        times.append(time.perf_counter() - start)
    print(f"\nload and first result {first * 1e3:.0f} ms, then {sorted(times)[5] * 1e3:.1f} ms for {len(paths)} files")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python examples/file_types.py FILE ...")
    main(sys.argv[1:])
