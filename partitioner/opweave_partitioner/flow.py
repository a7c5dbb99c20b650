"""Minimum cut (Dinic's algorithm; E. A. Dinic, 1970), for assignment."""

from __future__ import annotations

from collections import deque

_EPSILON = 1e-15


class Network:
    """A flow network over nodes 0..n-1; node 0 is the source, node 1 the sink."""

    def __init__(self, nodes: int = 2) -> None:
        self.edges: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.room: list[float] = []

    def add_node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def add(self, a: int, b: int, capacity: float, back: float = 0.0) -> None:
        """An edge from a to b, with `back` the capacity from b to a."""
        for x, y, c in ((a, b, capacity), (b, a, back)):
            self.edges[x].append(len(self.to))
            self.to.append(y)
            self.room.append(c)

    def source_side(self) -> list[bool]:
        """For every node whether it lies on the source's side of a minimum cut."""
        while (levels := self._levels())[1] >= 0:
            places = [0] * len(self.edges)
            while self._augment(levels, places):
                pass
        return [level >= 0 for level in levels]

    def _levels(self) -> list[int]:
        levels = [-1] * len(self.edges)
        levels[0] = 0
        queue = deque([0])
        while queue:
            node = queue.popleft()
            for edge in self.edges[node]:
                if self.room[edge] > _EPSILON and levels[self.to[edge]] < 0:
                    levels[self.to[edge]] = levels[node] + 1
                    queue.append(self.to[edge])
        return levels

    def _augment(self, levels: list[int], places: list[int]) -> bool:
        path: list[int] = []
        node = 0
        while node != 1:
            edge = self._next(node, levels, places)
            if edge >= 0:
                path.append(edge)
                node = self.to[edge]
            elif path:
                levels[node] = -2  # a dead end in this phase
                node = self.to[path.pop() ^ 1]
            else:
                return False
        amount = min(self.room[e] for e in path)
        for e in path:
            self.room[e] -= amount
            self.room[e ^ 1] += amount
        return True

    def _next(self, node: int, levels: list[int], places: list[int]) -> int:
        edges = self.edges[node]
        while places[node] < len(edges):
            edge = edges[places[node]]
            if self.room[edge] > _EPSILON and levels[self.to[edge]] == levels[node] + 1:
                return edge
            places[node] += 1
        return -1
