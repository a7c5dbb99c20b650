"""If, Loop, Scan, SequenceMap and the optional type: operators whose values or bodies are not plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opweave.errors import ExecutionError
from opweave.graph import Graph, Node, Value
from opweave.reference.flex_attention import flex_attention

Array = np.ndarray[Any, Any]
Kernel = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...]]


def _run(body: Graph, inputs: Sequence[Any], outer: Mapping[str, Any]) -> list[Any]:
    from opweave.reference.evaluator import evaluate_graph

    named = {v.name: x for v, x in zip(body.inputs, inputs, strict=False)}
    results = evaluate_graph(body, named, outer)
    return [results[v.name] for v in body.outputs]


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, np.ndarray | np.generic) or value.size != 1:
        raise ExecutionError(f"the condition of {what}", "it must hold one element")
    return bool(value.reshape(()))


def _if(node: Node) -> Kernel:
    branches = node.attributes["then_branch"], node.attributes["else_branch"]

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_run(branches[0 if _flag(inputs[0], "If") else 1], [], outer))

    return run


def _loop(node: Node) -> Kernel:
    body: Graph = node.attributes["body"]

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        limit = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(()))
        going = len(inputs) < 2 or inputs[1] is None or _flag(inputs[1], "Loop")
        carried = list(inputs[2:])
        stacks: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
        step = 0
        while going and (limit is None or step < limit):
            results = _run(body, [np.array(step, np.int64), np.array(going), *carried], outer)
            going = _flag(results[0], "Loop")
            for stack, item in zip(stacks, results[1 + len(carried) :], strict=True):
                stack.append(item)
            carried = results[1 : 1 + len(carried)]
            step += 1
        values = body.outputs[1 + len(carried) :]
        return (*carried, *(_stack(s, v, 0) for s, v in zip(stacks, values, strict=True)))

    return run


def _stack(items: list[Any], value: Value, axis: int) -> Array:
    """Scan outputs as one tensor; with no item, an empty one of the declared element type (unknown dimensions: 0)."""
    if items:
        return np.stack([np.asarray(i) for i in items], axis)
    declared = value.tensor
    if declared is None:
        raise ExecutionError(f"the scan output {value.name!r} of no iteration", "its element type is not known")
    shape = [d if isinstance(d, int) else 0 for d in declared.shape or ()]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    return np.empty(shape, declared.dtype.numpy)


def _scan(node: Node) -> Kernel:
    if node.version == 8:
        return _scan_batched(node)
    body: Graph = node.attributes["body"]
    count = int(node.attributes["num_scan_inputs"])
    states = len(body.inputs) - count
    results = len(body.outputs) - states
    in_axes, out_axes = _ints(node, "scan_input_axes", count), _ints(node, "scan_output_axes", results)
    backward = _ints(node, "scan_input_directions", count), _ints(node, "scan_output_directions", results)

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        carried = list(inputs[:states])
        items = [np.moveaxis(x, a, 0) for x, a in zip(inputs[states:], in_axes, strict=True)]
        lengths = {len(x) for x in items}
        if len(lengths) != 1:
            raise ExecutionError("Scan", f"its scan inputs have different lengths: {sorted(lengths)}")
        items = [x[::-1] if b else x for x, b in zip(items, backward[0], strict=True)]
        stacks: list[list[Any]] = [[] for _ in range(results)]
        for step in range(lengths.pop()):
            made = _run(body, [*carried, *(x[step] for x in items)], outer)
            carried = made[:states]
            for stack, item in zip(stacks, made[states:], strict=True):
                stack.append(item)
        ordered = [s[::-1] if b else s for s, b in zip(stacks, backward[1], strict=True)]
        stacked = (_stack(s, v, a) for s, v, a in zip(ordered, body.outputs[states:], out_axes, strict=True))
        return (*carried, *stacked)

    return run


def _ints(node: Node, name: str, count: int) -> list[int]:
    given = list(node.attributes.get(name) or ())
    return [int(a) for a in given] if given else [0] * count


def _scan_batched(node: Node) -> Kernel:
    """Scan of operator set 8: a batch in front of everything, lengths by batch item in the first input."""
    body: Graph = node.attributes["body"]
    count = int(node.attributes["num_scan_inputs"])
    states = len(body.inputs) - count
    backward = _ints(node, "directions", count)

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        lengths, initial, scanned = inputs[0], inputs[1 : 1 + states], inputs[1 + states :]
        full = scanned[0].shape[1]
        batches = []
        for b in range(scanned[0].shape[0]):
            length = full if lengths is None else int(lengths[b])
            items = [x[b, :length][::-1] if r else x[b, :length] for x, r in zip(scanned, backward, strict=True)]
            carried = [x[b] for x in initial]
            stacks: list[list[Any]] = [[] for _ in body.outputs[states:]]
            for step in range(length):
                made = _run(body, [*carried, *(x[step] for x in items)], outer)
                carried = made[:states]
                for stack, item in zip(stacks, made[states:], strict=True):
                    stack.append(item)
            stacked = [_stack(s, v, 0) for s, v in zip(stacks, body.outputs[states:], strict=True)]
            padded = [np.concatenate([s, np.zeros((full - len(s), *s.shape[1:]), s.dtype)]) for s in stacked]
            batches.append([*carried, *padded])
        return tuple(np.stack(column) for column in zip(*batches, strict=True))

    return run


def _sequence_map(node: Node) -> Kernel:
    body: Graph = node.attributes["body"]

    def run(inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        columns: list[list[Any]] = [[] for _ in body.outputs]
        for i in range(len(inputs[0])):
            made = _run(body, [x[i] if isinstance(x, list) else x for x in inputs], outer)
            for column, item in zip(columns, made, strict=True):
                column.append(item)
        return tuple(columns)

    return run


def _flex_attention(node: Node) -> Kernel:
    def modify(name: str, x: Array, outer: Mapping[str, Any]) -> Array:
        body = node.attributes.get(name)
        return x if body is None else np.asarray(_run(body, [x], outer)[0], x.dtype)

    return lambda inputs, outer: (flex_attention(node, modify, inputs, outer),)


def _pass(_node: Node) -> Kernel:
    return lambda inputs, _outer: (inputs[0] if inputs else None,)


def _optional_has_element(_node: Node) -> Kernel:
    return lambda inputs, _outer: (np.array(bool(inputs) and inputs[0] is not None),)


def _optional_get_element(_node: Node) -> Kernel:
    def run(inputs: Sequence[Any], _outer: Mapping[str, Any]) -> tuple[Any, ...]:
        if inputs[0] is None:
            raise ExecutionError("OptionalGetElement", "the optional is empty")
        return (inputs[0],)

    return run


OPERATORS: Mapping[tuple[str, str], Callable[[Node], Kernel]] = {
    ("", "If"): _if,
    ("", "Loop"): _loop,
    ("", "Scan"): _scan,
    ("", "SequenceMap"): _sequence_map,
    ("ai.onnx.preview", "FlexAttention"): _flex_attention,
    ("", "Optional"): _pass,
    ("", "OptionalHasElement"): _optional_has_element,
    ("", "OptionalGetElement"): _optional_get_element,
    ("", "Identity"): _pass,
}
