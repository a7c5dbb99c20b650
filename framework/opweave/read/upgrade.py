"""Every operator to its newest form, so that providers know one form of each.

A rule belongs to an operator and to the operator set that changed it; an older node passes through all rules above its own
version, in order. Changes that only widen what is allowed need no rule. A rule changes the `Op` in place; one that puts
other nodes in its stead returns DONE; one that has no newer form for a node raises `KeepForm`, and the node keeps its
version. Sources: the operator pages of ONNX, "Versions of this operator".
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TypeAlias

from opweave.read.check import newest_version
from opweave.read.op import Op

DONE = True
DROPPED = 2**31  # no operator set has the operator any more: its rule applies whatever the model imports
Rule: TypeAlias = "Callable[[Op], bool | None]"
_MODULES = ("upgrade_math", "upgrade_tensor", "upgrade_nn", "upgrade_legacy")


class KeepForm(Exception):
    """A node has no newer form."""


class Rules:
    """The rules of one module: `@rules.to(11, "Clip")` marks what brings an older Clip to the form of operator set 11."""

    def __init__(self, domain: str = "") -> None:
        self.domain = domain
        self.found: list[tuple[str, int, Rule]] = []

    def to(self, version: int, *op_types: str) -> Callable[[Rule], Rule]:
        """Marks a function as the rule of these operators."""

        def mark(rule: Rule) -> Rule:
            self.found += [(op_type, version, rule) for op_type in op_types]
            return rule

        return mark


def upgrade(op: Op) -> None:
    """Adds the newest form of `op` to the nodes of its emitter."""
    try:
        while step := _next_rule(op):
            version, rule = step
            if rule(op) is DONE:
                return
            op.version = version
    except KeepForm:
        op.emitter.add(op)
        return
    op.version = newest_version(op.op_type, op.domain) or op.version
    op.emitter.add(op)


def _next_rule(op: Op) -> tuple[int, Rule] | None:
    return next((step for step in _rules().get((op.domain, op.op_type), ()) if step[0] > op.version), None)


@functools.cache
def _rules() -> dict[tuple[str, str], list[tuple[int, Rule]]]:
    table: dict[tuple[str, str], list[tuple[int, Rule]]] = {}
    for name in _MODULES:
        module = importlib.import_module(f"opweave.read.{name}")
        for rules in module.RULES:
            for op_type, version, rule in rules.found:
                table.setdefault((rules.domain, op_type), []).append((version, rule))
    for steps in table.values():
        steps.sort(key=lambda step: step[0])
    return table


def last_change(domain: str, op_type: str, version: int) -> int:
    """The operator set that last changed an operator's form, up to `version`; 1 where none did."""
    return max((v for v, _ in _rules().get((domain, op_type), ()) if v <= version), default=1)


def next_change(domain: str, op_type: str, version: int) -> int:
    """The operator set that next changes an operator's form after `version`; 2**31 where none does."""
    return min((v for v, _ in _rules().get((domain, op_type), ()) if v > version), default=DROPPED)


def is_dropped(op: Op) -> bool:
    """Whether ONNX no longer defines the operator in any operator set, but there is a rule for it."""
    return any(version == DROPPED for version, _ in _rules().get((op.domain, op.op_type), ()))
