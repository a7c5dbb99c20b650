"""Reading a model: bytes -> ModelProto -> one frozen Graph of newest operator forms, functions inlined.

The protobuf is read straight into `opweave.graph`: the model is hostile until proven otherwise, and functions, sparse
tensors, maps and operator sets that differ between a model and its functions all need the scopes that are at hand here.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from opweave.graph import Graph
from opweave.read.build import build
from opweave.read.source import load_model

if TYPE_CHECKING:
    import onnx

__all__ = ["read_graph"]


def read_graph(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, optimise: bool = True, without: Collection[str] = ()
) -> Graph:
    """The graph of a model, from a path, the bytes of a file, or a `ModelProto`.

    External data is found beside the model's file (in the working directory where there is no file), and mapped when it
    is first asked for. Inputs that have an initializer are constants. `without` names passes that are not run.
    Raises `ModelError` for whatever cannot be read.
    """
    model, home = load_model(source)
    graph = build(model, home)
    if not optimise:
        return graph
    from opweave.passes import optimise as run_passes

    return run_passes(graph, without)
