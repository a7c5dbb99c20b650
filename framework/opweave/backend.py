"""ONNX's backend interface (`onnx.backend.base`) over sessions.

>>> rep = opweave.backend.prepare(model, "CPU")
>>> (y,) = rep.run([x])

ONNX's device names are `CPU`, `CUDA`, `CUDA:1`; `devices=` names Opweave's devices instead. Other keyword arguments are
options of `opweave.load`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto
from onnx.backend.base import Backend, BackendRep, namedtupledict

from opweave import api
from opweave.errors import OpweaveError, UsageError
from opweave.protos import type_proto, value_type
from opweave.session import Session


class OpweaveRep(BackendRep):  # type: ignore[misc]
    """A prepared model."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs as a tuple that also answers to names. `inputs`: one array, a sequence, or a mapping by name."""
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        outputs = self.session.run(inputs if isinstance(inputs, Mapping) else list(inputs))
        named: tuple[Any, ...] = namedtupledict("Outputs", list(outputs))(*outputs.values())
        return named


class OpweaveBackend(Backend):  # type: ignore[misc]
    """Runs ONNX models and single nodes."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Whether the model can be read, and every node of it placed."""
        try:
            with cls.prepare(model, device, **options).session as session:
                session.plan_for()
        except OpweaveError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: ModelProto, device: str = "CPU", devices: Sequence[str] | None = None, **options: Any
    ) -> OpweaveRep:
        """A session for the model. Raises `OpweaveError` where there can be none."""
        return OpweaveRep(api.load(model, devices=devices or _devices(device), **options))

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,  # noqa: ARG003 - of the interface
        **options: Any,
    ) -> tuple[Any, ...]:
        """Runs one node; `opset_version` chooses the operator's form."""
        opset = options.pop("opset_version", None)
        arrays = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
        return cls.prepare(_single_node(node, arrays, opset), device, **options).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the machine has the device."""
        try:
            wanted = _devices(device)
        except UsageError:
            return False
        return all(any(d.id == w for d in api.devices()) for w in wanted)


def _devices(device: str) -> list[str]:
    """Opweave's devices for one of ONNX's; the CPU takes what an accelerator does not."""
    kind, _, index = device.partition(":")
    if kind == "CPU":
        return ["cpu"]
    if kind == "CUDA" and (not index or index.isdigit()):
        return [f"cuda:{index or 0}", "cpu"]
    raise UsageError(f"the device {device!r}", "ONNX's backends know CPU and CUDA", "name Opweave's with devices=[...]")


def _single_node(node: NodeProto, arrays: Sequence[Any], opset: int | None) -> ModelProto:
    """A model of one node for inputs like `arrays`."""
    names = [n for n in node.input if n]
    inputs = [onnx.ValueInfoProto(name=n, type=type_proto(value_type(x))) for n, x in zip(names, arrays, strict=True)]
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
    version = opset or (onnx.defs.onnx_opset_version() if node.domain in ("", "ai.onnx") else _newest(node))
    graph = onnx.helper.make_graph([node], node.op_type, inputs, outputs)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])


def _newest(node: NodeProto) -> int:
    """The newest operator set with the node's operator; 1 in domains that ONNX does not know."""
    if not onnx.defs.has(node.op_type, node.domain):
        return 1
    return int(onnx.defs.get_schema(node.op_type, node.domain).since_version)


is_compatible = OpweaveBackend.is_compatible
prepare = OpweaveBackend.prepare
run_model = OpweaveBackend.run_model
run_node = OpweaveBackend.run_node
supports_device = OpweaveBackend.supports_device
