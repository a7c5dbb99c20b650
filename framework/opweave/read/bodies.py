"""Whether the bodies of control flow take and give what their operator says."""

from __future__ import annotations

from opweave.errors import ModelError
from opweave.graph import Graph
from opweave.read.op import Op


def check_bodies(op: Op) -> None:
    """Raises `ModelError` where a body has another number of inputs or outputs than its operator needs."""
    if op.domain:
        return
    match op.op_type:
        case "If":
            for name in ("then_branch", "else_branch"):
                _expect(op, name, 0, len(op.outputs))
        case "Loop":
            carried = max(len(op.inputs) - 2, 0)
            _expect(op, "body", 2 + carried, 1 + max(len(op.outputs), carried))
        case "Scan":
            _check_scan(op)
        case "SequenceMap":
            _expect(op, "body", len(op.inputs), len(op.outputs))


def _check_scan(op: Op) -> None:
    inputs = len(op.inputs) - (op.version < 9)  # the first was the lengths of sequences
    scanned = op.attributes["num_scan_inputs"]
    if not 1 <= scanned <= inputs:
        raise ModelError("read the operator Scan", f"{scanned} scanned of {inputs} inputs", "the model is damaged")
    _expect(op, "body", inputs, max(len(op.outputs), inputs - scanned))


def _expect(op: Op, name: str, inputs: int, outputs: int) -> None:
    body: Graph = op.attributes[name]
    if len(body.inputs) != inputs or len(body.outputs) < outputs:
        found = f"{name} has {len(body.inputs)} inputs and {len(body.outputs)} outputs"
        raise ModelError(f"read the operator {op.op_type}", found, f"it needs {inputs} and at least {outputs}")
