"""What `import opweave` offers: load a model, plan it, list the devices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opweave.errors import OpweaveError, PluginError, UsageError
from opweave.plans import Plan
from opweave.plugins import Found, plugin_manager
from opweave.provider import Device, DeviceInfo, DeviceKind
from opweave.session import Session
from opweave.types import Dim

if TYPE_CHECKING:
    import onnx

_ORDER = [DeviceKind.NPU, DeviceKind.GPU, DeviceKind.FPGA, DeviceKind.OTHER, DeviceKind.CPU]
CPU = "cpu"


def devices() -> list[DeviceInfo]:
    """The devices of this machine, accelerators first. `opweave devices` also says why others are absent."""
    return _present(plugin_manager().survey())


def _present(survey: Sequence[Found]) -> list[DeviceInfo]:
    found = [f.device for f in survey if f.device is not None]
    return sorted(found, key=lambda d: _ORDER.index(d.kind))


def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    devices: Sequence[str] | str | None = None,
    *,
    optimise: bool = True,
    pins: Mapping[str, str] | None = None,
    threads: int | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Session:
    """A session for a model, from a path, the bytes of a file, or a `ModelProto`.

    `devices`: ids, most wanted first (default: all found); `cpu` is always added at the end for what no other takes.
    `pins`: node names or operators to device ids, as hard constraints. `threads`: of one call on `cpu`.
    `options`: by device id, passed to its provider. `optimise=False` runs the graph as it was read.
    Raises `ModelError`, `UsageError`, `ProviderUnavailable`.
    """
    from opweave.read import read_graph

    graph = read_graph(source, optimise=False)
    names = [v.name for v in graph.outputs]
    if optimise:
        from opweave.passes import optimise as run_passes

        graph = run_passes(graph)
    return Session(graph, names, _open(devices, threads, options or {}), pins, optimise)


def plan(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    devices: Sequence[str] | str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    *,
    optimise: bool = True,
    pins: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """What would run where and why, without compiling anything. `shapes` by input; the rest as the model declares."""
    return load(source, devices, optimise=optimise, pins=pins, options=options).plan_for(shapes)


def _open(
    wanted: Sequence[str] | str | None, threads: int | None, options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Device]:
    survey = plugin_manager().survey()
    ids = _wanted(wanted, survey)
    for name in options:
        if name not in ids:
            raise UsageError(
                f"options for device {name!r}", f"the session's devices are {', '.join(ids)}", "name one of them"
            )
    opened = {}
    for name in ids:
        given = dict(options.get(name, {}))
        if name == CPU and threads is not None:
            given.setdefault("threads", threads)
        opened[name] = _open_one(name, given, survey)
    return opened


def _wanted(wanted: Sequence[str] | str | None, survey: Sequence[Found]) -> list[str]:
    if wanted is None:
        return _with_cpu([d.id for d in _present(survey)])
    ids = wanted.split(",") if isinstance(wanted, str) else list(wanted)
    if not ids or not all(isinstance(i, str) and i.strip() for i in ids):
        raise UsageError("the devices of a session", f"found {wanted!r}", "name at least one, such as 'cpu'")
    return _with_cpu([_resolve(i.strip(), survey) for i in ids])


def _with_cpu(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*ids, CPU]))


def _resolve(name: str, survey: Sequence[Found]) -> str:
    """`cuda` is the first device of provider `cuda`."""
    known = [f.device.id for f in survey if f.device is not None]
    if name in known:
        return name
    own = [f for f in survey if f.provider.name == name.split(":")[0]]
    if own and own[0].device is not None and name == own[0].provider.name:
        return own[0].device.id
    reasons = [f"{f.provider.name} has no device: {f.reason}" for f in own if f.device is None]
    reasons += [f"{b.name}: {b.reason}" for b in plugin_manager().broken if b.name == name.split(":")[0]]
    found = "; ".join([*reasons, f"this machine has {', '.join(known)}"])
    raise UsageError(f"device {name!r}", found, "see `opweave devices`")


def _open_one(name: str, options: Mapping[str, Any], survey: Sequence[Found]) -> Device:
    provider = next(f.provider for f in survey if f.device is not None and f.device.id == name)
    try:
        return provider.open(name, options)
    except OpweaveError:
        raise
    except Exception as error:
        found = f"its provider raised {type(error).__name__}: {error}"
        raise PluginError(f"device {name!r}", found, "report it to the provider's author") from error
