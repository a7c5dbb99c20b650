"""If, Loop and Scan run from the host, each body by a schedule of its own.

Semantics: https://onnx.ai/onnx/operators/ (If-11 ff., Loop-11 ff., Scan-11 ff.).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Graph, Node
from opweave.types import TensorType

Body = Callable[[Sequence[Any]], list[Any]]  # a body's own inputs to its outputs; captured values are bound already
Array = np.ndarray[Any, Any]


def run_control(node: Node, inputs: Sequence[Any], bodies: dict[str, Body]) -> list[Any]:
    """The outputs of the node for host arrays (None: omitted)."""
    if node.op_type == "If":
        return bodies["then_branch" if bool(np.asarray(inputs[0]).reshape(())) else "else_branch"](())
    body = bodies["body"]
    return _loop(node, inputs, body) if node.op_type == "Loop" else _scan(node, inputs, body)


def _loop(node: Node, inputs: Sequence[Any], body: Body) -> list[Any]:
    trips = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(()))
    going = True if len(inputs) < 2 or inputs[1] is None else bool(np.asarray(inputs[1]).reshape(()))
    carried = list(inputs[2:])
    graph: Graph = node.attributes["body"]
    stacks: list[list[Array]] = [[] for _ in graph.outputs[1 + len(carried) :]]
    turn = 0
    while going and (trips is None or turn < trips):
        results = body([np.array(turn, np.int64), np.array(True), *carried])
        going, carried = bool(np.asarray(results[0]).reshape(())), results[1 : 1 + len(carried)]
        _push(stacks, results[1 + len(carried) :])
        turn += 1
    made = graph.outputs[1 + len(carried) :]
    return [*carried, *(_stacked(s, v.tensor, node, 0) for s, v in zip(stacks, made, strict=True))]


def _scan(node: Node, inputs: Sequence[Any], body: Body) -> list[Any]:
    graph: Graph = node.attributes["body"]
    count = int(node.attributes["num_scan_inputs"])
    state, fed = list(inputs[: len(inputs) - count]), [np.asarray(x) for x in inputs[len(inputs) - count :]]
    made = graph.outputs[len(state) :]
    axes = node.attributes.get("scan_input_axes") or [0] * count
    backward = node.attributes.get("scan_input_directions") or [0] * count
    lanes = [np.moveaxis(x, a, 0)[:: -1 if d else 1] for x, a, d in zip(fed, axes, backward, strict=True)]
    lengths = {len(lane) for lane in lanes}
    if len(lengths) != 1:
        raise ExecutionError(
            f"running Scan {node.name!r}", f"its inputs have lengths {sorted(lengths)}", "they must agree"
        )
    stacks: list[list[Array]] = [[] for _ in made]
    for turn in range(lengths.pop()):
        results = body([*state, *(np.ascontiguousarray(lane[turn]) for lane in lanes)])
        state = results[: len(state)]
        _push(stacks, results[len(state) :])
    out_axes = node.attributes.get("scan_output_axes") or [0] * len(made)
    reverse = node.attributes.get("scan_output_directions") or [0] * len(made)
    ordered = [s[::-1] if r else s for s, r in zip(stacks, reverse, strict=True)]
    return [*state, *(_stacked(s, v.tensor, node, a) for s, v, a in zip(ordered, made, out_axes, strict=True))]


def _push(stacks: list[list[Array]], results: Sequence[Any]) -> None:
    for stack, result in zip(stacks, results, strict=True):
        stack.append(np.asarray(result))


def _stacked(parts: list[Array], kind: TensorType | None, node: Node, axis: int) -> Array:
    if parts:
        if len({p.shape for p in parts}) > 1:
            found = "the body gives different shapes in different turns"
            raise ExecutionError(f"running {node.op_type} {node.name!r}", found, "a scan output keeps its shape")
        return np.stack(parts, axis)
    if kind is None:
        raise ExecutionError(
            f"running {node.op_type} {node.name!r}", "no turn, and the type of a scan output is not known"
        )
    shape = [d if isinstance(d, int) else 0 for d in kind.shape or ()]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    return np.empty(shape, kind.dtype.numpy)
