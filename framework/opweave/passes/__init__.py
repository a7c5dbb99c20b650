"""Device-neutral passes, run in order; each takes a graph and returns one that computes the same.

A pass that meets a value that it does not understand leaves it alone. Some need sizes: `refine` runs those again once a
graph is specialised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from opweave.errors import UsageError
from opweave.graph import Graph
from opweave.passes.activations import gelu, hard_swish, swish
from opweave.passes.attention import attention
from opweave.passes.chains import cast_chain, reshape_chain, transpose_chain
from opweave.passes.conv import fold_affine
from opweave.passes.cse import share_common
from opweave.passes.dead import remove_dead
from opweave.passes.fold import fold
from opweave.passes.gemm import gemm
from opweave.passes.identity import identity
from opweave.passes.normalise import layer_normalization, rms_normalization
from opweave.passes.rewrite import Match, names_of, rewrite
from opweave.passes.sink import sink_transposes
from opweave.passes.softmax import flat_softmax
from opweave.passes.types import infer_types
from opweave.read.names import Names

Pass = Callable[[Graph, Names], Graph]


def _of(match: Match) -> Pass:
    return lambda graph, names: rewrite(graph, match, names)


def _repeated(match: Match) -> Pass:
    """Until nothing is found: each match makes the next one's layer."""

    def run(graph: Graph, names: Names) -> Graph:
        before = None
        while graph is not before:
            graph, before = rewrite(graph, match, names), graph
        return graph

    return run


PASSES: tuple[tuple[str, Pass], ...] = (
    ("dead", remove_dead),
    ("identity", _of(identity)),
    ("fold", fold),
    ("cse", share_common),
    ("transpose_chain", _of(transpose_chain)),
    ("reshape_chain", _of(reshape_chain)),
    ("cast_chain", _of(cast_chain)),
    ("sink_transposes", sink_transposes),
    ("fold_affine", _repeated(fold_affine)),
    ("flat_softmax", _of(flat_softmax)),
    ("gemm", _of(gemm)),
    ("gelu", _of(gelu)),
    ("swish", _of(swish)),
    ("hard_swish", _of(hard_swish)),
    ("layer_normalization", _of(layer_normalization)),
    ("rms_normalization", _of(rms_normalization)),
    ("attention", _of(attention)),
)
"""The passes by name, in the order that they run in."""

_ROUNDS = 4  # of all passes, while they change something: one makes work for another


_SIZED = ("identity", "flat_softmax", "gemm", "attention", "dead")


def refine(graph: Graph, without: Collection[str] = ()) -> Graph:
    """A specialised graph after the passes that know more where sizes are known."""
    names = names_of(graph)
    for name, run in PASSES:
        if name in _SIZED and name not in without:
            graph = run(graph, names)
    return remove_dead(graph, names) if "dead" not in without else graph


def optimise(graph: Graph, without: Collection[str] = ()) -> Graph:
    """The graph after every pass but those named in `without`; its inputs keep their declared types."""
    unknown = set(without) - {"types", *(name for name, _ in PASSES)}
    if unknown:
        known = ", ".join(["types", *(name for name, _ in PASSES)])
        raise UsageError("leave out passes", f"found {', '.join(sorted(unknown))}", f"the passes are {known}")
    names, inputs = names_of(graph), graph.inputs
    if "types" not in without:
        graph = infer_types(graph, names)
    for _ in range(_ROUNDS):
        before = graph
        for name, run in PASSES:
            if name not in without:
                graph = run(graph, names)
        if graph is before:
            break
        if "types" not in without:
            graph = infer_types(graph, names)
    graph = graph.with_types({v.name: v.type for v in inputs if v.type is not None})
    return remove_dead(graph, names) if "dead" not in without else graph
