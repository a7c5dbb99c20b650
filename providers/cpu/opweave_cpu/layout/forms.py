"""What a node is on blocked values: only where its kernel surely takes it, for nothing else can run a blocked node."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from opweave.dtypes import DType
from opweave.graph import Array, Constant, Node, Value
from opweave.types import Dim, TensorType

from opweave_cpu import tape
from opweave_cpu.layout.shapes import BLOCK, blocks_of, channels_of, is_by_channel, is_single, maps_of, rank_of

_PLAIN_INPUT = 8  # input channels below which a convolution reads the plain layout: most of each block would be empty

# Seconds a flop or byte; only their ratios decide.
_PLAIN_FLOP, _BLOCKED_FLOP, _WINOGRAD_FLOP = 1 / 55e9, 1 / 90e9, 1 / 180e9
_PLAIN_DEPTHWISE, _BLOCKED_DEPTHWISE = 1 / 12e9, 1 / 40e9
_BYTE = 1 / 12e9


class Role(enum.Enum):
    """What a blocked node does with an operand."""

    BLOCKED = enum.auto()
    AS_IS = enum.auto()
    BY_CHANNEL = enum.auto()  # a constant with one element a channel, which becomes a blocked one
    MADE = enum.auto()  # a constant that stands for the plain operand


@dataclass(frozen=True)
class Form:
    """A node on blocked values, its operands still the plain ones. `seconds`: what it costs more than as it is."""

    op_type: str
    inputs: tuple[Value | None, ...]
    roles: tuple[Role, ...]
    attributes: Mapping[str, Any]
    seconds: float
    domain: str = "opweave"
    version: int = 0

    def reads_plain(self, name: str) -> bool:
        pairs = zip(self.inputs, self.roles, strict=True)
        return any(v is not None and v.name == name and r is not Role.BLOCKED for v, r in pairs)

    def reads_blocked(self) -> list[Value]:
        pairs = zip(self.inputs, self.roles, strict=True)
        return [v for v, r in pairs if v is not None and r is Role.BLOCKED]


def blocked_form(node: Node) -> Form | None:
    """None where a node has no blocked form."""
    if len([*node.writes()]) != 1 or maps_of(node.outputs[0]) is None or node.bodies:
        return None
    find = _FORMS.get((node.domain, node.op_type))
    if find is not None:
        return find(node)
    return _elementwise(node) if tape.fusible(node) else None


def nbytes_of(shape: tuple[Dim, ...]) -> float:
    """Of float32; sizes that are not known count as something usual."""
    usual = (1, 1, 32, 32)
    return 4.0 * math.prod(d if isinstance(d, int) else u for d, u in zip(shape, usual, strict=False))


def _padding(value: Value | None) -> float:
    """Seconds for the lanes of a value that hold nothing."""
    shape = maps_of(value)
    if shape is None or value is None:
        return 0.0
    channels = channels_of(value)
    return nbytes_of(shape) * (blocks_of(channels) * BLOCK / channels - 1) * _BYTE


_CONVOLUTION = (Role.BLOCKED, Role.AS_IS, Role.AS_IS, Role.BLOCKED)


def _convolution(node: Node) -> Form | None:
    x, w, *rest = (*node.inputs, None, None)[:4]
    maps, out = maps_of(x), maps_of(node.outputs[0])
    tensor = w.tensor if w is not None and w.constant is not None else None
    weights = tensor.static_shape if tensor is not None and tensor.dtype is DType.FLOAT32 else None
    if maps is None or out is None or weights is None or len(weights) != len(maps):
        return None
    group, (oc, depth) = int(node.attributes.get("group", 1)), weights[:2]
    channels = maps[1]
    if group < 1 or oc != out[1] or depth * group != channels or oc % group:
        return None
    flops = 2 * math.prod(weights[1:]) * nbytes_of(out) / 4
    inputs = (x, w, *rest)
    if depth == 1 and oc == group and group > 1:
        cost = flops * (_BLOCKED_DEPTHWISE * _waste(oc) - _PLAIN_DEPTHWISE)
        return Form("BlockedDepthwise", inputs, _CONVOLUTION, dict(node.attributes), cost)
    if group > 1 and (depth % BLOCK or oc // group % BLOCK):
        return None
    if depth == group == 1 and len(weights) == 3 and weights[2] >= BLOCK:
        return None  # frames of a signal: a product of matrices
    plain = depth < _PLAIN_INPUT and group == 1
    roles = (Role.AS_IS if plain else Role.BLOCKED, *_CONVOLUTION[1:])
    rate = _WINOGRAD_FLOP if _winograd(node, weights) else _BLOCKED_FLOP
    cost = flops * (rate * _waste(oc) - _PLAIN_FLOP)
    return Form("BlockedConv", inputs, roles, {**node.attributes, "plain_input": int(plain)}, cost)


def _waste(channels: int) -> float:
    return blocks_of(channels) * BLOCK / channels


def _winograd(node: Node, weights: tuple[int, ...]) -> bool:
    ones = all(s == 1 for name in ("strides", "dilations") for s in node.attributes.get(name, ()))
    return weights[2:] == (3, 3) and min(weights[:2]) >= 32 and ones


def _pool(node: Node) -> Form | None:
    x = node.inputs[0]
    maps = maps_of(x)
    if maps is None or x is None or len(node.outputs) > 1:
        return None
    attributes = {**node.attributes, "kind": node.op_type, "channels": channels_of(x)}
    return Form("BlockedPool", (x,), (Role.BLOCKED,), attributes, _padding(x) - nbytes_of(maps) * _BYTE)


def _concat(node: Node) -> Form | None:
    result = maps_of(node.outputs[0])
    if result is None or any(maps_of(v) is None for v in node.inputs):
        return None
    axis = int(node.attributes.get("axis", 0)) % len(result)
    counts = [channels_of(v) for v in node.inputs if v is not None]
    if (axis == 1 and any(c % BLOCK for c in counts[:-1])) or (axis != 1 and len({*counts}) > 1):
        return None
    roles = (Role.BLOCKED,) * len(node.inputs)
    return Form("Concat", node.inputs, roles, {"axis": axis}, _padding(node.outputs[0]), "", node.version)


def _pad(node: Node) -> Form | None:
    """Pads of positions; those of channels would tear blocks."""
    x, pads, *rest = (*node.inputs, None)[:4]
    result, amounts = maps_of(node.outputs[0]), _integers(pads)
    if x is None or maps_of(x) is None or result is None or amounts is None or len(amounts) != 2 * len(result):
        return None
    begin, end = amounts[: len(result)], amounts[len(result) :]
    if begin[1] or end[1] or len(node.inputs) > 3:
        return None
    inputs = (x, _made("pads", np.array([*begin, 0, *end, 0], np.int64)), *rest[:1])
    roles = (Role.BLOCKED, Role.MADE, Role.AS_IS)[: len(inputs)]
    return Form("Pad", inputs, roles, node.attributes, _padding(x) + _padding(node.outputs[0]), "", node.version)


def _resize(node: Node) -> Form | None:
    """Scales or sizes that leave batch and channels alone."""
    x, roi, scales, sizes = (*node.inputs, None, None, None)[:4]
    result = maps_of(node.outputs[0])
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    if x is None or maps_of(x) is None or result is None or policy != "stretch" or "axes" in node.attributes:
        return None
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize" or (scales is None) == (
        sizes is None
    ):
        return None
    made = _with_lanes(scales, sizes, channels_of(x), len(result))
    if made is None:
        return None
    inputs = (x, roi, made, None) if scales is not None else (x, roi, None, made)
    roles = (Role.BLOCKED, Role.AS_IS, Role.MADE, Role.MADE)
    return Form("Resize", inputs, roles, node.attributes, _padding(x) + _padding(node.outputs[0]), "", node.version)


def _with_lanes(scales: Value | None, sizes: Value | None, channels: int, rank: int) -> Value | None:
    """Constant scales or sizes of the plain axes, with the axis of lanes after them."""
    given = scales if sizes is None else sizes
    array = given.constant.array if given is not None and given.constant is not None else None
    if array is None or array.shape != (rank,):
        return None
    if sizes is None:
        return _made("scales", np.append(array, 1).astype(np.float32)) if (array[:2] == 1).all() else None
    if array[1] != channels:
        return None
    return _made("sizes", np.array([array[0], blocks_of(channels), *array[2:], BLOCK], np.int64))


def _integers(value: Value | None) -> list[int] | None:
    return value.constant.array.ravel().tolist() if value is not None and value.constant is not None else None


def _made(name: str, array: Array) -> Value:
    return Value(name, TensorType(DType.of(array.dtype), array.shape), Constant(array))


def _elementwise(node: Node) -> Form | None:
    """Every operand is blocked like the result, has one element, or is a constant with one a channel."""
    (result,) = node.writes()
    found = [_role(v, result) for v in node.inputs]
    roles = tuple(r for r in found if r is not None)
    if len(roles) < len(found) or Role.BLOCKED not in roles:
        return None
    cost = sum(map(_padding, (*node.outputs, *node.inputs)))
    return Form(node.op_type, node.inputs, roles, node.attributes, cost, node.domain, node.version)


def _role(value: Value | None, result: Value) -> Role | None:
    if value is None or is_single(value):
        return Role.AS_IS
    channels, rank = channels_of(result), rank_of(result)
    if value.constant is not None:
        return Role.BY_CHANNEL if is_by_channel(value, channels, rank) else None
    maps = maps_of(value)
    return Role.BLOCKED if maps is not None and len(maps) == rank and maps[1] == channels else None


_FORMS: Mapping[tuple[str, str], Callable[[Node], Form | None]] = {
    ("", "Conv"): _convolution,
    ("opweave", "FusedConv"): _convolution,
    ("", "MaxPool"): _pool,
    ("", "AveragePool"): _pool,
    ("", "GlobalMaxPool"): _pool,
    ("", "GlobalAveragePool"): _pool,
    ("", "Concat"): _concat,
    ("", "Pad"): _pad,
    ("", "Resize"): _resize,
    ("opweave", "Tape"): _elementwise,
}
