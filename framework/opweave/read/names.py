"""Names that are unique in a model and all its bodies."""

from __future__ import annotations


class Names:
    """Hands out each name once; a name that is taken gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        """`name` is handed out by other means."""
        self._taken.add(name)

    def unique(self, name: str) -> str:
        """`name` itself where it is free, else `name_1`, `name_2` ..."""
        if name in self._taken:
            base, number = name, self._next.get(name, 0)
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._next[base] = number
        self._taken.add(name)
        return name
