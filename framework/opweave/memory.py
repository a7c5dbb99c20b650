"""Static memory: values with known sizes and lives get offsets in one arena.

Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020): the largest value
first, each in the smallest gap that fits among those alive at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ALIGNMENT = 64


@dataclass(frozen=True)
class Life:
    """One value: alive from position `first` to `last`, both included; its maker runs at `first` to `first` + 1.

    `alias` is the value whose bytes it shows under another shape. `inplace` are values that its maker may write over, when
    they die there and have its size.
    """

    value: int
    nbytes: int
    first: int
    last: int
    alias: int | None = None
    inplace: Sequence[int] = ()


@dataclass(frozen=True)
class Layout:
    """Offsets of the values that have memory in the arena. No layout can be smaller than `lower_bound`."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    nbytes: int = 0
    lower_bound: int = 0


@dataclass
class _Block:
    nbytes: int
    first: int
    last: int
    values: list[int]


def plan_memory(lives: Iterable[Life]) -> Layout:
    """Places every value; those that share bytes share the offset. A value aliased to one not listed gets none."""
    blocks = _blocks(lives)
    order = sorted(blocks, key=lambda b: (-b.nbytes, b.first))
    starts = np.array([b.first for b in order], np.int64)
    ends = np.array([b.last for b in order], np.int64)
    offsets = np.zeros(len(order), np.int64)
    sizes = np.array([b.nbytes for b in order], np.int64)
    total = 0
    for i in range(len(order)):
        beside = np.flatnonzero((starts[:i] <= ends[i]) & (ends[:i] >= starts[i]))
        offsets[i] = _best_gap(offsets[beside], sizes[beside], int(sizes[i]))
        total = max(total, int(offsets[i] + sizes[i]))
    placed = {v: int(o) for b, o in zip(order, offsets, strict=True) for v in b.values}
    return Layout(placed, total, _most_alive(blocks))


def _blocks(lives: Iterable[Life]) -> list[_Block]:
    """Values that share memory, together, in the order of their making."""
    home: dict[int, _Block] = {}
    for life in sorted(lives, key=lambda v: v.first):
        if life.alias is not None:
            block = home.get(life.alias)
            if block is not None:
                block.last = max(block.last, life.last)
                home[life.value] = block
            continue
        nbytes = -(-life.nbytes // ALIGNMENT) * ALIGNMENT
        block = next((b for i in life.inplace if _ends(b := home.get(i), life, nbytes)), None)
        if block is None:
            block = _Block(nbytes, life.first, life.last, [])
        block.last = max(block.last, life.last)
        block.values.append(life.value)
        home[life.value] = block
    return list({id(b): b for b in home.values()}.values())


def _ends(block: _Block | None, life: Life, nbytes: int) -> bool:
    return block is not None and block.nbytes == nbytes and block.last <= life.first + 1


def _best_gap(offsets: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], nbytes: int) -> int:
    """Start of the smallest hole between the blocks given that takes `nbytes`; behind all of them where there is none."""
    end, best, where = 0, None, 0
    for i in np.argsort(offsets, kind="stable"):
        gap = int(offsets[i]) - end
        if gap >= nbytes and (best is None or gap < best):
            best, where = gap, end
        end = max(end, int(offsets[i] + sizes[i]))
    return end if best is None else where


def _most_alive(blocks: Sequence[_Block]) -> int:
    """The most bytes alive at one position."""
    changes = sorted(e for b in blocks for e in ((b.first, 1, b.nbytes), (b.last, 2, -b.nbytes)))
    alive = most = 0
    for _, _, change in changes:
        alive += change
        most = max(most, alive)
    return most
