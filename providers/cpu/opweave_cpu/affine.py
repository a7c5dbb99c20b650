"""BatchNormalization at inference, where no layer before it takes it in, is a convolution of single channels with one tap.

As one it takes in the scales and shifts behind it, and fusion gives it the residual and activation that follow.
"""

from __future__ import annotations

import numpy as np
from opweave.dtypes import DType
from opweave.graph import Graph, Node
from opweave.passes.conv import fold_affine, of_normalization
from opweave.passes.dead import remove_dead
from opweave.passes.rewrite import Rewrite, View, names_of, rewrite


def normalizations(graph: Graph) -> Graph:
    """The graph with its normalizations of float32 maps as convolutions."""
    if not any(n.op_type == "BatchNormalization" for n in graph.walk()):
        return graph
    names = names_of(graph)
    graph, before = rewrite(graph, _as_convolution, names), graph
    while graph is not before:
        graph, before = remove_dead(rewrite(graph, fold_affine, names), names), graph
    return graph


def _as_convolution(node: Node, view: View) -> Rewrite | None:
    source = node.inputs[0] if node.inputs else None
    result = node.outputs[0] if node.outputs else None
    if node.domain or node.op_type != "BatchNormalization" or source is None or result is None:
        return None
    tensor = source.tensor
    if tensor is None or tensor.dtype is not DType.FLOAT32 or tensor.shape is None or len(tensor.shape) not in (3, 4):
        return None
    affine = of_normalization(node, source)
    if affine is None or affine.scale is None or affine.shift is None or affine.scale.shape != tensor.shape[1:2]:
        return None
    channels = affine.scale.size
    weights = affine.scale.astype(np.float32).reshape(-1, *[1] * (len(tensor.shape) - 1))
    inputs = (source, view.constant(weights, node.name), view.constant(affine.shift.astype(np.float32), node.name))
    return Rewrite([view.node("Conv", inputs, result, node.name, group=channels)])
