"""Types, attributes and nodes to and from ONNX's protobuf messages (bodies excepted: `export` writes whole graphs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto

from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Graph, Node
from opweave.types import Dim, MapType, OptionalType, SequenceType, Shape, SparseType, TensorType, Type

_TYPE_FIELDS = {TensorType: "tensor_type", SparseType: "sparse_tensor_type"}


def type_proto(value_type: Type) -> TypeProto:
    """ONNX's message for a type."""
    proto = TypeProto()
    match value_type:
        case TensorType() | SparseType():
            field = getattr(proto, _TYPE_FIELDS[type(value_type)])
            field.elem_type = int(value_type.dtype)
            _write_shape(field, value_type.shape)
        case SequenceType():
            proto.sequence_type.elem_type.CopyFrom(type_proto(value_type.element))
        case OptionalType():
            proto.optional_type.elem_type.CopyFrom(type_proto(value_type.element))
        case MapType():
            proto.map_type.key_type = int(value_type.key)
            proto.map_type.value_type.CopyFrom(type_proto(value_type.value))
    return proto


def _write_shape(field: Any, shape: Shape | None) -> None:
    if shape is None:
        return
    field.shape.SetInParent()
    for dim in shape:
        entry = field.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim is not None:
            entry.dim_param = dim


def read_type(proto: TypeProto) -> Type | None:
    """The type that a message states; None where it states none (an element type of 0 included)."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            field = proto.tensor_type
            return TensorType(DType(field.elem_type), _read_shape(field)) if field.elem_type else None
        case "sparse_tensor_type":
            field = proto.sparse_tensor_type
            return SparseType(DType(field.elem_type), _read_shape(field)) if field.elem_type else None
        case "sequence_type":
            element = read_type(proto.sequence_type.elem_type)
            return None if element is None else SequenceType(element)
        case "optional_type":
            element = read_type(proto.optional_type.elem_type)
            return None if element is None else OptionalType(element)
        case "map_type":
            element = read_type(proto.map_type.value_type)
            return None if element is None else MapType(DType(proto.map_type.key_type), element)
    return None


def _read_shape(field: Any) -> Shape | None:
    if not field.HasField("shape"):
        return None
    return tuple(_read_dim(d) for d in field.shape.dim)


def _read_dim(dim: Any) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim.dim_param or None


def tensor_proto(array: np.ndarray[Any, Any], name: str = "") -> TensorProto:
    """ONNX's message for a tensor, with its data."""
    if array.dtype == object:
        strings = [s if isinstance(s, bytes) else str(s).encode(errors="surrogateescape") for s in array.ravel()]
        return onnx.helper.make_tensor(name, TensorProto.STRING, array.shape, strings)
    return onnx.numpy_helper.from_array(array, name)


def attribute_proto(name: str, value: Any, kind: int | None = None) -> AttributeProto:
    """ONNX's message for an attribute that is not a body. `kind` (AttributeProto.AttributeType) settles empty lists."""
    if isinstance(value, (TensorType, SequenceType, OptionalType, MapType, SparseType)):
        return onnx.helper.make_attribute(name, type_proto(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return onnx.helper.make_attribute(name, tensor_proto(np.asarray(value)))
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], np.ndarray):
            value = [tensor_proto(v) for v in value]
        return onnx.helper.make_attribute(name, value, attr_type=kind if not value else None)
    return onnx.helper.make_attribute(name, value)


def node_proto(node: Node) -> NodeProto:
    """ONNX's message for a node; attributes that are bodies are left out."""
    proto = NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    proto.input.extend(v.name if v else "" for v in node.inputs)
    proto.output.extend(v.name if v else "" for v in node.outputs)
    kinds = attribute_kinds(node)
    for name, value in node.attributes.items():
        if not isinstance(value, Graph):
            proto.attribute.append(attribute_proto(name, value, kinds.get(name)))
    return proto


def attribute_kinds(node: Node) -> Mapping[str, int]:
    """AttributeProto.AttributeType of every attribute that the operator's schema names; empty without a schema."""
    schema = schema_of(node)
    return {} if schema is None else {k: int(a.type) for k, a in schema.attributes.items()}


def schema_of(node: Node) -> onnx.defs.OpSchema | None:
    """ONNX's schema for the form that a node is in; None for operators that ONNX does not define."""
    try:
        if node.version:
            return onnx.defs.get_schema(node.op_type, node.version, node.domain)
        return onnx.defs.get_schema(node.op_type, node.domain)
    except onnx.defs.SchemaError:
        return None


def value_type(value: Any) -> Type:
    """The type of a run-time value: an array, or a list, a dictionary or None of the containers."""
    if isinstance(value, np.ndarray | np.generic):
        return TensorType(DType.of(value.dtype), tuple(value.shape))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return SequenceType(value_type(value[0]) if value else TensorType(DType.FLOAT32))
    if isinstance(value, Mapping):
        key, element = next(iter(value.items()), (0, np.float32(0)))
        return MapType(DType.STRING if isinstance(key, str) else DType.INT64, value_type(np.asarray(element)))
    if value is None:
        return OptionalType(TensorType(DType.FLOAT32))
    raise ModelError(f"the ONNX type of a {type(value).__name__}", "ONNX has no such value")
