"""Finds and guards the plugins: entry points of group `opweave`, and modules registered by hand.

A plugin is a module or object with the hook `opweave_providers()`. Each is loaded and asked on its own: one that breaks is
kept as a `BrokenPlugin` with its reason and never stops the others. Hooks must not import a driver or touch a device.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pluggy

from opweave import settings
from opweave.errors import OpweaveError, PluginError, ProviderUnavailable, UsageError
from opweave.provider import API_VERSION, DeviceInfo, Provider

GROUP = "opweave"
hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


class Hooks:
    """The hooks that a plugin may implement."""

    @hookspec
    def opweave_providers(self) -> Iterable[Provider]:  # type: ignore[empty-body]
        """The providers that the plugin brings. Must not import a driver or touch a device."""


@dataclass(frozen=True)
class BrokenPlugin:
    """A plugin, or one provider of it, that cannot be used; `reason` is for people."""

    name: str
    reason: str
    hint: str = ""
    error: BaseException | None = None


@dataclass(frozen=True)
class Found:
    """A device with the provider that opens it, or the reason why a provider has none."""

    provider: Provider
    device: DeviceInfo | None
    reason: str = ""
    hint: str = ""


class PluginManager:
    """The plugins of the process. Use `plugin_manager()`; make your own only in tests."""

    def __init__(self) -> None:
        self._pluggy = pluggy.PluginManager(GROUP)
        self._pluggy.add_hookspecs(Hooks)
        self._providers: dict[str, Provider] = {}
        self.broken: list[BrokenPlugin] = []

    @property
    def providers(self) -> tuple[Provider, ...]:
        return tuple(self._providers.values())

    def load_entry_points(self) -> None:
        """Loads every installed plugin of group `opweave` but those that OPWEAVE_DISABLE names."""
        points = {(p.name, p.value): p for p in metadata.entry_points(group=GROUP)}
        for point in points.values():
            if point.name in settings.disabled_plugins():
                self.broken.append(BrokenPlugin(point.name, "switched off", "OPWEAVE_DISABLE names it"))
                continue
            try:
                plugin = point.load()
            except BaseException as error:  # noqa: BLE001 (whatever a foreign module does at import)
                _let_through(error)
                hint = "reinstall the package that brings it, or name it in OPWEAVE_DISABLE"
                self._break(point.name, f"cannot be imported: {_text(error)}", hint, error)
                continue
            self.register(plugin, point.name)

    def register(self, plugin: Any, name: str | None = None) -> None:
        """Adds a plugin by hand. What is wrong with it is recorded in `broken`, or raised under OPWEAVE_DEBUG."""
        label = name or str(getattr(plugin, "__name__", type(plugin).__name__))
        try:
            self._pluggy.register(plugin, label)
            self._pluggy.check_pending()
            for provider in self._ask(plugin):
                self._guarded_add(provider, label)
        except BaseException as error:  # noqa: BLE001 (whatever a foreign hook does)
            _let_through(error)
            self._break(label, _text(error), "ask the plugin's author", error)
            if self._pluggy.is_registered(plugin):
                self._pluggy.unregister(plugin)

    def unregister(self, name: str) -> None:
        """Removes a provider by its name; does nothing where there is none."""
        self._providers.pop(name, None)

    def provider(self, name: str) -> Provider:
        """The provider called `name`."""
        if name not in self._providers:
            for broken in self.broken:
                if broken.name == name:
                    raise PluginError(f"provider {name!r}", broken.reason, broken.hint) from broken.error
            known = ", ".join(self._providers) or "none"
            raise UsageError(f"provider {name!r}", f"no plugin brings it; there are: {known}", "see `opweave devices`")
        return self._providers[name]

    def survey(self) -> list[Found]:
        """Every device of every provider, and why a provider has none."""
        return [found for provider in self.providers for found in _devices_of(provider)]

    def _ask(self, plugin: Any) -> Iterator[Provider]:
        others = [p for p in self._pluggy.get_plugins() if p is not plugin]
        hook = self._pluggy.subset_hook_caller("opweave_providers", remove_plugins=others)
        for given in hook():
            yield from given

    def _guarded_add(self, provider: Any, plugin: str) -> None:
        """A provider that cannot be used does not take the others of its plugin along."""
        try:
            self._add(provider, plugin)
        except Exception as error:  # noqa: BLE001 (whatever the attributes of a foreign object do)
            self._break(plugin, _text(error), "ask the plugin's author", error)

    def _add(self, provider: Any, plugin: str) -> None:
        name = getattr(provider, "name", None)
        if not isinstance(provider, Provider) or not isinstance(name, str) or not name.isidentifier():
            found = f"it gave {provider!r} with the name {name!r}"
            raise PluginError(f"a provider from plugin {plugin!r}", found, "derive from opweave.Provider and name it")
        wanted = provider.api_version
        if not (isinstance(wanted, tuple) and len(wanted) == 2 and all(isinstance(v, int) for v in wanted)):
            found = f"its api_version is {wanted!r}"
            raise PluginError(f"provider {name!r} from plugin {plugin!r}", found, "make it (major, minor), two numbers")
        if wanted[0] != API_VERSION[0] or wanted[1] > API_VERSION[1]:
            mine, theirs = (".".join(map(str, v)) for v in (API_VERSION, wanted))
            hint = "update " + ("opweave" if wanted > API_VERSION else "the plugin")
            self._break(name, f"is made for provider contract {theirs}, this Opweave has {mine}", hint, None)
        elif name in self._providers:
            self._break(
                name, f"plugin {plugin!r} brings a second provider of that name", "uninstall one of the two", None
            )
        else:
            self._providers[name] = provider

    def _break(self, name: str, reason: str, hint: str, error: BaseException | None) -> None:
        if settings.debug() and error is not None:
            raise error
        self.broken.append(BrokenPlugin(name, reason, hint, error))


def _devices_of(provider: Provider) -> list[Found]:
    try:
        devices = list(provider.devices())
    except ProviderUnavailable as absent:
        return [Found(provider, None, ": ".join(filter(None, (absent.asked, absent.found))), absent.hint)]
    except BaseException as error:  # noqa: BLE001 (a foreign driver may raise anything)
        _let_through(error)
        return [Found(provider, None, f"listing its devices failed: {_text(error)}", "ask the plugin's author")]
    if not devices:
        return [Found(provider, None, "it found no device")]
    return [_checked(provider, device, devices[:i]) for i, device in enumerate(devices)]


def _checked(provider: Provider, device: Any, before: Sequence[Any]) -> Found:
    """Ids start with the provider's name, so that no provider can stand in for another."""
    name = provider.name
    if not isinstance(device, DeviceInfo):
        return Found(provider, None, f"it listed {device!r} as a device", "ask the plugin's author for a DeviceInfo")
    if not isinstance(device.id, str) or device.id.split(":")[0] != name:
        hint = f"ask the plugin's author for '{name}' or '{name}:0'"
        return Found(provider, None, f"it listed a device with the id {device.id!r}", hint)
    if any(device.id == other.id for other in before if isinstance(other, DeviceInfo)):
        return Found(provider, None, f"it listed {device.id!r} twice", "ask the plugin's author")
    return Found(provider, device)


def _let_through(error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        raise error


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, OpweaveError) else f"{type(error).__name__}: {error}"


@functools.cache
def plugin_manager() -> PluginManager:
    """The process's plugin manager, with all installed plugins loaded."""
    manager = PluginManager()
    manager.load_entry_points()
    return manager
