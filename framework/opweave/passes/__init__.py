"""Device-neutral passes: each takes a graph and returns one that computes the same."""

from __future__ import annotations

from collections.abc import Collection

from opweave.graph import Graph


def optimise(graph: Graph, without: Collection[str] = ()) -> Graph:
    """The graph after every pass but those named."""
    return graph if not without else graph
