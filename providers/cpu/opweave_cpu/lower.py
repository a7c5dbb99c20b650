"""Lowering: a graph as the plain lists that the core builds a program from.

Every value of the graph and of its bodies gets one slot; captured outer values need nothing more. A node is a native
instruction with the reference as its fallback (the core decides, for it knows its kernels), a call of the reference, or
control flow with its bodies as blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from opweave.dtypes import DType
from opweave.errors import CompileRefused
from opweave.graph import Graph, Node, Value
from opweave.types import TensorType

from opweave_cpu import _core
from opweave_cpu.crossing import FusedCall, ReferenceCall, plain
from opweave_cpu.fuse import result_name

NATIVE, CALL, IF, LOOP, SCAN = range(5)
_KEYED = 1024  # bytes from which a constant may be packed, and so needs its key

Instruction = tuple[Any, ...]
Block = tuple[list[int], list[int], list[Instruction]]


class Lowering:
    """Fills the table of values while it walks a graph."""

    def __init__(
        self, native: Iterable[tuple[str, str]], origins: Mapping[str, tuple[Node, ...]] | None = None
    ) -> None:
        """`native` are the core's kernels; `origins` what fused nodes stand for."""
        self.values: list[tuple[int, list[int] | None, Any, str]] = []
        self._slots: dict[str, int] = {}
        self._native = frozenset(native)
        self._origins = origins or {}

    def block(self, graph: Graph) -> Block:
        """The block of a graph, its inputs and nodes in order."""
        inputs = [self._define(v) for v in graph.inputs]
        code = [self._instruction(n) for n in graph.nodes]
        return inputs, [self._read(v) for v in graph.outputs], code

    def _define(self, value: Value) -> int:
        slot = self._slots[value.name] = len(self.values)
        self.values.append((*_type(value), None, ""))
        return slot

    def _read(self, value: Value | None) -> int:
        if value is None:
            return -1
        if value.name not in self._slots:
            if value.constant is None:
                raise CompileRefused("compiling a stage", f"nothing produces the value {value.name!r}")
            self._slots[value.name] = len(self.values)
            self.values.append(_constant(value))
        return self._slots[value.name]

    def _instruction(self, node: Node) -> Instruction:
        inputs = [self._read(v) for v in node.inputs]
        kind = _control(node)
        if kind is not None:
            return self._flow(kind, node, inputs)
        captured = {v.name: v for body in node.bodies.values() for v in body.captures}
        attributes = _attributes(node.attributes)
        native = attributes is not None and not node.bodies and (node.domain, node.op_type) in self._native
        if not native:
            inputs += [self._read(v) for v in captured.values()]
        outputs = [-1 if v is None else self._define(v) for v in node.outputs]
        call = self._call(node, tuple(captured))
        kind = NATIVE if native else CALL
        return kind, node.name, node.op_type, node.domain, inputs, outputs, attributes or {}, call, [], None

    def _call(self, node: Node, captured: tuple[str, ...]) -> Any:
        if node.domain == "opweave":  # of blocked nodes the kernels refuse none
            origins = self._origins.get(result_name(node))
            return FusedCall(node, origins) if origins else None
        if node.operator == "ai.onnx.ml.ZipMap" and (labels := _labels(node)):
            return _core.ZipMap(labels)
        return ReferenceCall(node, captured)

    def _flow(self, kind: int, node: Node, inputs: list[int]) -> Instruction:
        names = ("then_branch", "else_branch") if kind == IF else ("body",)
        blocks = [self.block(node.attributes[name]) for name in names]
        outputs = [-1 if v is None else self._define(v) for v in node.outputs]
        scan = _scan_form(node) if kind == SCAN else None
        return kind, node.name, node.op_type, node.domain, inputs, outputs, {}, None, blocks, scan


def _control(node: Node) -> int | None:
    """The kind of control flow that the core runs; None for all else, what it leaves to the reference included."""
    if node.domain:
        return None
    if node.op_type == "If":
        return IF
    if node.op_type == "Loop":
        carried = max(len(node.inputs) - 2, 0)
        return LOOP if _stackable(node.attributes["body"].outputs[1 + carried :]) else None
    if node.op_type == "Scan" and node.version != 8:
        body: Graph = node.attributes["body"]
        states = len(node.inputs) - int(node.attributes["num_scan_inputs"])
        scanned = body.inputs[states:]
        return SCAN if _stackable(body.outputs[states:]) and _stackable(scanned) else None
    return None


def _labels(node: Node) -> list[Any] | None:
    """The classes of a ZipMap over float32."""
    x = node.inputs[0].tensor if node.inputs and node.inputs[0] is not None else None
    if x is None or x.dtype is not DType.FLOAT32:
        return None
    labels = node.attributes.get("classlabels_strings") or node.attributes.get("classlabels_int64s")
    return list(labels) if labels else None


def _stackable(values: Iterable[Value]) -> bool:
    return all(v.tensor is not None and v.tensor.dtype not in (DType.STRING, DType.UNDEFINED) for v in values)


def _scan_form(node: Node) -> tuple[Any, ...]:
    attributes, body = node.attributes, node.attributes["body"]
    count = int(attributes["num_scan_inputs"])
    results = len(body.outputs) - (len(node.inputs) - count)

    def ints(name: str, length: int) -> list[int]:
        return [int(i) for i in attributes.get(name) or [0] * length]

    return (
        count,
        ints("scan_input_axes", count),
        ints("scan_output_axes", results),
        ints("scan_input_directions", count),
        ints("scan_output_directions", results),
    )


def _type(value: Value) -> tuple[int, list[int] | None]:
    """Dtype code (0: no tensor, or not known) and shape (-1: not known; None: not even the rank)."""
    if not isinstance(value.type, TensorType):
        return 0, None
    shape = value.type.shape
    return int(value.type.dtype), None if shape is None else [d if isinstance(d, int) else -1 for d in shape]


def _constant(value: Value) -> tuple[int, list[int] | None, Any, str]:
    assert value.constant is not None
    array = value.constant.array
    if not isinstance(array, np.ndarray):
        return 0, None, array, ""
    dtype = DType.of(array.dtype)
    if dtype is DType.STRING:
        return int(dtype), list(array.shape), array, ""
    key = value.constant.key if array.nbytes >= _KEYED and array.ndim >= 2 else ""
    return int(dtype), list(array.shape), plain(array), key


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """As the core takes them; None where one is of a type that no kernel knows."""
    out: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, np.ndarray):
            dtype = DType.of(value.dtype)
            if dtype is DType.STRING:
                return None
            out[name] = (plain(value), int(dtype))
        elif isinstance(value, int | float | str):
            out[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(v, int | float | str) for v in value):
            out[name] = list(value)
        else:
            return None
    return out
