"""Blocked layout: around convolutions, sixteen channels of a position lie together ([N, ceil(C / 16), spatial..., 16]).

`forms` says what a node is on blocked values, `choice` which nodes are worth it, and this file puts them in, with the
changes of layout between them. What the graph takes and gives stays plain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from opweave.graph import Graph, Node, Value
from opweave.passes.rewrite import names_of
from opweave.read.names import Names

from opweave_cpu.fuse import Fused, result_name
from opweave_cpu.layout.choice import choose
from opweave_cpu.layout.forms import Form, Role, blocked_form
from opweave_cpu.layout.shapes import blocked_constant, blocked_type, channels_of, rank_of

KERNEL = ("opweave", "BlockedConv")

Choose = Callable[[Graph, Mapping[str, Form]], Collection[str]]
"""Of the nodes that have a blocked form, by the names of their results, those that take it."""

CHOICES: Mapping[str, Choose] = {"auto": choose, "all": lambda _, forms: forms, "off": lambda *_: ()}
"""The values of the option `layout`."""


def blocked_regions(fused: Fused, choose: Choose) -> Fused:
    """The graph with its regions of convolutions blocked, in bodies too."""
    origins = dict(fused.origins)
    graph = _blocked(fused.graph, names_of(fused.graph), origins, choose)
    return Fused(graph, origins)


def _blocked(graph: Graph, names: Names, origins: dict[str, tuple[Node, ...]], choose: Choose) -> Graph:
    nodes = tuple(_with_bodies(n, names, origins, choose) for n in graph.nodes)
    graph = replace(graph, nodes=nodes)
    forms = {result_name(n): f for n in graph.nodes if (f := blocked_form(n)) is not None}
    chosen = choose(graph, forms) if forms else ()
    if not chosen:
        return graph
    rewriting = _Rewriting(graph, {name: forms[name] for name in chosen}, names, origins)
    return replace(graph, nodes=rewriting.nodes())


def _with_bodies(node: Node, names: Names, origins: dict[str, tuple[Node, ...]], choose: Choose) -> Node:
    if not node.bodies:
        return node
    bodies = {name: _blocked(body, names, origins, choose) for name, body in node.bodies.items()}
    return replace(node, attributes={**node.attributes, **bodies})


@dataclass
class _Rewriting:
    """Puts the chosen forms into a graph. A value's other layout is made once, where it is first known to be wanted."""

    graph: Graph
    chosen: Mapping[str, Form]
    names: Names
    origins: dict[str, tuple[Node, ...]]

    def nodes(self) -> tuple[Node, ...]:
        self._made: list[Node] = []
        self._blocked: dict[str, Value] = {}
        for node in self.graph.nodes:
            form = self.chosen.get(result_name(node))
            if form is None:
                self._made.append(node)
            else:
                self._put(node, form)
        return tuple(self._made)

    def _put(self, node: Node, form: Form) -> None:
        (result,) = node.writes()
        inputs = tuple(self._operand(v, role, result, node) for v, role in zip(form.inputs, form.roles, strict=True))
        wide = self._blocked[result.name] = self._other(result)
        made = Node(node.name, form.op_type, inputs, (wide,), form.attributes, form.domain, form.version)
        self._made.append(made)
        if form.op_type == "Tape":
            self.origins[wide.name] = _renamed(self.origins[result.name], node, made)
        if self._is_read_plain(result):
            self._made.append(_change(node.name, "FromBlocked", wide, result, channels_of(result)))

    def _other(self, value: Value) -> Value:
        return Value(self.names.unique(f"{value.name}:blocked"), blocked_type(value))

    def _operand(self, value: Value | None, role: Role, result: Value, reader: Node) -> Value | None:
        if value is None or role is Role.AS_IS:
            return value
        if role is Role.MADE:
            return replace(value, name=self.names.unique(f"{reader.name}:{value.name}"))
        if role is Role.BY_CHANNEL:
            return blocked_constant(self.names.unique(f"{value.name}:blocked"), value, rank_of(result))
        if value.name not in self._blocked:
            wide = self._blocked[value.name] = self._other(value)
            self._made.append(_change(reader.name, "ToBlocked", value, wide, channels_of(value)))
        return self._blocked[value.name]

    def _is_read_plain(self, value: Value) -> bool:
        if any(v.name == value.name for v in self.graph.outputs):
            return True
        forms = (self.chosen.get(result_name(n)) for n in self.graph.readers.get(value.name, ()))
        return any(f is None or f.reads_plain(value.name) for f in forms)


def _change(name: str, op_type: str, value: Value, result: Value, channels: int) -> Node:
    return Node(name, op_type, (value,), (result,), {"channels": channels}, "opweave")


def _renamed(group: tuple[Node, ...], old: Node, new: Node) -> tuple[Node, ...]:
    """What an elementwise node stands for, on the values of its blocked form: it computes the same on them."""
    pairs = zip((*old.inputs, *old.outputs), (*new.inputs, *new.outputs), strict=False)
    names = {a.name: b for a, b in pairs if a is not None and b is not None}

    def change(value: Value | None) -> Value | None:
        return value if value is None else names.get(value.name, value)

    return tuple(replace(n, inputs=tuple(map(change, n.inputs)), outputs=tuple(map(change, n.outputs))) for n in group)
