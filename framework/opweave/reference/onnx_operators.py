"""The operators of `onnx.reference`, and those that ONNX defines as functions of others."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx

from opweave.graph import Node
from opweave.protos import node_proto, schema_of, type_proto, value_type

if TYPE_CHECKING:
    from opweave.reference.evaluator import Kernel

_PACKAGES = {
    "": "onnx.reference.ops._op_list",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml._op_list",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training._op_list",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview._op_list",
}


def find(node: Node) -> Kernel | None:
    """The implementation of the node's form; None where ONNX has none."""
    if node.bodies:
        return None  # ONNX's classes would evaluate bodies by themselves
    implementation = _implementation(node.domain, node.op_type, node.version)
    if implementation is not None:
        operator = implementation(node_proto(node), _run_parameters())
        return lambda inputs, _outer: tuple(operator.run(*inputs))
    schema = schema_of(node)
    if schema is None:
        return None
    if schema.has_function:
        return _function(node, schema.function_body)
    return _dependent_function(node, schema) if schema.has_context_dependent_function else None


@functools.cache
def _operators(domain: str) -> Mapping[str, Mapping[int | None, Any]]:
    import importlib

    if domain not in _PACKAGES:
        return {}
    return importlib.import_module(_PACKAGES[domain])._build_registered_operators()  # type: ignore[no-any-return]


def _implementation(domain: str, op_type: str, version: int) -> Any:
    """The class for the newest form that is not newer than `version` (0: the newest)."""
    forms = _operators(domain).get(op_type, {})
    known = [v for v in forms if v is not None and (not version or v <= version)]
    return forms[max(known)] if known else forms.get(None)


def _run_parameters() -> dict[str, Any]:
    from onnx.reference import ReferenceEvaluator

    opsets = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": 5}
    return {
        "log": lambda *_: None,
        "opsets": opsets,
        "verbose": 0,
        "new_ops": {},
        "existing_functions": {},
        "evaluator_cls": ReferenceEvaluator,
    }


def _function(node: Node, body: onnx.FunctionProto) -> Kernel:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpFunction

    operator = OpFunction(node_proto(node), _run_parameters(), impl=ReferenceEvaluator(body))
    count = len(body.input)

    def run(inputs: Sequence[Any], _outer: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(operator.run(*[*inputs, *[None] * count][:count]))

    return run


def _dependent_function(node: Node, schema: onnx.defs.OpSchema) -> Kernel:
    """A function whose body depends on the input types: expanded once for each combination of them."""
    proto = node_proto(node).SerializeToString()
    made: dict[tuple[bytes, ...], Kernel] = {}

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        types = tuple(b"" if x is None else type_proto(value_type(x)).SerializeToString() for x in inputs)
        if types not in made:
            body = onnx.FunctionProto.FromString(schema.get_context_dependent_function(proto, list(types)))
            made[types] = _function(node, body)
        return made[types](inputs, outer)

    return run
