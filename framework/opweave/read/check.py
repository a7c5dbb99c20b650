"""Whether a node is one that its operator set has: name, counts of inputs and outputs, attributes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from opweave.errors import ModelError
from opweave.graph import Graph

if TYPE_CHECKING:
    from opweave.read.op import Op

_KINDS = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "TENSOR": np.ndarray,
    "GRAPH": Graph,
    "SPARSE_TENSOR": np.ndarray,
}
OWN_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")


@functools.cache
def schema_of(op_type: str, version: int, domain: str) -> Any | None:
    """The schema of an operator in that operator set; None for what ONNX does not define there."""
    if version < 1 or not onnx.defs.has(op_type, domain):
        return None
    try:
        return onnx.defs.get_schema(op_type, min(version, 2**31 - 1), domain)
    except onnx.defs.SchemaError:
        return None


def newest_version(op_type: str, domain: str = "") -> int | None:
    """The operator set that gave an operator its newest form; None for what ONNX does not define (any more)."""
    schema = schema_of(op_type, 2**31 - 1, domain)
    return None if schema is None or schema.deprecated else int(schema.since_version)


def check_op(op: Op) -> None:
    """Raises `ModelError` for a node of ONNX's own domains that its schema does not allow."""
    if not op.op_type:
        raise ModelError("read a node", "it names no operator", "the model is damaged")
    schema = schema_of(op.op_type, op.version, op.domain)
    if schema is None:
        if op.domain in OWN_DOMAINS:
            found = f"{op.domain or 'ai.onnx'} {op.version} has no such operator"
            raise ModelError(f"read the operator {op.op_type[:80]}", found, "check its name, domain and operator set")
        return
    _check_counts(op, schema)
    _check_attributes(op, schema)


def _check_attributes(op: Op, schema: Any) -> None:
    unknown = next((name for name in op.attributes if name not in schema.attributes), None)
    if unknown is not None:
        found = f"the attribute {unknown[:80]!r}, which operator set {op.version} does not give it"
        raise ModelError(f"read the operator {op.op_type}", found, "the model is damaged")
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in op.attributes:
            raise ModelError(f"read the operator {op.op_type}", f"no attribute {name!r}", "the operator needs it")
        kind = attribute.type.name
        if name in op.attributes and not _is_kind(op.attributes[name], kind):
            found = f"the attribute {name!r} is not of the kind {kind.lower()}"
            raise ModelError(f"read the operator {op.op_type}", found, "the model is damaged")


def _is_kind(value: Any, kind: str) -> bool:
    if kind in _KINDS:
        return isinstance(value, _KINDS[kind])
    item = _KINDS.get(kind.removesuffix("S"))
    return item is None or (isinstance(value, list) and all(isinstance(v, item) for v in value))


def _check_counts(op: Op, schema: Any) -> None:
    for what, values, low, high in (
        ("inputs", op.inputs, schema.min_input, schema.max_input),
        ("outputs", op.outputs, schema.min_output, schema.max_output),
    ):
        count = len(values)
        while count and values[count - 1] is None:
            count -= 1
        if not low <= count <= high:
            limits = f"{low}" if low == high else f"{low} to {high}"
            raise ModelError(f"read the operator {op.op_type}", f"{count} {what}", f"it has {limits}")
