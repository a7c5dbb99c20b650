"""Types of a node's outputs from those of its inputs: own rules first, then ONNX's inference for the operator's schema.

ONNX is called per node with serialised types; equal calls are answered from a cache.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TypeProto

from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Node, Value
from opweave.protos import node_proto, read_type, schema_of, tensor_proto, type_proto
from opweave.specialise import rules, rules_microsoft
from opweave.specialise.scope import small_data
from opweave.types import TensorType, Type

_VALUE_LIMIT = 4096
_NEEDS_DATA = frozenset(
    {
        "AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "DFT", "Expand", "HammingWindow",
        "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad", "Range", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape",
        "Resize", "STFT", "Slice", "Split", "SplitToSequence", "Squeeze", "Tile", "TopK", "Unsqueeze", "CumSum", "Upsample",
        "NonMaxSuppression", "ImageDecoder", "StringSplit", "TensorScatter",
    }
)  # fmt: skip
"""Operators whose inference looks at the data of inputs."""


def infer(node: Node, source: Node, strict: bool = True) -> Sequence[Type | None]:
    """The output types, None where unknown. A contradiction raises `ModelError`; not `strict`: it is unknown.

    `source` is the node as the graph holds it, before its inputs were specialised: what is cached is cached there.
    """
    inputs = [None if v is None else v.type for v in node.inputs]
    try:
        key = node.domain, node.op_type
        rule = rules.OPERATORS.get(key) or rules_microsoft.OPERATORS.get(key)
        if rule is not None:
            return rule(node, inputs)
        return from_schema(node, source, inputs)
    except onnx.checker.ValidationError as e:
        if not strict:
            return ()
        raise ModelError(f"the operands of {node.operator}", _reason(e), node=node.name, op=node.operator) from e
    except (onnx.shape_inference.InferenceError, rules.Contradiction, RuntimeError, ValueError, IndexError) as e:
        known = all(_is_static(t) for t, v in zip(inputs, node.inputs, strict=True) if v is not None)
        if not strict or not known:
            return ()
        operands = ", ".join("-" if v is None else str(v) for v in node.inputs)
        raise ModelError(
            f"the operands of {node.operator}: {operands}", _reason(e), node=node.name, op=node.operator
        ) from e


def _is_static(value_type: Type | None) -> bool:
    """Where sizes are missing, ONNX's inference takes some for zero and finds contradictions that are none."""
    return isinstance(value_type, TensorType) and value_type.is_static


def _reason(error: Exception) -> str:
    return str(error).replace("[ShapeInferenceError]", "").replace("[TypeInferenceError]", "").strip(" \n") or "unfit"


def from_schema(node: Node, source: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """What ONNX infers for the node; nothing where it has no inference for the operator."""
    proto = _canonical(source)
    if not proto:
        return ()
    data = () if node.op_type not in _NEEDS_DATA else tuple(_data(v) for v in node.inputs)
    serialised = tuple(None if v is None else _serialised(t) for v, t in zip(node.inputs, inputs, strict=True))
    types = _inferred(node.domain, node.op_type, node.version, proto, serialised, data)
    return [None if v is None else types.get(f"o{i}") for i, v in enumerate(node.outputs)]


_PROTO = "_inference_proto"


def _canonical(node: Node) -> bytes:
    """The node with its values numbered, serialised once per node; empty where ONNX has no inference for it."""
    known: bytes | None = node.__dict__.get(_PROTO)
    if known is None:
        schema = schema_of(node)
        known = b""
        if schema is not None and schema.has_type_and_shape_inference_function:
            proto = node_proto(node)
            proto.name = ""
            proto.input[:] = [f"i{i}" if v else "" for i, v in enumerate(node.inputs)]
            proto.output[:] = [f"o{i}" if v else "" for i, v in enumerate(node.outputs)]
            known = bytes(proto.SerializeToString())
        node.__dict__[_PROTO] = known
    return known


def _data(value: Value | None) -> bytes | None:
    array = small_data(value)
    if array is None or array.size > _VALUE_LIMIT or array.dtype == object:
        return None
    return _tensor_bytes(array.dtype.name, array.shape, np.ascontiguousarray(array).tobytes())


@functools.lru_cache(4096)
def _tensor_bytes(dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    return bytes(tensor_proto(np.frombuffer(data, DType.of(dtype).numpy).reshape(shape)).SerializeToString())


@functools.lru_cache(4096)
def _serialised(value_type: Type | None) -> bytes:
    return bytes((TypeProto() if value_type is None else type_proto(value_type)).SerializeToString())


@functools.lru_cache(16384)
def _inferred(
    domain: str,
    op_type: str,
    version: int,
    proto: bytes,
    inputs: tuple[bytes | None, ...],
    data: tuple[bytes | None, ...],
) -> Mapping[str, Type | None]:
    schema = onnx.defs.get_schema(op_type, version, domain) if version else onnx.defs.get_schema(op_type, domain)
    types = {f"i{i}": t for i, t in enumerate(inputs) if t is not None}
    known = {f"i{i}": d for i, d in enumerate(data) if d is not None}
    opsets = {domain: version or schema.since_version}
    try:
        made = schema._infer_node_outputs(proto, types, known, {}, opsets, onnx.IR_VERSION)
    except ValueError as e:  # an attribute that names no element type
        raise onnx.checker.ValidationError(str(e)) from e
    return {name: read_type(TypeProto.FromString(t)) for name, t in made.items()}
