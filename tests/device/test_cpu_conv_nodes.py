"""ONNX's own node tests of convolution and pooling, each run as one operator of the C++ core."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import Core, NodeCase

NODE_OPERATORS = [
    "Conv", "ConvTranspose", "Col2Im", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "GlobalMaxPool",
    "GlobalAveragePool", "MaxUnpool", "DeformConv", "RoiAlign", "CausalConvWithState",
]  # fmt: skip


def test_node(core: Core, node_case: NodeCase) -> None:
    node_case.check(core)


def test_node_with_constant_weights(core: Core, node_case: NodeCase) -> None:
    node_case.check(core, constant=True)
