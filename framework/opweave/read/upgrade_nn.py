"""Newest forms of layers: normalisation, dropout, recurrence, pooling, regions, and loops over batches."""

from __future__ import annotations

import numpy as np

from opweave.graph import Graph, Node, Value
from opweave.read.check import newest_version
from opweave.read.op import Op
from opweave.read.upgrade import DONE, KeepForm, Rules
from opweave.types import TensorType, Type

rules = Rules()
RULES = (rules,)


@rules.to(9, "BatchNormalization")
def batch_normalization(op: Op) -> bool | None:
    """Inference only. Without `spatial` the statistics have the shape of one whole sample."""
    op.take("is_test")
    if op.take("spatial", 1):
        return None
    x, scale, bias, mean, variance = (op.input(i) for i in range(5))
    epsilon = op.emitter.scalar_like(op.attributes.get("epsilon", 1e-5), x, "epsilon")
    deviation = op.emitter.emit("Sqrt", [op.emitter.emit("Add", [variance, epsilon])])
    normal = op.emitter.emit("Div", [op.emitter.emit("Sub", [x, mean]), deviation])
    op.emitter.emit("Add", [op.emitter.emit("Mul", [normal, scale]), bias], out=op.output(0))
    return DONE


@rules.to(14, "BatchNormalization")
def batch_normalization_outputs(op: Op) -> None:
    """Statistics were given back while training; now only with `training_mode`."""
    if any(v is not None for v in op.outputs[1:]):
        raise KeepForm


@rules.to(12, "Dropout")
def dropout(op: Op) -> bool | None:
    """Inference only. The ratio becomes an input; before 10 the mask had the type of the data."""
    op.take("is_test")
    ratio = op.emitter.constant(op.take("ratio", 0.5), np.float32, "ratio")
    op.inputs = [op.input(0), ratio]
    mask = op.output(1)
    if op.version >= 10 or mask is None:
        return None
    op.outputs[1] = op.emitter.value(mask)
    op.version = newest_version("Dropout") or op.version
    op.emitter.add(op)
    op.emitter.emit("CastLike", [op.outputs[1], op.input(0)], out=mask)
    return DONE


@rules.to(7, "RNN", "LSTM", "GRU")
def recurrent(op: Op) -> None:
    """Whether the sequence is given back is said by the presence of the output. The default direction was misspelt."""
    op.take("output_sequence")
    if op.attributes.get("direction") == "foward":
        op.attributes["direction"] = "forward"


@rules.to(2, "LpPool", "GlobalLpPool")
def lp_pool(op: Op) -> None:
    """`p` was a real number."""
    p = op.take("p", 2.0)
    if p != int(p):
        op.attributes["p"] = p
        raise KeepForm
    op.attributes["p"] = int(p)


@rules.to(21, "GroupNormalization")
def group_normalization(op: Op) -> None:
    """Scale and bias were given per group, now per channel."""
    x, groups = op.input(0), op.attributes.get("num_groups", 1)
    count = op.emitter.constant([groups], np.int64)
    channels = op.emitter.emit("Shape", [x], start=1, end=2)
    size = op.emitter.emit("Concat", [count, op.emitter.emit("Div", [channels, count])], axis=0)
    for index in (1, 2):
        column = op.emitter.emit("Unsqueeze", [op.input(index), op.emitter.constant([1], np.int64)])
        wide = op.emitter.emit("Expand", [column, size])
        op.set_input(index, op.emitter.emit("Reshape", [wide, op.emitter.constant([-1], np.int64)]))


@rules.to(16, "RoiAlign")
def roi_align(op: Op) -> None:
    """Pixels were not shifted by a half."""
    op.attributes.setdefault("coordinate_transformation_mode", "output_half_pixel")


@rules.to(9, "Scan")
def scan(op: Op) -> bool:
    """It scanned each sample of a batch: a scan over the batch whose body is today's scan over the sequence."""
    if op.input(0) is not None:
        raise KeepForm
    body, count = op.attributes["body"], op.attributes["num_scan_inputs"]
    outer_inputs = tuple(op.inputs[1:])
    inner_inputs = tuple(op.emitter.value(v, _sample(v)) for v in outer_inputs)
    inner_outputs = tuple(op.emitter.value(v) for v in op.outputs)
    settings = {"body": body, "num_scan_inputs": count}
    if any(directions := op.attributes.get("directions", [])):
        settings["scan_input_directions"] = directions
    version = newest_version("Scan") or 9
    node = Node(op.emitter.node_name("Scan"), "Scan", inner_inputs, inner_outputs, settings, "", version)
    outer = Graph("batch", inner_inputs, inner_outputs, (node,), body.opsets)
    attributes = {"body": outer, "num_scan_inputs": len(outer_inputs)}
    op.emitter.add(Op(op.name, "", "Scan", list(outer_inputs), op.outputs, attributes, version, op.emitter))
    return DONE


def _sample(value: Value | None) -> Type | None:
    if value is None or value.tensor is None or value.tensor.shape is None:
        return None
    return TensorType(value.tensor.dtype, value.tensor.shape[1:])
