"""Newest forms of operators that move, cut, join and resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from opweave.errors import ModelError
from opweave.graph import Array, Value
from opweave.read.op import Op
from opweave.read.upgrade import DONE, KeepForm, Rules

rules = Rules()
RULES = (rules,)


def _ints_to_input(op: Op, index: int, name: str) -> None:
    values = op.take(name)
    if values is not None:
        op.set_input(index, op.emitter.constant(values, np.int64, name))


@rules.to(4, "Concat")
def concat(op: Op) -> None:
    """The axis had the default 1."""
    op.attributes.setdefault("axis", 1)


@rules.to(5, "Reshape")
def reshape(op: Op) -> None:
    """The shape becomes an input."""
    op.take("consumed_inputs")
    if op.input(1) is None:
        op.set_input(1, op.emitter.constant(op.take("shape", []), np.int64, "shape"))


@rules.to(13, "Squeeze", "Unsqueeze")
def squeeze(op: Op) -> None:
    """The axes become an input."""
    _ints_to_input(op, 1, "axes")


@rules.to(10, "Slice")
def slice_(op: Op) -> None:
    """Starts, ends and axes become inputs."""
    for index, name in ((1, "starts"), (2, "ends"), (3, "axes")):
        _ints_to_input(op, index, name)


@rules.to(2, "Split")
def split_1(op: Op) -> None:
    """The sizes were an input that need not be constant; an attribute stays for the rule of 13."""
    op.attributes.setdefault("axis", 0)


@rules.to(13, "Split")
def split(op: Op) -> None:
    """The sizes become an input."""
    if op.input(1) is None:
        _ints_to_input(op, 1, "split")
    op.take("split")


@rules.to(18, "Split")
def split_evenly(op: Op) -> None:
    """Without sizes the number of parts is said."""
    if op.input(1) is None:
        op.attributes["num_outputs"] = len(op.outputs)


@rules.to(2, "Pad")
def pad_1(op: Op) -> None:
    """`paddings` became `pads`."""
    op.attributes["pads"] = op.take("paddings", [])


@rules.to(11, "Pad")
def pad(op: Op) -> None:
    """Pads and value become inputs."""
    _ints_to_input(op, 1, "pads")
    value = op.take("value", 0.0)
    if value and op.attributes.get("mode", "constant") == "constant":
        op.set_input(2, op.emitter.scalar_like(value, op.input(0), "value"))


@rules.to(6, "Tile")
def tile(op: Op) -> None:
    """It repeated along one axis; now it is told a number for each."""
    x, tiles, axis = (op.input(i) for i in range(3))
    one = op.emitter.constant([1], np.int64)
    rank = op.emitter.emit("Shape", [op.emitter.emit("Shape", [x])])
    ones = op.emitter.emit("ConstantOfShape", [rank], value=np.ones(1, np.int64))
    as_vector = [op.emitter.emit("Reshape", [op.emitter.emit("Cast", [v], to=7), one]) for v in (axis, tiles)]
    op.inputs = [x, op.emitter.emit("ScatterElements", [ones, *as_vector], axis=0)]


@rules.to(11, "Scatter")
def scatter(op: Op) -> None:
    """A new name."""
    op.op_type = "ScatterElements"


@rules.to(7, "Upsample")
def upsample_1(op: Op) -> None:
    """Height and width of a picture only."""
    op.attributes["scales"] = [1.0, 1.0, op.take("height_scale"), op.take("width_scale")]


@rules.to(9, "Upsample")
def upsample_7(op: Op) -> None:
    """The scales become an input."""
    op.set_input(1, op.emitter.constant(op.take("scales"), np.float32, "scales"))


@rules.to(10, "Upsample")
def upsample(op: Op) -> None:
    """A new name."""
    op.op_type = "Resize"
    if op.attributes.get("mode") in ("bilinear", "trilinear"):
        op.attributes["mode"] = "linear"


@rules.to(11, "Resize")
def resize_10(op: Op) -> bool | None:
    """Coordinates were asymmetric. Nearest rounded down where it enlarges and up where it shrinks."""
    x, scales = op.input(0), op.input(1)
    op.attributes["coordinate_transformation_mode"] = "asymmetric"
    op.inputs = [x, None, scales]
    known = scales.constant.array if scales is not None and scales.constant is not None else None
    if op.attributes.get("mode", "nearest") != "nearest":
        return None
    if known is not None and (known < 1).any() and (known > 1).any():
        _resize_twice(op, x, known)
        return DONE
    op.attributes["nearest_mode"] = "ceil" if known is not None and (known < 1).any() else "floor"
    return None


def _resize_twice(op: Op, x: Value | None, scales: Array) -> None:
    settings: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    larger = op.emitter.constant(np.maximum(scales, 1), np.float32, "scales")
    smaller = op.emitter.constant(np.minimum(scales, 1), np.float32, "scales")
    between = op.emitter.emit("Resize", [x, None, larger], nearest_mode="floor", **settings)
    op.emitter.emit("Resize", [between, None, smaller], out=op.output(0), nearest_mode="ceil", **settings)


@rules.to(13, "Resize")
def resize_11(op: Op) -> None:
    """What is not used may be omitted; it was an empty tensor. One mode of coordinates went away."""
    if op.attributes.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        raise KeepForm
    for index in (1, 2):
        value = op.input(index)
        if value is not None and value.tensor is not None and value.tensor.static_shape == (0,):
            op.set_input(index, None)


@rules.to(20, "GridSample")
def grid_sample(op: Op) -> None:
    """Modes lost the prefix of two dimensions."""
    mode = op.attributes.get("mode", "bilinear")
    op.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


@rules.to(11, "DepthToSpace")
def depth_to_space(op: Op) -> None:
    """The order of depth had no name."""
    op.attributes.setdefault("mode", "DCR")


def need(value: Value | None, op: Op) -> Value:
    """An input that must be there."""
    if value is None:
        raise ModelError(f"read the operator {op.op_type}", "an input is omitted", "it needs it")
    return value
