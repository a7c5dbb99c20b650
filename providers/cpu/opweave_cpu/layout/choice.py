"""Which nodes to run blocked: the flops saved there against the bytes of the changes of layout.

Everything starts blocked. Then single nodes change sides while that is a gain, and at the end whole regions that cost more
than they save become plain. No layout change is counted twice: a value has each of its layouts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from opweave.graph import Graph, Node, Value

from opweave_cpu.fuse import result_name
from opweave_cpu.layout.forms import Form, nbytes_of
from opweave_cpu.layout.shapes import maps_of

_LAUNCH = 1e-6  # seconds of one change of layout, beyond its bytes
_BYTE = 2 / 12e9  # read and written
_SWEEPS = 8


def choose(graph: Graph, forms: Mapping[str, Form]) -> Collection[str]:
    """The results of the nodes that run blocked."""
    if not any(f.op_type == "BlockedConv" or f.op_type == "BlockedDepthwise" for f in forms.values()):
        return ()
    costs = _Costs(graph, forms)
    blocked = set(forms)
    for _ in range(_SWEEPS):
        if not any(_flip(costs, name, blocked) for name in forms):
            break
    for region in costs.regions(blocked):
        if costs.of(region, blocked) >= 0:
            blocked -= region
    return blocked


def _flip(costs: _Costs, name: str, blocked: set[str]) -> bool:
    """Changes one node's side where that is a gain."""
    before = costs.of((name,), blocked)
    blocked ^= {name}
    if costs.of((name,), blocked) < before - 1e-9:
        return True
    blocked ^= {name}
    return False


class _Costs:
    """Seconds of a choice, from its nodes and the values around them."""

    def __init__(self, graph: Graph, forms: Mapping[str, Form]) -> None:
        self._forms = forms
        self._kept = {v.name for v in graph.outputs}
        self._readers = {name: [_reader(n, name, forms) for n in nodes] for name, nodes in graph.readers.items()}
        self._seconds = {name: _seconds(v) for name, v in graph.values.items()}
        self._touched = {name: [name, *(v.name for v in f.reads_blocked())] for name, f in forms.items()}

    def of(self, names: Iterable[str], blocked: Collection[str]) -> float:
        """What these nodes cost more than plain, the layouts of all values that they read or write included."""
        names = list(names)
        values = {v for name in names for v in self._touched[name]}
        own = sum(self._forms[name].seconds for name in names if name in blocked)
        return own + sum(self._value(v, blocked) for v in values)

    def _value(self, name: str, blocked: Collection[str]) -> float:
        readers = self._readers.get(name, [])
        wide = any(r in blocked for r in readers)
        flat = name in self._kept or any(r not in blocked for r in readers)
        return self._seconds[name] if (flat if name in blocked else wide) else 0.0

    def regions(self, blocked: Collection[str]) -> list[set[str]]:
        """Nodes that are blocked and joined by blocked values."""
        near = {name: set[str]() for name in blocked}
        for name in blocked:
            for value in self._touched[name][1:]:
                others = [value, *self._readers.get(value, [])]
                for other in others:
                    if other in blocked and other != name:
                        near[name].add(other)
                        near[other].add(name)
        return _components(near)


def _reader(node: Node, name: str, forms: Mapping[str, Form]) -> str:
    """The name of a reader of a value, "" where it wants the value plain whatever is chosen."""
    form = forms.get(result_name(node))
    return "" if form is None or form.reads_plain(name) else result_name(node)


def _seconds(value: Value) -> float:
    shape = maps_of(value)
    return _LAUNCH + nbytes_of(shape) * _BYTE if shape is not None else 0.0


def _components(near: Mapping[str, set[str]]) -> list[set[str]]:
    found: list[set[str]] = []
    seen: set[str] = set()
    for name in near:
        if name in seen:
            continue
        region, pending = {name}, [name]
        while pending:
            fresh = near[pending.pop()] - region
            region |= fresh
            pending += fresh
        seen |= region
        found.append(region)
    return found
