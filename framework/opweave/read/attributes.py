"""From an `AttributeProto` to plain Python, and from the attributes of a Constant to its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from opweave.dtypes import DType
from opweave.errors import ModelError
from opweave.graph import Constant, Graph
from opweave.read.check import OWN_DOMAINS
from opweave.read.scope import Scope, normal_domain
from opweave.read.tensors import Home, sparse_constant, tensor_constant
from opweave.read.types import read_type
from opweave.types import TensorType

_A = onnx.AttributeProto
_FIELDS = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse_tensors",
    _A.TYPE_PROTOS: "type_protos",
}
_LISTS = frozenset(kind for kind, field in _FIELDS.items() if field.endswith("s") and field != "s")
_KINDS = {v: k for k, v in _FIELDS.items()}


class AttributeReader:
    """Reads the attributes of nodes; bodies are built by `build_body` in the scope that they were written in."""

    def __init__(self, home: Home, build_body: Callable[[onnx.GraphProto, Scope], Graph]) -> None:
        self._home, self._build_body = home, build_body

    def read(self, node: onnx.NodeProto, scope: Scope) -> dict[str, Any]:
        """Name to value; tensors are `Constant` only for Constant nodes, which may be large."""
        found: dict[str, Any] = {}
        lazy = node.op_type == "Constant"
        errors = "strict" if normal_domain(node.domain) in OWN_DOMAINS else "surrogateescape"
        for attribute in node.attribute:
            name, home = attribute.name, scope
            if name in found or not name:
                raise ModelError("read a node's attributes", f"{name!r} stands twice" if name else "one has no name")
            if attribute.ref_attr_name:
                if attribute.ref_attr_name not in scope.attributes:
                    continue
                attribute, home = scope.attributes[attribute.ref_attr_name]  # noqa: PLW2901
            found[name] = self._value(attribute, home, lazy, errors)
        return found

    def _value(self, attribute: onnx.AttributeProto, scope: Scope, lazy: bool, errors: str) -> Any:
        kind = attribute.type or _guess(attribute)
        if kind not in _FIELDS:
            raise ModelError(
                "read a node's attributes", f"{attribute.name!r} has the kind {kind}", "the model is damaged"
            )
        raw = getattr(attribute, _FIELDS[kind])
        if kind in (_A.STRING, _A.STRINGS):
            return _texts(raw, errors, attribute.name)
        convert = self._converter(kind, attribute.name, scope, lazy)
        return [convert(item) for item in raw] if kind in _LISTS else convert(raw)

    def _converter(self, kind: int, name: str, scope: Scope, lazy: bool) -> Callable[[Any], Any]:
        if kind in (_A.GRAPH, _A.GRAPHS):
            return lambda g: self._build_body(g, scope)
        if kind in (_A.TYPE_PROTO, _A.TYPE_PROTOS):
            return lambda t: read_type(t, name)
        if kind in (_A.TENSOR, _A.TENSORS):
            return lambda t: _maybe_lazy(tensor_constant(t, self._home), lazy)
        if kind in (_A.SPARSE_TENSOR, _A.SPARSE_TENSORS):
            return lambda t: _maybe_lazy(sparse_constant(t, self._home), lazy)
        return lambda x: x

    def constant(self, attributes: Mapping[str, Any]) -> tuple[Constant, TensorType]:
        """The data of a Constant node."""
        if len(attributes) != 1:
            raise ModelError("read a Constant", f"{len(attributes)} attributes", "it has exactly one")
        ((name, value),) = attributes.items()
        if name in ("value", "sparse_value") and isinstance(value, tuple):
            return value[0], value[1]
        dtypes = {"int": np.int64, "float": np.float32, "string": object}
        kind = name.removeprefix("value_").removesuffix("s")
        if not name.startswith("value_") or kind not in dtypes or isinstance(value, list) != name.endswith("s"):
            raise ModelError("read a Constant", f"the attribute {name!r}", "see the operator's page")
        array = np.array(value, dtypes[kind])
        return Constant(array), TensorType(DType.of(array.dtype), array.shape)


def _texts(raw: Any, errors: str, name: str) -> str | list[str]:
    """Text, or a list of texts. Foreign operators keep bytes in strings; those of ONNX hold UTF-8."""
    try:
        return raw.decode("utf-8", errors) if isinstance(raw, bytes) else [s.decode("utf-8", errors) for s in raw]
    except UnicodeDecodeError as error:
        raise ModelError("read a node's attributes", f"{name!r} is not UTF-8", "the model is damaged") from error


def _maybe_lazy(pair: tuple[Constant, TensorType], lazy: bool) -> Any:
    return pair if lazy else pair[0].array


def _guess(attribute: onnx.AttributeProto) -> int:
    """Files of IR version 1 do not say an attribute's kind."""
    for field, kind in _KINDS.items():
        present = len(getattr(attribute, field)) if kind in _LISTS else attribute.HasField(field)
        if present:
            return int(kind)
    return int(_A.UNDEFINED)
