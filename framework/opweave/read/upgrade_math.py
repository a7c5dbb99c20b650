"""Newest forms of elementwise operators, reductions, products and selections."""

from __future__ import annotations

import numpy as np
import onnx

from opweave.errors import ModelError
from opweave.graph import Value
from opweave.read.op import Emitter, Op
from opweave.read.upgrade import DONE, Rules

rules = Rules()
RULES = (rules,)

_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)


@rules.to(
    6,
    *("Abs", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Max", "Mean", "Min", "Neg"),
    *("InstanceNormalization", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Sum", "Tanh", "BatchNormalization", "Dropout"),
)
def drop_consumed_inputs(op: Op) -> None:
    """An in-place hint of operator set 1."""
    op.take("consumed_inputs")


@rules.to(6, "Selu")
def selu(op: Op) -> None:
    """The defaults gained digits."""
    op.take("consumed_inputs")
    op.attributes.setdefault("alpha", 1.6732)
    op.attributes.setdefault("gamma", 1.0507)


@rules.to(7, *_ARITHMETIC)
def old_broadcast(op: Op) -> None:
    """`broadcast` and `axis`: the second operand's shape lies within the first's from `axis` on, by default at its end."""
    op.take("consumed_inputs")
    axis = op.take("axis")
    if op.take("broadcast", 0) and axis is not None:
        a, b = operands(op)
        op.set_input(1, spread(a, b, axis, op.emitter))


@rules.to(7, "PRelu")
def prelu(op: Op) -> None:
    """A slope of rank 1 belongs to axis 1; since 7 it broadcasts as everything does."""
    op.take("consumed_inputs")
    x, slope = operands(op)
    x_rank = x.tensor.rank if x.tensor is not None else None
    shape = slope.tensor.shape if slope.tensor is not None else None
    single = shape is not None and all(d == 1 for d in shape)
    if not single and x_rank not in (1, 2) and (shape is None or len(shape) == 1):
        op.set_input(1, spread(x, slope, 1, op.emitter))


def operands(op: Op) -> tuple[Value, Value]:
    """The first two inputs, which must be there."""
    a, b = op.input(0), op.input(1)
    if a is None or b is None:
        raise ModelError(f"read the operator {op.op_type}", "an input is omitted", "it needs both")
    return a, b


def spread(a: Value, b: Value, axis: int, emitter: Emitter) -> Value:
    """`b` with ones behind its shape, so that its first dimension meets dimension `axis` of `a`."""
    a_type, b_type = a.tensor, b.tensor
    if a_type is not None and a_type.rank is not None and b_type is not None and b_type.rank is not None:
        ones = a_type.rank - (axis % max(a_type.rank, 1)) - b_type.rank
        if ones <= 0:
            return b
        axes = list(range(b_type.rank, b_type.rank + ones))
        return emitter.emit("Unsqueeze", [b, emitter.constant(axes, np.int64)])
    rank = emitter.emit("Shape", [emitter.emit("Shape", [a])])
    start = emitter.constant([axis], np.int64)
    if axis < 0:
        start = emitter.emit("Add", [start, rank])
    b_shape = emitter.emit("Shape", [b])
    taken = emitter.emit("Add", [start, emitter.emit("Shape", [b_shape])])
    ones_count = emitter.emit("Relu", [emitter.emit("Sub", [rank, taken])])
    behind = emitter.emit("ConstantOfShape", [ones_count], value=np.ones(1, np.int64))
    return emitter.emit("Reshape", [b, emitter.emit("Concat", [b_shape, behind], axis=0)])


@rules.to(11, "Clip")
def clip(op: Op) -> None:
    """The bounds become inputs."""
    for index, name in ((1, "min"), (2, "max")):
        bound = op.take(name)
        if bound is not None:
            op.set_input(index, op.emitter.scalar_like(bound, op.input(0), name))


@rules.to(6, "Cast")
def cast(op: Op) -> None:
    """`to` was a name."""
    name = str(op.take("to", "")).upper()
    if name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 (a protobuf enum has no `in`)
        raise ModelError("read the operator Cast", f"to {name[:40]!r}", "it must name an element type")
    op.attributes["to"] = int(onnx.TensorProto.DataType.Value(name))


@rules.to(18, *_REDUCTIONS)
@rules.to(13, "ReduceSum")
def reduce_axes(op: Op) -> None:
    """The axes become an input; an empty list meant all of them, as it does now."""
    axes = op.take("axes")
    if axes:
        op.set_input(1, op.emitter.constant(axes, np.int64, "axes"))


@rules.to(7, "Gemm")
def gemm(op: Op) -> None:
    """C always broadcasts."""
    op.take("broadcast")


@rules.to(10, "TopK")
def top_k(op: Op) -> None:
    """`k` becomes an input."""
    op.set_input(1, op.emitter.constant([op.take("k")], np.int64, "k"))


@rules.to(13, "Softmax", "LogSoftmax", "Hardmax")
def softmax(op: Op) -> bool | None:
    """Before 13 the input was seen as a matrix: everything from `axis` on is one row."""
    axis = op.take("axis", 1)
    x = op.input(0)
    rank = x.tensor.rank if x is not None and x.tensor is not None else None
    if rank is not None and axis % max(rank, 1) == rank - 1:
        op.attributes["axis"] = -1
        return None
    flat = op.emitter.emit("Flatten", [x], axis=axis)
    done = op.emitter.emit(op.op_type, [flat], axis=-1)
    op.emitter.emit("Reshape", [done, op.emitter.emit("Shape", [x])], out=op.output(0), allowzero=1)
    return DONE


@rules.to(20, "DFT")
def dft(op: Op) -> None:
    """The axis becomes an input; its default changed from 1 to -2."""
    op.set_input(2, op.emitter.constant(op.take("axis", 1), np.int64, "axis"))
