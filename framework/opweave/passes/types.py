"""Element types and ranks of all values, and what follows from them: small constants, branches that are decided."""

from __future__ import annotations

from opweave.graph import Graph, Value
from opweave.read.names import Names
from opweave.specialise import specialise
from opweave.types import TensorType, Type


def infer_types(graph: Graph, _names: Names) -> Graph:
    """The typed graph. Sizes that the model declares for its inputs are not believed: callers feed others."""
    return specialise(graph, {v.name: t for v in graph.inputs if (t := _without_sizes(v)) is not None})


def _without_sizes(value: Value) -> Type | None:
    tensor = value.tensor
    if tensor is None or tensor.shape is None:
        return value.type
    return TensorType(tensor.dtype, tuple(d if isinstance(d, str) else None for d in tensor.shape))
