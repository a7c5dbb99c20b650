"""Damaged models: sound models with a few bytes, or a few things that they say, changed at random."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping

from onnx import ModelProto

NUMBERS = (0, 1, -1, 2, 7, 99, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))


def places(message, found=None):
    """Every scalar that is set in a message and those below it, as (message, field, index or None)."""
    found = [] if found is None else found
    for field, value in message.ListFields():
        for index, item in enumerate(value) if field.is_repeated else [(None, value)]:
            if field.message_type is not None:
                places(item, found)
                found.append((message, field, index))
            else:
                found.append((message, field, index))
    return found


def changed(proto, rng: random.Random) -> None:
    """One scalar becomes another of its kind, or an element or field disappears."""
    message, field, index = rng.choice(places(proto))
    if field.message_type is not None or rng.random() < 0.2:
        if index is None:
            message.ClearField(field.name)
        else:
            del getattr(message, field.name)[index]
        return
    old = getattr(message, field.name) if index is None else getattr(message, field.name)[index]
    new = old
    if isinstance(old, str):
        new = rng.choice(["", "x", "y", "Add", "If", "own", "zero", old + "_"])
    elif isinstance(old, bytes):
        new = rng.choice([b"", old[1:], old + b"\xff"])
    elif isinstance(old, int):
        kept = [n for n in NUMBERS if abs(n) < 2**31] if field.type in (field.TYPE_INT32, field.TYPE_ENUM) else NUMBERS
        new = rng.choice(kept)
    with contextlib.suppress(ValueError):  # an enumeration takes its own numbers only
        if index is None:
            setattr(message, field.name, new)
        else:
            getattr(message, field.name)[index] = new


def structural_mutants(protos: Mapping[str, ModelProto], count: int, seed: int) -> Iterator[tuple[str, ModelProto]]:
    """Models that are sound protobuf and say something else than they should, with the names of their sources."""
    rng = random.Random(seed)
    for _ in range(count):
        name = rng.choice(list(protos))
        proto = ModelProto()
        proto.CopyFrom(protos[name])
        for _ in range(rng.randrange(1, 4)):
            changed(proto, rng)
        yield name, proto


def byte_mutants(files: Mapping[str, bytes], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Bit flips, changed bytes, insertions and truncations, with the names of their sources."""
    rng = random.Random(seed)
    for _ in range(count):
        name = rng.choice(list(files))
        data, kind = bytearray(files[name]), rng.randrange(4)
        at = place(files[name], rng)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at] = rng.randrange(256)
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        yield name, bytes(data)


def place(data: bytes, rng: random.Random) -> int:
    """An offset. Weights are most of a large file, and a changed one is no damage: half of the offsets lie near text."""
    anywhere = rng.randrange(len(data))
    if rng.random() < 0.5:
        return anywhere
    near = max(
        data.find(rng.choice([b"kernel_shape", b"onnx::", b"Conv", b"Add", b"axis", b"MatMul", b"Reshape"]), anywhere),
        0,
    )
    return min(near + rng.randrange(64), len(data) - 1)
