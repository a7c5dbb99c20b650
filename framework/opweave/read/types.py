"""From a `TypeProto` to a type."""

from __future__ import annotations

import onnx

from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.types import Dim, MapType, OptionalType, SequenceType, Shape, SparseType, TensorType, Type

_DEPTH_LIMIT = 16


def read_type(proto: onnx.TypeProto, name: str, depth: int = 0) -> Type | None:
    """The type; None where the model says nothing. Sizes below zero, which some exporters write, are not known sizes."""
    if depth > _DEPTH_LIMIT:
        raise ModelError(f"read the type of {name}", f"more than {_DEPTH_LIMIT} containers", "the model is damaged")
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        dtype = read_dtype(proto.tensor_type.elem_type, name)
        return None if dtype is DType.UNDEFINED else TensorType(dtype, _shape(proto.tensor_type))
    if kind == "sparse_tensor_type":
        return SparseType(read_dtype(proto.sparse_tensor_type.elem_type, name), _shape(proto.sparse_tensor_type))
    if kind == "map_type":
        value = read_type(proto.map_type.value_type, name, depth + 1)
        return None if value is None else MapType(read_dtype(proto.map_type.key_type, name), value)
    if kind in ("sequence_type", "optional_type"):
        element = read_type(getattr(proto, kind).elem_type, name, depth + 1)
        container = SequenceType if kind == "sequence_type" else OptionalType
        return None if element is None else container(element)
    return None


def read_dtype(code: int, name: str) -> DType:
    """The element type of that number."""
    try:
        return DType(code)
    except ValueError as error:
        hint = "the model is damaged or newer than known"
        raise ModelError(f"read the type of {name}", f"element type {code}", hint) from error


def _shape(proto: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor) -> Shape | None:
    return tuple(_dim(d) for d in proto.shape.dim) if proto.HasField("shape") else None


def _dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    if proto.HasField("dim_value"):
        return proto.dim_value if proto.dim_value >= 0 else None
    symbol = proto.dim_param
    return symbol if symbol and isinstance(symbol, str) else None
