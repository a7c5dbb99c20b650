"""Plugins are loaded one by one: what is wrong with one is told and stops no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from opweave.errors import PluginError, UsageError
from opweave.plugins import BrokenPlugin, PluginManager, hookimpl
from opweave.provider import API_VERSION, Device, DeviceInfo, Provider
from opweave.testing import Behaviour, NullProvider, SimProvider, registered


class Plugin:
    """Gives what it is told to."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    @hookimpl
    def opweave_providers(self) -> Iterable[Any]:
        return self.given


class Raising:
    """Breaks when it is asked."""

    @hookimpl
    def opweave_providers(self) -> Iterable[Provider]:
        raise OSError("no such driver")


class Misspelt:
    """Implements a hook that there is not."""

    @hookimpl
    def opweave_provider(self) -> Iterable[Provider]:
        return []


class Versioned(NullProvider):
    """Made for another version of the contract."""

    def __init__(self, version: Any) -> None:
        super().__init__(name="versioned")
        self.api_version = version


class Nameless(Provider):
    """Lacks a name."""

    def devices(self) -> Sequence[DeviceInfo]:
        return []

    def open(self, device_id: str, options: Mapping[str, Any]) -> Device:
        raise NotImplementedError


@pytest.fixture
def manager() -> PluginManager:
    return PluginManager()


def broken_of(manager: PluginManager) -> BrokenPlugin:
    """The one broken plugin."""
    (broken,) = manager.broken
    return broken


def test_a_good_plugin_brings_its_providers(manager: PluginManager) -> None:
    manager.register(Plugin(NullProvider(), SimProvider()))
    assert [p.name for p in manager.providers] == ["null", "sim"]
    assert [f.device.id for f in manager.survey() if f.device] == ["null:0", "sim:0"]
    assert not manager.broken


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (Raising(), "no such driver"),
        (Misspelt(), "opweave_provider"),
        (Plugin("not a provider"), "not a provider"),
        (Plugin(Nameless()), "None"),
        (Plugin(NullProvider(name="no good")), "no good"),
        (Plugin(Versioned("1.0")), "1.0"),
        (Plugin(Versioned(None)), "None"),
    ],
    ids=["raises", "misspelt", "no provider", "nameless", "bad name", "version as text", "no version"],
)
def test_a_broken_plugin_is_told_and_stops_no_other(manager: PluginManager, plugin: Any, reason: str) -> None:
    manager.register(plugin, "bad")
    manager.register(Plugin(NullProvider()), "good")
    assert reason in broken_of(manager).reason
    assert [p.name for p in manager.providers] == ["null"]


@pytest.mark.parametrize(("version", "hint"), [((2, 0), "opweave"), ((1, 99), "opweave"), ((0, 9), "plugin")])
def test_another_contract_is_refused_with_both_versions(
    manager: PluginManager, version: tuple[int, int], hint: str
) -> None:
    manager.register(Plugin(Versioned(version)))
    broken = broken_of(manager)
    for text in (version, API_VERSION):
        assert ".".join(map(str, text)) in broken.reason
    assert hint in broken.hint
    with pytest.raises(PluginError, match=r"contract \d+\.\d+, this Opweave has"):
        manager.provider("versioned")


def test_a_second_provider_of_a_name_is_refused(manager: PluginManager) -> None:
    first = NullProvider()
    manager.register(Plugin(first), "one")
    manager.register(Plugin(NullProvider()), "two")
    assert manager.provider("null") is first
    assert "two" in broken_of(manager).reason


def test_one_bad_provider_does_not_take_its_siblings_along(manager: PluginManager) -> None:
    manager.register(Plugin(NullProvider(), 42, SimProvider()), "mixed")
    assert [p.name for p in manager.providers] == ["null", "sim"]
    assert "42" in broken_of(manager).reason


def test_unknown_providers_are_told_with_the_known(manager: PluginManager) -> None:
    manager.register(Plugin(NullProvider()))
    with pytest.raises(UsageError, match="there are: null"):
        manager.provider("tpu")


def test_debugging_lets_the_fault_through(manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWEAVE_DEBUG", "1")
    with pytest.raises(OSError, match="no such driver"):
        manager.register(Raising())


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(Behaviour(unavailable="no hardware"), "no hardware"), (Behaviour(breaks="segment fault"), "segment fault")],
)
def test_providers_without_devices_say_why(manager: PluginManager, behaviour: Behaviour, reason: str) -> None:
    manager.register(Plugin(NullProvider(behaviour), SimProvider()))
    none, found = manager.survey()
    assert none.device is None
    assert reason in none.reason
    assert none.hint
    assert found.device is not None


def test_a_provider_that_finds_nothing_is_told(manager: PluginManager) -> None:
    class Empty(Nameless):
        name = "empty"

    manager.register(Plugin(Empty()))
    (found,) = manager.survey()
    assert found.device is None
    assert found.reason == "it found no device"


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ("npu:0", "listed 'npu:0' as a device"),
        (DeviceInfo("cpu"), "id 'cpu'"),
        (DeviceInfo("nullify:0"), "id 'nullify:0'"),
        (DeviceInfo("null:0"), "twice"),
    ],
    ids=["no info", "of another", "prefix only", "twice"],
)
def test_devices_that_are_none_are_told_one_by_one(manager: PluginManager, listed: Any, reason: str) -> None:
    class Odd(NullProvider):
        def devices(self) -> Sequence[DeviceInfo]:
            return [*super().devices(), listed, DeviceInfo("null:1")]

    manager.register(Plugin(Odd()))
    first, wrong, last = manager.survey()
    assert first.device is not None
    assert last.device is not None
    assert wrong.device is None
    assert reason in wrong.reason


class TestEntryPoints:
    """Installed plugins."""

    @pytest.fixture
    def installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "fine_plugin.py").write_text(
            "from opweave.plugins import hookimpl\nfrom opweave.testing import NullProvider\n"
            "@hookimpl\ndef opweave_providers():\n    return [NullProvider()]\n"
        )
        (tmp_path / "torn_plugin.py").write_text("import a_library_that_is_not_installed\n")
        (tmp_path / "leaving_plugin.py").write_text("raise SystemExit(3)\n")
        monkeypatch.syspath_prepend(tmp_path)
        names = ["torn", "leaving", "fine", "fine"]
        points = [metadata.EntryPoint(n, f"{n}_plugin", "opweave") for n in names]
        monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints(points))

    @pytest.mark.usefixtures("installed")
    def test_those_that_cannot_be_imported_stop_no_other(self, manager: PluginManager) -> None:
        manager.load_entry_points()
        assert [p.name for p in manager.providers] == ["null"]
        torn, leaving = manager.broken
        assert "cannot be imported: ModuleNotFoundError" in torn.reason
        assert "SystemExit" in leaving.reason
        assert "OPWEAVE_DISABLE" in torn.hint

    @pytest.mark.usefixtures("installed")
    def test_those_switched_off_are_not_imported(self, manager: PluginManager, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPWEAVE_DISABLE", "torn, leaving,fine")
        manager.load_entry_points()
        assert not manager.providers
        assert {b.reason for b in manager.broken} == {"switched off"}


class TestRegistered:
    """The context manager of `opweave.testing`."""

    def test_providers_last_as_long_as_the_block(self, manager: PluginManager) -> None:
        for _ in range(2):
            with registered(NullProvider(), manager=manager) as same:
                assert same.provider("null")
            assert not manager.providers

    def test_a_refused_provider_is_an_error(self, manager: PluginManager) -> None:
        with pytest.raises(PluginError, match="contract"), registered(Versioned((9, 9)), manager=manager):
            pass
        assert not manager.broken

    def test_a_name_in_use_is_an_error_and_stays(self, manager: PluginManager) -> None:
        with registered(NullProvider(), manager=manager):
            with pytest.raises(PluginError, match="already"), registered(NullProvider(), manager=manager):
                pass
            assert manager.provider("null")


def test_options_of_testing_devices_are_the_fields_of_their_behaviour() -> None:
    provider = NullProvider()
    assert provider.open("null:0", {"link_latency": 2.0}).copy_cost(0, "host") == 2.0
    with pytest.raises(UsageError, match=r"'speed'.*launch"):
        provider.open("null:0", {"speed": 1})
    with pytest.raises(UsageError, match="null:7"):
        provider.open("null:7", {})
