"""Weights taken out of a model's bytes before protobuf sees them.

Protobuf copies everything it parses, and a copy of that is made again for every array. Here the large `raw_data` of
tensors are found in the encoded message and replaced by short tickets; a weight is read from the file when it is first
asked for, into memory of its own: aligned, and safe from whatever happens to the file later.
A ticket holds random bytes of this very load, so no model can contain one.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import io
import mmap
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from opweave.errors import ModelError

_SMALLEST = 1024  # bytes; smaller tensors are left to protobuf
_TOKEN_BYTES = 16

# Field number to what stands there; None is the payload itself. Weights of bodies stay: bodies hold few.
_Layout: TypeAlias = "Mapping[int, _Layout | None]"
_TENSOR: _Layout = {9: None}
_NODE: _Layout = {5: {5: _TENSOR}}  # attribute.t
_MODEL: _Layout = {7: {1: _NODE, 5: _TENSOR}}  # graph.node, graph.initializer


class Malformed(Exception):
    """The bytes are no protobuf message: protobuf itself will say so."""


class WeightFile:
    """A file kept open for its weights; threads may read at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = io.FileIO(path)
        self._lock = threading.Lock()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def map(self) -> memoryview:
        """The whole file, mapped for as long as the view lives."""
        return memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))

    def read(self, start: int, nbytes: int) -> np.ndarray[Any, Any]:
        """Bytes of the file. Raises `ModelError` where the file has lost them."""
        data = np.empty(nbytes, np.uint8)
        done = 0
        with self._lock:
            self._file.seek(start)
            while done < nbytes:
                count = self._file.readinto(data.data[done:])
                if not count:
                    asked = f"read the weights in {self.path}"
                    raise ModelError(asked, "the file has become shorter", "load the model again")
                done += count
        return data


@dataclass(frozen=True)
class FileSpan:
    """Bytes of a file."""

    file: WeightFile
    start: int
    nbytes: int

    def __len__(self) -> int:
        return self.nbytes

    def read(self) -> np.ndarray[Any, Any]:
        """The bytes, in memory of their own."""
        return self.file.read(self.start, self.nbytes)


Payload: TypeAlias = bytes | memoryview | FileSpan


@dataclass
class Payloads:
    """The weights that were taken out, by ticket. They lie in `file`, or in `data` where there is none."""

    data: memoryview
    file: WeightFile | None = None
    token: bytes = field(default_factory=lambda: secrets.token_bytes(_TOKEN_BYTES))
    spans: list[tuple[int, int]] = field(default_factory=list)

    def ticket(self, start: int, end: int) -> bytes:
        """Stands for `data[start:end]`."""
        self.spans.append((start, end))
        return self.token + len(self.spans).to_bytes(8, "little")

    def resolve(self, raw: bytes) -> Payload:
        """The payload of a ticket; other bytes are what they are."""
        if len(raw) != _TOKEN_BYTES + 8 or not raw.startswith(self.token):
            return raw
        start, end = self.spans[int.from_bytes(raw[_TOKEN_BYTES:], "little") - 1]
        return self.data[start:end] if self.file is None else FileSpan(self.file, start, end - start)


def take_weights(data: memoryview, file: WeightFile | None = None) -> tuple[bytes | memoryview, Payloads]:
    """The message with tickets in place of large weights, and the weights. Unchanged where the bytes make no sense."""
    payloads = Payloads(data if file is None else memoryview(b""), file)
    try:
        return _stripped(data, 0, len(data), _MODEL, payloads) or data, payloads
    except Malformed:
        return data, Payloads(data)


def _stripped(data: memoryview, at: int, end: int, layout: _Layout, payloads: Payloads) -> bytes | None:
    """The message `data[at:end]` rewritten; None where nothing in it was taken out."""
    parts: list[bytes | memoryview] = []
    kept = at
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        if key & 7 != 2:
            at = _skip(data, at, end, key & 7)
            continue
        length, at = _varint(data, at, end)
        stop = at + length
        if stop > end:
            raise Malformed
        if length >= _SMALLEST and key >> 3 in layout:
            inner = layout[key >> 3]
            new = payloads.ticket(at, stop) if inner is None else _stripped(data, at, stop, inner, payloads)
            if new is not None:
                parts += [data[kept:start], _encoded(key), _encoded(len(new)), new]
                kept = stop
        at = stop
    return b"".join([*parts, data[kept:end]]) if parts else None


def _skip(data: memoryview, at: int, end: int, kind: int) -> int:
    if kind == 0:
        return _varint(data, at, end)[1]
    if kind not in (1, 5):
        raise Malformed
    at += 8 if kind == 1 else 4
    if at > end:
        raise Malformed
    return at


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Malformed


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
