"""Plans for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from opweave.graph import Graph
from opweave.plans import Control, Placement, Plan, Stage, Step, Transfer
from opweave.types import Type

_OPERATORS = 6  # named in a line of the table


def plan_text(plan: Plan) -> str:
    """The table of `opweave plan`: steps, then every node that is not on the most wanted device with its reasons."""
    rows = [("step", "device", "nodes", "bytes in", "bytes out", "predicted", "what"), *_rows(plan, "")]
    used = Counter(p.device for p in plan.placements.values())
    head = f"{len(plan.placements)} nodes on " + (", ".join(f"{d} {n}" for d, n in used.most_common()) or "no device")
    stages, transfers = (sum(len(getattr(p, kind)) for p in plan.walk()) for kind in ("stages", "transfers"))
    head += f"; {stages} stages, {transfers} transfers, predicted {seconds_text(plan.seconds)}"
    return "\n".join([head, *table(rows), *_fallback_lines(plan)])


def plan_json(plan: Plan) -> dict[str, Any]:
    """The same as data."""
    return {
        "devices": list(plan.devices),
        "predicted_seconds": plan.seconds,
        "inputs": _ends(plan.graph.inputs),
        "outputs": _ends(plan.graph.outputs),
        "steps": [_step_json(s) for s in plan.steps],
        "placements": [_placement_json(p) for p in plan.placements.values()],
    }


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the columns of `rows` aligned; the first row is the head."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def seconds_text(seconds: float) -> str:
    """`1.25 ms`, `310 us`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def bytes_text(nbytes: int | None) -> str:
    """`1.5 MB`; `?` where the size depends on the call."""
    if nbytes is None:
        return "?"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} B"


def operators_text(graph: Graph) -> str:
    """`12 Conv, 11 Relu, 3 more kinds`."""
    counts = Counter(n.operator for n in graph.nodes).most_common()
    named = [f"{count} {operator}" for operator, count in counts[:_OPERATORS]]
    more = len(counts) - _OPERATORS
    return ", ".join(named + ([f"{more} more kinds"] if more > 0 else []))


def _rows(plan: Plan, indent: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for step in plan.steps:
        rows.append(_row(step, indent))
        if isinstance(step, Control):
            for name, body in step.bodies.items():
                rows.append((f"{indent}  {name}", "", "", "", "", seconds_text(body.seconds), ""))
                rows += _rows(body, indent + "    ")
    return rows


def _row(step: Step, indent: str) -> tuple[str, ...]:
    price = seconds_text(step.seconds)
    if isinstance(step, Stage):
        sizes = bytes_text(step.bytes_in), bytes_text(step.bytes_out)
        nodes = str(len(step.graph.nodes))
        return (f"{indent}stage {step.index}", step.device, nodes, *sizes, price, operators_text(step.graph))
    if isinstance(step, Transfer):
        size = bytes_text(step.nbytes)
        what = f"{step.value.name}: {step.source} -> {step.target}"
        return (f"{indent}transfer", step.device, "", size, size, price, what)
    return (f"{indent}control {step.index}", "host", "1", "", "", price, f"{step.node.operator} {step.node.name}")


def _fallback_lines(plan: Plan) -> list[str]:
    if not plan.fallbacks:
        return []
    operators = {n.name: n.operator for n in plan.graph.walk()}
    rows = [("node", "operator", "device", "why")]
    rows += [(p.node, operators.get(p.node, ""), p.device, _why(p)) for p in plan.fallbacks]
    return ["", f"not on {plan.devices[0]}:", *table(rows)]


def _why(placement: Placement) -> str:
    return "; ".join(str(r) for r in placement.reasons if r.text) or placement.reasons[-1].code.value


def _step_json(step: Step) -> dict[str, Any]:
    if isinstance(step, Stage):
        return {
            "kind": "stage",
            "index": step.index,
            "device": step.device,
            "nodes": [n.name for n in step.graph.nodes],
            "operators": dict(Counter(n.operator for n in step.graph.nodes)),
            "bytes_in": step.bytes_in,
            "bytes_out": step.bytes_out,
            "predicted_seconds": step.seconds,
        }
    if isinstance(step, Transfer):
        ends = {"value": step.value.name, "source": step.source, "target": step.target, "bytes": step.nbytes}
        return {"kind": "transfer", "device": step.device, **ends, "predicted_seconds": step.seconds}
    bodies = {name: [_step_json(s) for s in body.steps] for name, body in step.bodies.items()}
    node = {"node": step.node.name, "operator": step.node.operator}
    return {"kind": "control", "index": step.index, **node, "bodies": bodies, "predicted_seconds": step.seconds}


def _placement_json(placement: Placement) -> dict[str, Any]:
    reasons = [{"device": r.device, "code": r.code.value, "text": r.text} for r in placement.reasons]
    return {
        "node": placement.node,
        "device": placement.device,
        "predicted_seconds": placement.seconds,
        "reasons": reasons,
    }


def _ends(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": v.name, "type": _type_text(v.type)} for v in values]


def _type_text(kind: Type | None) -> str:
    return "?" if kind is None else str(kind)
