"""Sessions over a simulated device and `cpu`: results stay those of `cpu` whatever the device takes, refuses or breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnx_models
import opweave
import pytest
from onnx import helper
from onnx.backend.base import Backend
from onnx_suite import cases
from opweave.backend import OpweaveBackend, OpweaveRep
from opweave.errors import ExecutionError, UsageError
from opweave.plans import ReasonCode
from opweave.provider import Device, DeviceInfo, HostBuffer, Program, Stream
from opweave.testing import Behaviour, NullDevice, NullProvider, SimBuffer, SimProvider, registered

KEEN = {"seconds": 1e-9, "launch": 0.0, "link_latency": 0.0, "link_bandwidth": 1e15}
"""Figures that make a device win every node that it takes."""


class HalfSim(Backend):  # type: ignore[misc]
    """A random half of the nodes on a device of its own memory."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, _device: str = "CPU", **_: Any) -> OpweaveRep:
        with registered(SimProvider(Behaviour(takes=0.5, seed=len(model.graph.node), **KEEN))):
            return OpweaveBackend.prepare(model, devices=["sim:0"])  # type: ignore[no-any-return]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class WholeSim(HalfSim):
    """Everything that may leave the host on a device of its own memory."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, _device: str = "CPU", **_: Any) -> OpweaveRep:
        with registered(SimProvider(Behaviour(**KEEN))):
            return OpweaveBackend.prepare(model, devices=["sim:0"])  # type: ignore[no-any-return]


globals().update(cases(HalfSim, "HalfSim", __name__))
globals().update({n: pytest.mark.slow(c) for n, c in cases(WholeSim, "WholeSim", __name__).items()})


@pytest.fixture
def sim() -> Iterator[None]:
    with registered(SimProvider(Behaviour(**KEEN), Behaviour(**KEEN))):
        yield


def feeds_of(model: onnx.ModelProto) -> dict[str, Any]:
    """Random inputs."""
    rng = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value or 3 for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Equal but for the rounding of another order of sums."""
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        if array.dtype == object:
            assert found[name].tolist() == array.tolist()
        else:
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def check(model: onnx.ModelProto, **arguments: Any) -> opweave.Session:
    """A session over `sim:0` and `cpu` that gives what `cpu` gives."""
    session = opweave.load(model, devices=["sim:0", "cpu"], **arguments)
    feeds = feeds_of(model)
    same(session.run(feeds), opweave.load(model, devices="cpu").run(feeds))
    return session


def devices_of(session: opweave.Session) -> set[str]:
    return {p.device for p in session.plan.placements.values()}


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("make", onnx_models.EVERY.values(), ids=onnx_models.EVERY)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("optimise", [True, False])
def test_any_split_gives_the_same(make: Any, seed: int, share: float, optimise: bool) -> None:
    check(make(), options={"sim:0": {"takes": share, "seed": seed}}, optimise=optimise)


@pytest.mark.usefixtures("sim")
def test_a_whole_model_moves_there_and_back() -> None:
    session = check(onnx_models.convolution())
    assert devices_of(session) == {"sim:0"}
    assert [t.source for t in session.plan.transfers] == ["host", "sim:0"]


@pytest.mark.usefixtures("sim")
def test_three_devices_share_a_model() -> None:
    model = onnx_models.convolution()
    session = opweave.load(
        model, devices=["sim:0", "sim:1"], optimise=False, pins={"Conv": "sim:0", "Relu": "sim:1", "Softmax": "cpu"}
    )
    feeds = feeds_of(model)
    same(session.run(feeds), opweave.load(model, devices="cpu").run(feeds))
    assert devices_of(session) == {"sim:0", "sim:1", "cpu"}


@pytest.mark.usefixtures("sim")
def test_what_is_refused_at_compile_goes_elsewhere_with_the_reason() -> None:
    session = check(onnx_models.convolution(), options={"sim:0": {"refuses": {"Gemm", "Softmax"}}}, optimise=False)
    moved = {p.node: p for p in session.plan.placements.values() if p.device == "cpu"}
    assert moved
    reasons = [p.reasons[0] for p in moved.values()]
    assert ReasonCode.REFUSED in {r.code for r in reasons}
    assert any("told to refuse" in r.text for r in reasons)
    assert "sim:0" in devices_of(session)


@pytest.mark.usefixtures("sim")
def test_a_provider_that_raises_when_asked_loses_the_node_only() -> None:
    session = check(onnx_models.convolution(), options={"sim:0": {"raises": {"Relu"}}}, optimise=False)
    (broken,) = session.plan.fallbacks
    assert broken.reasons[0].code is ReasonCode.BROKEN
    assert devices_of(session) == {"sim:0", "cpu"}


@pytest.mark.usefixtures("sim")
def test_a_fault_while_running_names_the_device_and_leaves_the_session_whole() -> None:
    model = onnx_models.convolution()
    options = {"sim:0": {"fails": {"Softmax"}}}
    session = opweave.load(model, devices=["sim:0"], options=options)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"told to fail \(device sim:0\)"):
            session.run(feeds_of(model))


@pytest.mark.usefixtures("sim")
def test_unknown_options_are_refused() -> None:
    with pytest.raises(UsageError, match="'speed'"):
        opweave.load(onnx_models.convolution(), devices=["sim:0"], options={"sim:0": {"speed": 1}})


def test_a_device_that_is_not_there_says_why() -> None:
    with registered(SimProvider(Behaviour(unavailable="no card in the slot"))):
        assert all(d.id != "sim:0" for d in opweave.devices())
        with pytest.raises(UsageError, match="no card in the slot"):
            opweave.load(onnx_models.convolution(), devices=["sim:0"])


@pytest.mark.usefixtures("sim")
def test_many_calls_at_once_do_not_mix() -> None:
    model = onnx_models.convolution()
    session = opweave.load(model, devices=["sim:0"], options={"sim:0": {"takes": 0.5}}, optimise=False)
    alone = opweave.load(model, devices="cpu")
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.normal(size=(1, 2, 5, 5)).astype(np.float32)} for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        for found, given in zip(pool.map(session.run, feeds), feeds, strict=True):
            same(found, alone.run(given))


class Lying(NullProvider):
    """Its programs give what they are told to, whatever was asked for."""

    def __init__(self, given: Any, domain: str | None) -> None:
        super().__init__(Behaviour(domain=domain))
        self.given = given

    def _device(self, info: DeviceInfo, behaviour: Behaviour) -> Device:
        device, program = NullDevice(info, behaviour), LyingProgram(self.given)
        device.compile = lambda _: program  # type: ignore[method-assign]
        return device


class LyingProgram(Program):
    def __init__(self, given: Any) -> None:
        self.given = given

    def run(self, inputs: Any, outputs: Any, stream: Stream) -> Any:
        return self.given


FLOATS = np.zeros((1, 2, 5, 5), np.float32)


@pytest.mark.parametrize(
    ("given", "domain", "words"),
    [
        ([], "host", "0 outputs instead of 1"),
        ([HostBuffer(FLOATS), HostBuffer(FLOATS)], "host", "2 outputs instead of 1"),
        ([FLOATS], "host", "a ndarray, not a buffer of 'host'"),
        ([None], None, "a NoneType, not a buffer of 'null:0'"),
        ([HostBuffer(FLOATS)], None, "a buffer of 'host', not a buffer of 'null:0'"),
        ([HostBuffer([0.0])], "host", "a list instead of float32"),
        ([HostBuffer(FLOATS.astype(np.float64))], "host", "float64[1,2,5,5] instead of float32[1,2,5,5]"),
        ([HostBuffer(FLOATS[..., :4])], "host", "float32[1,2,5,4] instead of float32[1,2,5,5]"),
        ([SimBuffer(FLOATS[0], "null:0")], None, "float32[2,5,5] instead of float32[1,2,5,5]"),
    ],
)
def test_a_program_that_breaks_its_promise_is_blamed(given: Any, domain: str | None, words: str) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Softmax", ["e"], ["y"])]
    ends = [onnx_models.info(name, (1, 2, 5, 5)) for name in "xy"]
    model = onnx_models.model(nodes, ends[:1], ends[1:])
    with registered(Lying(given, domain)):
        session = opweave.load(model, devices=["null:0"], pins={"Exp": "null:0", "Softmax": "cpu"})
        with pytest.raises(ExecutionError, match=re.escape(words)) as caught:
            session.run({"x": FLOATS})
    assert caught.value.context["device"] == "null:0"
